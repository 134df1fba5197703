"""The table of memory that we measured ourselves, on an H100."""

from __future__ import annotations

from typing import Any

from benchmarks.results.cells import Read, percent, table
from engine.prediction.timing.intervals import Counted

_NAMES = {
    Counted.PEAK_ALLOCATED: "peak allocated",
    Counted.PEAK_RESERVED: "peak reserved",
    Counted.DEVICE_USED: "device memory used",
}


_OF_TIME = {
    "own steps": "step time, the model not fitted",
    "own speedups": "speedup between two batches, the model not fitted",
}


def h100(read: Read) -> str:
    """Errors, intervals and limits, with the day and the versions of the measurement."""
    found = read("h100").figures
    rows = [_row(name, found["errors"][counted]) for counted, name in _NAMES.items()]
    of_time = read("step_time").figures["summary"]
    rows += [_row(name, of_time[key]) for key, name in _OF_TIME.items()]
    headings = ["predicted vs. measured", "trials", "median error", "95th percentile", "worst"]
    versions = ", ".join(
        f"{name} {found['versions'][key]}"
        for name, key in (("PyTorch", "torch"), ("transformers", "transformers"))
    )
    held = found["interval"]
    said = (
        f"Measured on {found['measured_on']} on one {found['device']}: {versions}. Of "
        f"{held['measured']} measurements of the device memory used, {held['within']} lie in the "
        f"interval that predictions give, and {held['above']} above it. {_limits(found['limits'])} "
        "For step times the launch time of the machine's CPU is known, as after a self-check."
    )
    return f"{table(headings, rows)}\n\n{said}"


def _row(name: str, errors: dict[str, Any]) -> list[str]:
    shares = [percent(errors[figure]) for figure in ("median", "percentile_95", "worst")]
    return [name, str(errors["compared"]), *shares]


def _limits(limits: list[dict[str, Any]]) -> str:
    known = [one for one in limits if one["predicted"] is not None]
    pairs = ", ".join(f"{one['certified']:,} ({one['predicted']:,})" for one in known)
    unsafe = sum(one["predicted"] > one["certified"] for one in known)
    return (
        f"Of {len(known)} largest batches certified there within 24 GiB, {unsafe} are predicted "
        f"too large: {pairs}, predicted in brackets."
    )
