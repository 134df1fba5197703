"""Triton's kernels, which packages such as bitsandbytes declare when they are imported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from .patches import patched
from .software import minor

_ASKS_WHEN_RUN = (3, 4)
"""The first release that looks for the GPU only when a kernel is first run."""


@contextmanager
def declared_without_gpu() -> Iterator[None]:
    """Let kernels be declared where there is no GPU, for as long as the context lasts.

    Triton 3.2 and 3.3, which come with PyTorch 2.6 and 2.7, look for the GPU as soon as a kernel is
    declared that tunes itself, and raise where they find none. Declared in this context, it looks
    when it is run.
    """
    if not _asks_when_declared():
        yield
        return
    driver = import_module("triton.runtime").driver
    with patched(
        driver,
        "active",
        _AskedLater(driver.active),
        why="kernels are declared where there is no GPU, and never run there",
    ):
        yield


@cache  # it looks through the folders of packages
def _asks_when_declared() -> bool:
    try:
        return minor(version("triton")) < _ASKS_WHEN_RUN
    except PackageNotFoundError:
        return False


class _AskedLater:
    """Triton's driver, whose timer looks for the GPU when it is called."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def get_benchmarker(self) -> Any:
        return lambda *args, **kwargs: self._driver.get_benchmarker()(*args, **kwargs)
