"""Kernels of Triton are declared where there is no GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from engine.versions import kernels


class _Driver:
    """Triton's, which raises on a machine without a GPU."""

    name = "cuda"

    def __init__(self, has_gpu: bool) -> None:
        self._has_gpu = has_gpu

    def get_benchmarker(self) -> Any:
        if not self._has_gpu:
            raise RuntimeError("0 active drivers ([]). There should only be one.")
        return lambda kernel, quantiles: (kernel, quantiles)


@pytest.fixture(autouse=True)
def _triton_is_looked_for_anew() -> Iterator[None]:
    """In each test, and after the last one."""
    kernels._asks_when_declared.cache_clear()
    yield
    kernels._asks_when_declared.cache_clear()


def _triton(monkeypatch: pytest.MonkeyPatch, release: str, *, has_gpu: bool) -> Any:
    """A Triton of this release; returns the object that holds its driver."""
    runtime: Any = ModuleType("triton.runtime")
    runtime.driver = SimpleNamespace(active=_Driver(has_gpu))
    monkeypatch.setitem(sys.modules, "triton", ModuleType("triton"))
    monkeypatch.setitem(sys.modules, "triton.runtime", runtime)
    monkeypatch.setattr(kernels, "version", lambda package: release)
    return runtime.driver


@pytest.mark.parametrize("release", ["3.1.0", "3.3.1"])
def test_a_kernel_that_tunes_itself_is_declared_and_fails_when_run(
    monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    driver = _triton(monkeypatch, release, has_gpu=False)
    own = driver.active
    with kernels.declared_without_gpu():
        timer = driver.active.get_benchmarker()
    assert driver.active is own
    with pytest.raises(RuntimeError, match="0 active drivers"):
        timer("kernel", quantiles=())


def test_with_a_gpu_it_is_timed_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = _triton(monkeypatch, "3.2.0", has_gpu=True)
    with kernels.declared_without_gpu():
        timer, name = driver.active.get_benchmarker(), driver.active.name
    assert (timer("kernel", quantiles=(0.5,)), name) == (("kernel", (0.5,)), "cuda")


@pytest.mark.parametrize("release", ["3.4.0", "3.10.1"])
def test_later_releases_are_left_alone(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    driver = _triton(monkeypatch, release, has_gpu=False)
    own = driver.active
    with kernels.declared_without_gpu():
        assert driver.active is own


def test_nothing_happens_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(kernels, "version", missing)
    monkeypatch.setitem(sys.modules, "triton", None)
    with kernels.declared_without_gpu():
        pass
