"""``sys.modules`` is looked through whatever is in it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch

from engine.script.devices.sharding import followed_shards
from engine.script.libraries.pretrained import without_weights
from engine.script.on_import import when_imported
from engine.script.process.deepspeed import _take_its_place
from engine.step.transformers_versions import forget_cached
from engine.step.values_in_models import known_in_models
from engine.traces.machine import known_values
from engine.tracing.flex_attention import flex_attention_lowering
from engine.versions.loaded_modules import namespace, namespaces
from engine.versions.patches import patched_names

pytestmark = pytest.mark.torch


class _Lazy(ModuleType):
    """A module that cannot load what it is asked for."""

    def __getattr__(self, name: str) -> NoReturn:
        raise ImportError(name)


class _Raising(ModuleType):
    """A module that raises whatever it is asked for, its dictionary and class included."""

    def __getattribute__(self, name: str) -> NoReturn:
        raise RuntimeError(name)


class _Strange:
    """An object in the place of a module, as Cython's ``cython.parallel``."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> NoReturn:
        raise RuntimeError(name)

    def __hash__(self) -> NoReturn:
        raise TypeError("not hashable")

    def __eq__(self, other: object) -> NoReturn:
        raise TypeError("not comparable")


@pytest.fixture(params=["transformers", "torch.distributed", "deepspeed", "somebodys"])
def planted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Strange modules in a package, and strange objects under the names that are looked for."""
    package: str = request.param
    for number, made in enumerate((_Lazy("lazy"), _Raising("raising"), _Strange(), None, 7)):
        monkeypatch.setitem(sys.modules, f"{package}.planted_{number}", made)  # so they are
    holding = ModuleType("holding")
    for name in (
        "flex_attention",
        "create_block_mask",
        "linear_sum_assignment",
        "distribute_tensor",
    ):
        vars(holding)[name] = _Strange()
    monkeypatch.setitem(sys.modules, f"{package}.planted", holding)
    return package


def test_only_modules_have_names(planted: str) -> None:
    found = namespaces(planted)
    assert all(isinstance(names, dict) for names in found)
    assert namespace(f"{planted}.planted_0")["__name__"] == "lazy"
    assert namespace(f"{planted}.planted_1")["__name__"] == "raising"
    assert [namespace(f"{planted}.planted_{number}") for number in (2, 3, 4)] == [{}, {}, {}]
    assert namespace("never.imported") == {}


def test_a_package_is_no_other_one_with_the_same_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "somebodys", ModuleType("somebodys"))
    monkeypatch.setitem(sys.modules, "somebodys_else", ModuleType("somebodys_else"))
    assert [names["__name__"] for names in namespaces("somebodys")] == ["somebodys"]


def test_a_name_is_replaced_for_as_long_as_the_context_lasts() -> None:
    module: Any = ModuleType("mine")
    module.answer = 42
    with patched_names([(vars(module), "answer", 43)], why="to see it"):
        assert module.answer == 43
    assert module.answer == 42


def _flex_attention() -> None:
    with flex_attention_lowering(lambda: True):
        pass


def _known_values() -> None:
    with known_values():
        pass


def _shards() -> None:
    with followed_shards(lambda: None):
        pass


def _deepspeed() -> None:
    _take_its_place(SimpleNamespace())  # type: ignore[arg-type]  # it is only kept


def _models() -> None:
    with known_in_models(lambda tensor: True):
        pass


def _caches() -> None:
    kind = type("Planted", (torch.nn.Module,), {"__module__": "transformers.planted", "of": 7})
    forget_cached(kind())


def _pretrained() -> None:
    with without_weights(lambda said: None):
        pass


def _on_import() -> None:
    when_imported({f"transformers.planted_{number}": lambda: None for number in range(5)})
    del sys.meta_path[0]


@pytest.mark.parametrize(
    "walk",
    [
        _flex_attention, _known_values, _shards, _deepspeed, _models, _caches,
        _pretrained, _on_import,
    ],
)  # fmt: skip
def test_whoever_looks_through_modules_gets_past_strange_ones(
    planted: str, walk: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "timm.models._builder", None)  # forbidden
    monkeypatch.setitem(sys.modules, "deepspeed", ModuleType("deepspeed"))
    walk()
