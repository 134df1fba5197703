"""Files that pages take from installed packages."""

from __future__ import annotations

import pytest
from django.contrib.staticfiles import finders

from memorymark_site import package_files
from memorymark_site.package_files import SERVED, PackageFilesFinder


@pytest.mark.parametrize("path", SERVED)
def test_each_file_is_found_and_collected(path: str) -> None:
    finder = PackageFilesFinder()
    collected = {f"{storage.prefix}/{name}" for name, storage in finder.list([])}  # type: ignore[attr-defined]  # the finder sets it

    assert finders.find(path)
    assert path in collected
    assert finder.check() == []


def test_nothing_else_of_a_package_is_served() -> None:
    assert finders.find("inter/styles.css") is None
    assert finders.find("plotly/../plotly/plotly.min.js") is None


def test_a_missing_package_is_reported_at_startup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_files, "SERVED", {"inter/Inter-Regular.woff2": ("no_such", "a")})

    (error,) = PackageFilesFinder().check()

    assert error.msg == "no inter/Inter-Regular.woff2 is installed"
    assert error.hint == "pip install -r requirements.txt"
