"""What the lab has set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import QuerySet

from analyses.models import GpuPrice, LabSettings, Node
from engine.gpus import GPUS, Gpu, catalogue_name


def lab_settings() -> LabSettings:
    """What an admin has set; the engine's defaults where nobody has."""
    stored = LabSettings.objects.select_related("changed_by").filter(pk=LabSettings.ONLY).first()
    return stored or LabSettings(pk=LabSettings.ONLY)


@dataclass(frozen=True)
class HeldPrice:
    """What a GPU costs, in USD per hour of one GPU: assumed, by the lab or by the catalogue.

    Attributes:
        gpu: See :class:`~analyses.models.GpuPrice`.
        display_name: As its vendor writes it.
        catalogue_usd: ``None`` for a GPU that the catalogue does not have.
        change: The last one by an admin; ``None`` if there was none.
    """

    gpu: str
    display_name: str
    catalogue_usd: float | None
    change: GpuPrice | None

    @property
    def is_the_labs(self) -> bool:
        """Whether the lab has a price of its own for it."""
        return self.change is not None and self.change.price_per_hour_usd is not None

    @property
    def usd(self) -> float | None:
        """The price that holds; ``None`` where nobody knows one."""
        own = self.change.price_per_hour_usd if self.change else None
        return self.catalogue_usd if own is None else own

    @property
    def origin(self) -> str:
        """Whose price it is: ``lab``, ``catalogue``, or empty where there is none."""
        if self.is_the_labs:
            return "lab"
        return "" if self.catalogue_usd is None else "catalogue"


def price_of(gpu: str) -> HeldPrice:
    """The price of a GPU that is a name of the catalogue or the kind of a node's GPU."""
    name = key_of(gpu)
    return _held(name, changes().filter(gpu=name).first())


def prices(gpus: Iterable[str]) -> dict[str, HeldPrice]:
    """The prices of GPUs named as for :func:`price_of`, by what :func:`key_of` makes of them."""
    names = {key_of(gpu): None for gpu in gpus}
    latest = {change.gpu: change for change in changes().filter(gpu__in=names).order_by("id")}
    return {name: _held(name, latest.get(name)) for name in names}


def changes() -> QuerySet[GpuPrice]:
    """Every change of a price, the latest first."""
    return GpuPrice.objects.select_related("set_by")


def key_of(gpu: str) -> str:
    """The catalogue's name for a GPU called so by the catalogue or by its driver, else as it is."""
    return catalogue_name(gpu) or gpu


def kinds_outside_the_catalogue() -> list[str]:
    """The kinds of GPU of the lab's nodes, online or not, that the catalogue does not have."""
    kinds = Node.objects.exclude(gpu_name="").values_list("gpu_name", flat=True)
    return sorted(kind for kind in set(kinds) if key_of(kind) not in GPUS)


def _held(name: str, change: GpuPrice | None) -> HeldPrice:
    known: Gpu | None = GPUS.get(name)
    if known is None:
        return HeldPrice(name, name, None, change)
    return HeldPrice(name, known.display_name, known.price_per_hour_usd, change)
