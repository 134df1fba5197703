"""The lab's settings: defaults of a new analysis, sharing, and GPU prices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from analyses.models import GpuPrice, LabSettings, Node
from engine.gpus import GPUS, catalogue_name
from engine.interface.assumptions import Assumptions
from engine.interface.defaults import left_out as left_out_of
from engine.interface.program import AnyRequest
from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action

LAB_DEFAULTS = ("hours_per_run", "runs_per_year", "grid_co2e_grams_per_kwh")
"""The assumptions that the lab sets for every new analysis; prices it sets by GPU."""


def lab_settings() -> LabSettings:
    """The stored settings; the engine's defaults where nothing is stored."""
    stored = LabSettings.objects.select_related("changed_by").filter(pk=LabSettings.ONLY).first()
    return stored or LabSettings(pk=LabSettings.ONLY)


@dataclass(frozen=True)
class HeldPrice:
    """The assumed price of one GPU, in USD per hour: the lab's or the catalogue's.

    Attributes:
        gpu: See :class:`~analyses.models.GpuPrice`.
        catalogue_usd: ``None`` for a GPU that the catalogue does not have.
        change: The last change by an admin, if any.
    """

    gpu: str
    display_name: str
    catalogue_usd: float | None
    change: GpuPrice | None

    @property
    def is_the_labs(self) -> bool:
        return self.change is not None and self.change.price_per_hour_usd is not None

    @property
    def usd(self) -> float | None:
        """The lab's price, else the catalogue's; ``None`` where neither is known."""
        own = self.change.price_per_hour_usd if self.change else None
        return self.catalogue_usd if own is None else own

    @property
    def origin(self) -> str:
        """``lab``, ``catalogue``, or empty if there is no price."""
        if self.is_the_labs:
            return "lab"
        return "" if self.catalogue_usd is None else "catalogue"

    @property
    def date(self) -> str:
        """The date it was set or found, such as ``2026-05-07`` or ``2026-05``; empty if unknown."""
        if self.change is not None and self.is_the_labs:
            return f"{self.change.set_at:%Y-%m-%d}"
        return GPUS[self.gpu].price_date if self.gpu in GPUS else ""


def price_of(gpu: str) -> HeldPrice:
    """The price of a GPU, by its name in the catalogue or on a node."""
    name = key_of(gpu)
    return _held(name, changes().filter(gpu=name).first())


def prices(gpus: Iterable[str]) -> dict[str, HeldPrice]:
    """The prices of several GPUs, keyed by :func:`key_of`."""
    names = {key_of(gpu): None for gpu in gpus}
    latest = {change.gpu: change for change in changes().filter(gpu__in=names).order_by("id")}
    return {name: _held(name, latest.get(name)) for name in names}


def changes() -> QuerySet[GpuPrice]:
    return GpuPrice.objects.select_related("set_by")


def key_of(gpu: str) -> str:
    """The catalogue's name of a GPU, given that or its driver's name; else the name itself."""
    return catalogue_name(gpu) or gpu


def kinds_outside_the_catalogue() -> list[str]:
    """GPUs of the lab's nodes, online or not, that are not in the catalogue."""
    kinds = Node.objects.exclude(gpu_name="").values_list("gpu_name", flat=True)
    return sorted(kind for kind in set(kinds) if key_of(kind) not in GPUS)


def _held(name: str, change: GpuPrice | None) -> HeldPrice:
    if name not in GPUS:
        return HeldPrice(name, name, None, change)
    return HeldPrice(name, GPUS[name].display_name, GPUS[name].price_per_hour_usd, change)


def save_settings(
    member: User,
    *,
    hours_per_run: object,
    runs_per_year: object,
    grid_co2e_grams_per_kwh: object,
    sharing_allowed: bool,
) -> LabSettings:
    """Store the lab's settings; the caller has checked that the member is an admin.

    The numbers are untrusted; empty resets them to the engine's. ``hours_per_run`` is in
    GPU-hours.

    Raises:
        InvalidInput: With a message for each wrong field; nothing is stored.
    """
    given = {
        "hours_per_run": hours_per_run,
        "runs_per_year": runs_per_year,
        "grid_co2e_grams_per_kwh": grid_co2e_grams_per_kwh,
    }
    filled = {name: value for name, value in given.items() if value not in (None, "")}
    assumed = Assumptions(**filled)  # type: ignore[arg-type]  # it reads numbers from text
    stored = lab_settings()
    before = _words(stored)
    for name in LAB_DEFAULTS:
        setattr(stored, name, getattr(assumed, name))
    stored.sharing_allowed = sharing_allowed
    stored.changed_by = member
    with transaction.atomic():
        stored.save()
        if before != _words(stored):
            audit.note(
                member, Action.LAB_CHANGED, "lab settings", before=before, after=_words(stored)
            )
    return stored


