"""Packages that are loaded with the site's modules, beyond import-linter's contracts.

They are those of ``pip install 'memorymark[site]'``, and not all of them.

In the environment of the tests, packages of test tools are there too, and hide one that is missing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Set
from importlib import metadata
from pathlib import Path

import pytest
from django.conf import settings
from packaging.requirements import Requirement

_IMPORTS_ALL = """
import importlib, json, pkgutil, sys
import django
django.setup()
import analyses, memorymark_site
for package in (analyses, memorymark_site):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not {"tests", "conftest", "migrations", "__main__"} & set(module.name.split(".")):
            importlib.import_module(module.name)
print(json.dumps([*sys.modules]))
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Set[str]:
    """The modules that are loaded once all of the site's are."""
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTS_ALL],
        cwd=settings.BASE_DIR,
        env=os.environ
        | {
            "DJANGO_SETTINGS_MODULE": "memorymark_site.settings",
            "MEMORYMARK_DATA_DIR": str(tmp_path_factory.mktemp("data")),
            "DATABASE_URL": "",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = frozenset(json.loads(done.stdout.splitlines()[-1]))
    assert "analyses.jobs.worker" in found
    return found


def test_the_site_loads_neither_torch_nor_transformers(imported: Set[str]) -> None:
    assert imported.isdisjoint({"torch", "transformers", "plotly"})


def test_the_site_imports_nothing_that_its_extra_does_not_bring(imported: Set[str]) -> None:
    root = Path(settings.BASE_DIR)
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    brought = _closure(project["optional-dependencies"]["site"])
    assert {"django", "torch", "transformers"} <= brought
    owners = metadata.packages_distributions()
    packages = {name.partition(".")[0] for name in imported}
    used = {_name(owner) for module in packages for owner in owners.get(module, ())}
    assert used - brought - {"memorymark"} == set()


def _closure(requirements: Iterable[str]) -> set[str]:
    """The names of these packages and of all that they need in turn, as pip would install them."""
    waiting = [Requirement(text) for text in requirements]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        key = (_name(wanted.name), frozenset(wanted.extras))
        if key in seen:
            continue
        seen.add(key)
        for text in _needed_by(wanted.name):
            needed = Requirement(text)
            marker, extras = needed.marker, wanted.extras or {""}
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(needed)
    return {name for name, _ in seen}


def _needed_by(package: str) -> list[str]:
    try:
        return metadata.requires(package) or []
    except metadata.PackageNotFoundError:  # for another platform
        return []


def _name(distribution: str) -> str:
    """As PyPI compares names."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
