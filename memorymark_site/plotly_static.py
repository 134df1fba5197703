"""Serves plotly's JavaScript out of the installed Python package."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.checks import CheckMessage, Error
from django.core.files.storage import FileSystemStorage

_FILE = "plotly.min.js"
_PREFIX = "plotly"


class PlotlyFinder(BaseFinder):
    """Finds ``plotly/plotly.min.js`` and nothing else of the package's 10 MB of data.

    The package is located, not imported: importing it takes a good second.
    """

    def __init__(self, app_names: object = None, *_args: object, **_kwargs: object) -> None:
        spec = find_spec("plotly")
        folders = (spec.submodule_search_locations if spec else None) or []
        files = [Path(folder) / "package_data" / _FILE for folder in folders]
        self._file = next((file for file in files if file.is_file()), None)

    def check(self, **_kwargs: Any) -> list[CheckMessage]:
        """Report a missing file at startup, not at the first chart."""
        if self._file is None:
            return [Error(f"no {_FILE} is installed", hint="pip install -r requirements.txt")]
        return []

    def find(self, path: str, find_all: bool = False, **_kwargs: Any) -> Any:
        """The path of the file, if it is the one requested."""
        wanted = path == f"{_PREFIX}/{_FILE}" and self._file is not None
        found = [str(self._file)] if wanted else []
        return found if find_all or not found else found[0]

    def list(self, ignore_patterns: object) -> Iterator[tuple[str, FileSystemStorage]]:
        if self._file is not None:
            storage = FileSystemStorage(location=self._file.parent)
            storage.prefix = _PREFIX  # type: ignore[attr-defined]  # read by collectstatic
            yield _FILE, storage