def set_price(member: User, gpu: str, price: object) -> HeldPrice:
    """Set the lab's price of a GPU; the caller has checked that the member is an admin.

    ``price``, in USD per GPU-hour, is untrusted; empty resets it to the catalogue's.

    Returns:
        The price from now on.

    Raises:
        InvalidInput: With the message of ``price_per_hour_usd``; nothing is stored.
    """
    wanted = None if price in (None, "") else price
    new = Assumptions(price_per_hour_usd=wanted).price_per_hour_usd  # type: ignore[arg-type]  # it checks what it is given
    held = price_of(gpu)
    own = held.change.price_per_hour_usd if held.change else None
    if new == own:
        return held
    with transaction.atomic():
        GpuPrice.objects.create(gpu=held.gpu, price_per_hour_usd=new, set_by=member)
        now_held = price_of(gpu)
        audit.note(
            member, Action.PRICE_SET, f"price of {held.display_name}", before=_price(held),
            after=_price(now_held),
        )  # fmt: skip
    return now_held


def _words(stored: LabSettings) -> str:
    sharing = "allowed" if stored.sharing_allowed else "forbidden"
    return (
        f"{stored.hours_per_run:g} h per run, {stored.runs_per_year:g} runs per year, "
        f"{stored.grid_co2e_grams_per_kwh:g} g CO2e per kWh, "
        f"sharing {sharing}"
    )


def _price(held: HeldPrice) -> str:
    return "none" if held.usd is None else f"{held.usd:g} USD per hour ({held.origin})"


def lab_assumptions(price_per_hour_usd: float | None = None) -> Assumptions:
    """The lab's current assumptions, with this price."""
    lab = lab_settings()
    own = {name: getattr(lab, name) for name in LAB_DEFAULTS}
    return Assumptions(**own, price_per_hour_usd=price_per_hour_usd)


PRICE = "price_per_hour_usd"


@dataclass(frozen=True)
class Settled:
    """A request with all its assumptions filled in.

    Attributes:
        assumed_by: ``lab``, ``catalogue`` or ``default`` for each assumption that the member did
            not set.
    """

    request: AnyRequest
    assumed_by: dict[str, str]


DEFAULT = "default"
"""The origin of a decisive setting that was left out."""


def settle(request: AnyRequest, given: Mapping[str, object], measured_gpu: str = "") -> Settled:
    """Fill in the assumptions that a request leaves out, from the lab's settings as of now.

    They are stored with the request, so an analysis does not change when the settings do.

    Args:
        request: Parsed from ``given``.
        given: Flat fields; empty text and ``None`` count as left out.
        measured_gpu: Empty for a prediction.

    Returns:
        The request with hours, runs, grid and price; that stays ``None`` where none is known. A
        given value that equals the lab's counts as the lab's, since the form proposes it. Of the
        workload, it names the decisive settings that were left to their defaults.
    """
    price = price_of(measured_gpu or request.gpu)
    defaults = asdict(lab_assumptions(price.usd))
    left_out = {name: value for name, value in defaults.items() if given.get(name) in (None, "")}
    assumed = replace(request.assumptions, **left_out)
    origins = dict.fromkeys(LAB_DEFAULTS, "lab") | {PRICE: price.origin}
    return Settled(
        request=replace(request, assumptions=assumed),
        assumed_by={
            name: origins[name]
            for name, value in asdict(assumed).items()
            if origins[name] and value == defaults[name]
        }
        | dict.fromkeys(left_out_of(given, request), DEFAULT),
    )


@dataclass(frozen=True)
class DatedPrice:
    """USD per GPU-hour; ``date`` is empty if unknown, see :attr:`HeldPrice.date`."""

    usd: float
    date: str


def prices_for(request: Mapping[str, Any]) -> dict[str, DatedPrice]:
    """The assumed price of each catalogue GPU: the lab's, else the catalogue's.

    A price in the request replaces that of the request's own GPU.
    """
    held = {
        name: DatedPrice(price.usd, price.date)
        for name, price in prices(GPUS).items()
        if price.usd is not None
    }
    own, gpu = request.get("price_per_hour_usd"), request["gpu"]
    if own is None or (gpu in held and held[gpu].usd == own):
        return held
    return held | {gpu: DatedPrice(float(own), "")}
