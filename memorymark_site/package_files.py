"""Serves a few files out of installed Python packages: plotly's JavaScript and the font Inter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.checks import CheckMessage, Error
from django.core.files.storage import FileSystemStorage

_INTER = "static/unfold/fonts/inter"
_WEIGHTS = ("Regular", "Medium", "SemiBold")
SERVED: Mapping[str, tuple[str, str]] = {
    "plotly/plotly.min.js": ("plotly", "package_data"),
    **{f"inter/Inter-{weight}.woff2": ("unfold", _INTER) for weight in _WEIGHTS},
    "inter/LICENSE": ("unfold", _INTER),  # the font's license goes where the font goes
}
"""The package, and its folder, of the file for each address under ``STATIC_URL``."""


class PackageFilesFinder(BaseFinder):
    """Finds the served files and nothing else of the packages' tens of megabytes.

    The packages are located, not imported: importing plotly takes a good second.
    """

    def __init__(self, app_names: object = None, *_args: object, **_kwargs: object) -> None:
        self._files = {path: _located(path, *place) for path, place in SERVED.items()}

    def check(self, **_kwargs: Any) -> list[CheckMessage]:
        """Report a missing file at startup, not at the first page that needs it."""
        return [
            Error(f"no {path} is installed", hint="pip install -r requirements.txt")
            for path, file in self._files.items()
            if file is None
        ]

    def find(self, path: str, find_all: bool = False, **_kwargs: Any) -> Any:
        """The path of the file, if it is one of those served."""
        file = self._files.get(path)
        found = [str(file)] if file else []
        return found if find_all or not found else found[0]

    def list(self, ignore_patterns: object) -> Iterator[tuple[str, FileSystemStorage]]:
        for path, file in self._files.items():
            if file is not None:
                storage = FileSystemStorage(location=file.parent)
                storage.prefix = str(PurePosixPath(path).parent)  # type: ignore[attr-defined]  # read by collectstatic
                yield file.name, storage


def _located(path: str, package: str, folder: str) -> Path | None:
    spec = find_spec(package)
    places = (spec.submodule_search_locations if spec else None) or []
    files = [Path(place) / folder / PurePosixPath(path).name for place in places]
    return next((file for file in files if file.is_file()), None)
