"""Every write to what holds for the whole lab; the caller has checked that the member may."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction

from analyses.lab.selectors import HeldPrice, lab_settings, price_of
from analyses.models import GpuPrice, LabSettings
from engine.request import Assumptions
from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action


def save_settings(
    member: User, *, hours_per_run: object, runs_per_year: object, sharing_allowed: bool
) -> LabSettings:
    """Set the lab's defaults; an empty number goes back to the engine's.

    Args:
        member: Who sets them.
        hours_per_run: GPU-hours of one training run; untrusted.
        runs_per_year: Untrusted.
        sharing_allowed: Whether members may show analyses to people outside the lab.

    Raises:
        InvalidInput: With a message for each wrong field; nothing is stored.
    """
    given = {"hours_per_run": hours_per_run, "runs_per_year": runs_per_year}
    filled = {name: value for name, value in given.items() if value not in (None, "")}
    assumed = Assumptions(**filled)  # type: ignore[arg-type]  # it reads numbers from text
    stored = lab_settings()
    before = _words(stored)
    stored.hours_per_run = assumed.hours_per_run
    stored.runs_per_year = assumed.runs_per_year
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
    """Set what a GPU costs the lab, unless it costs that already.

    Args:
        member: Who sets it.
        gpu: A name that :func:`~analyses.lab.selectors.price_of` knows.
        price: USD per hour of one GPU; untrusted. Empty goes back to the catalogue's.

    Returns:
        What holds now.

    Raises:
        InvalidInput: With the message of ``price_per_hour_usd``; nothing is stored.
    """
    wanted = None if price in (None, "") else price
    new = Assumptions(price_per_hour_usd=wanted).price_per_hour_usd  # type: ignore[arg-type]  # it judges what it is given
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
        f"sharing {sharing}"
    )


def _price(held: HeldPrice) -> str:
    """Such as ``1.5 USD per hour (lab)``."""
    return "none" if held.usd is None else f"{held.usd:g} USD per hour ({held.origin})"
