"""The GPU catalogue: one TOML file for each family, and what a lab has added."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

from .gpu import Gpu, Vendor

_FAMILIES = ("data_center", "geforce", "workstation", "amd")
"""The files next to this one, in the order of all lists."""

_UNSOURCED = frozenset({"name", "display_name", "driver_names", "sources"})
_RATES = ("fp32_flops", "tf32_flops", "bf16_flops", "fp16_flops")
_OF_SEVERAL = {"rates": _RATES}
"""Names in a table of sources that stand for several fields."""


def read_catalogue(text: str) -> dict[str, Gpu]:
    """Read one file: its family and vendor, its common sources, and a table for each GPU.

    A GPU's table has the fields of :class:`Gpu`, and in ``sources`` the source of each. There,
    ``rates`` stands for all peak rates, and a text that is the name of a common source for its
    text.

    Raises:
        ValueError: If a table lacks a field, has an unknown one, or its sources do not match its
            fields.
    """
    tables: dict[str, Any] = tomllib.loads(text)
    family, vendor = str(tables.pop("family", "")), Vendor(tables.pop("vendor", Vendor.NVIDIA))
    common = tables.pop("sources", {})
    found = {}
    for name, table in tables.items():
        given = {**table, "sources": _sources(table, common)}
        _check_keys(name, given)
        given["driver_names"] = tuple(given.get("driver_names", ()))
        found[name] = Gpu(name=name, family=family, vendor=vendor, **given)
    return found


def _sources(table: Mapping[str, Any], common: Mapping[str, str]) -> dict[str, str]:
    """The source of each field, with what stands for several written out."""
    found = {}
    for name, source in table.get("sources", {}).items():
        for field in _OF_SEVERAL.get(name, (name,)):
            if name == field or field in table:
                found[field] = common.get(source, source)
    return found


def _check_keys(name: str, table: Mapping[str, Any]) -> None:
    own = {"name", "family", "vendor", "checked", "launch_seconds", "launch_range"}
    known = {field.name for field in fields(Gpu)} - own
    needed = {field.name for field in fields(Gpu) if field.default is MISSING} - {"name"}
    if unknown := table.keys() - known:
        raise ValueError(f"GPU {name}: unknown {', '.join(sorted(unknown))}")
    if missing := needed - table.keys():
        raise ValueError(f"GPU {name}: lacks {', '.join(sorted(missing))}")
    to_source = table.keys() - _UNSOURCED
    if odd := to_source ^ table["sources"].keys():
        raise ValueError(f"GPU {name}: sources and fields differ in {', '.join(sorted(odd))}")


def _read_all() -> dict[str, Gpu]:
    found: dict[str, Gpu] = {}
    for family in _FAMILIES:
        file = Path(__file__).with_name(f"{family}.toml")
        found |= read_catalogue(file.read_text(encoding="utf-8"))
    return found


BUILT_IN: Mapping[str, Gpu] = _read_all()
"""GPUs that MemoryMark comes with."""


class Added(Protocol):
    """The GPUs that a lab has added, by name; read on first use."""

    @property
    def offered(self) -> Mapping[str, Gpu]:
        """GPUs that can be chosen."""

    @property
    def removed(self) -> Mapping[str, Gpu]:
        """GPUs that stored analyses may still name."""


@dataclass(frozen=True)
class AddedGpus:
    """GPUs that are added and at hand."""

    offered: Mapping[str, Gpu]
    removed: Mapping[str, Gpu]

    @classmethod
    def of(cls, gpus: Iterable[Gpu]) -> AddedGpus:
        return cls({gpu.name: gpu for gpu in gpus}, {})


_NONE = AddedGpus({}, {})
_ADDED: ContextVar[Added] = ContextVar("added GPUs")


def set_added(added: Added | None) -> None:
    """Offer a lab's own GPUs from now on, in this thread; ``None`` for none."""
    _ADDED.set(added or _NONE)


@contextmanager
def with_added(added: Added | Sequence[Gpu]) -> Iterator[None]:
    """Offer a lab's own GPUs beside the built-in ones, for a while."""
    before = _ADDED.set(AddedGpus.of(added) if isinstance(added, Sequence) else added)
    try:
        yield
    finally:
        _ADDED.reset(before)


_PRICES: ContextVar[Mapping[str, float]] = ContextVar("prices of a lab")


@contextmanager
def with_prices(prices: Mapping[str, float]) -> Iterator[None]:
    """Give GPUs a lab's own prices for a while, in USD per GPU-hour by name."""
    before = _PRICES.set(prices)
    try:
        yield
    finally:
        _PRICES.reset(before)


def added_gpus() -> list[Gpu]:
    """The GPUs that the lab has added and still offers."""
    return [gpu for name, gpu in _ADDED.get(_NONE).offered.items() if name not in BUILT_IN]


class Catalogue(Mapping[str, Gpu]):
    """The GPUs by name: those built in, then those that the lab has added.

    One that the lab has removed again is not listed, and still found by its name: stored analyses
    name it.
    """

    def __getitem__(self, name: str) -> Gpu:
        gpu = self._as_listed(name)
        price = _PRICES.get({}).get(name)
        return gpu if price is None else replace(gpu, price_per_hour_usd=price)

    def _as_listed(self, name: str) -> Gpu:
        if name in BUILT_IN:
            return BUILT_IN[name]
        added = _ADDED.get(_NONE)
        return added.offered[name] if name in added.offered else added.removed[name]

    def __iter__(self) -> Iterator[str]:
        yield from BUILT_IN
        yield from (gpu.name for gpu in added_gpus())

    def __len__(self) -> int:
        return len(BUILT_IN) + len(added_gpus())

    def __contains__(self, name: object) -> bool:
        added = _ADDED.get(_NONE)
        return name in BUILT_IN or name in added.offered or name in added.removed


GPUS: Mapping[str, Gpu] = Catalogue()


def by_family(gpus: Iterable[Gpu]) -> dict[str, list[Gpu]]:
    """The GPUs under the name of their family, both in their order."""
    found: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        found.setdefault(gpu.family, []).append(gpu)
    return found
