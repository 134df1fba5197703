"""The self-check: measures one kind after another, within a time limit.

This process loads no torch. What fails, or would take longer than is left, is reported as a problem
with what to do about it; everything else is kept.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ..core.border import read_json
from ..events import Emit, Log, Stage
from ..gpus.checked import (
    MEMORY,
    SECONDS,
    STEP,
    Comparison,
    Device,
    FixedCost,
    Identity,
    Problem,
    Rates,
    SelfCheck,
)
from ..measurement.parent import CHILD as TRIAL
from ..measurement.parent import OutOfTime, run_together
from ..measurement.protocol import GAVE_UP, TrialOrder, order_line
from ..measurement.trial_process import Ended, libraries
from .advice import OUT_OF_MEMORY, advice_on
from .workloads import LAUNCH_BOUND, Checked, workloads_for

_SHARES = {"device": 0.4, "launches": 0.2, "rates": 0.25, "trial": 0.25, "predictions": 0.5}
"""Largest share of the time for one measurement, so that one that hangs leaves some for others."""

_RESERVED = 0.2
"""Share of the time that trials leave for the predictions, without which they show nothing."""

_CHILD = [sys.executable, "-m", f"{__package__}.child"]

Found = Mapping[str, Any]


class _Failed(Exception):
    """One measurement failed; the message is the reason in one line."""


def self_check(
    emit: Emit, seconds: float = SECONDS, workloads: Sequence[Checked] | None = None
) -> SelfCheck:
    """Check this machine: what its predictions rest on, and how far they are right.

    Args:
        emit: Receives what is being measured.
        seconds: Time limit of the whole check.
        workloads: Workloads to measure beside their predictions; by default four that suit the
            device.
    """
    return _Run(emit, seconds, workloads).check()


class _Run:
    """One self-check: what was found so far, and the time that is left."""

    def __init__(self, emit: Emit, seconds: float, workloads: Sequence[Checked] | None) -> None:
        self._emit = emit
        self._begun = time.monotonic()
        self._seconds = seconds
        self._workloads = workloads
        self._problems: list[Problem] = []
        self._found = SelfCheck(
            when=datetime.now(UTC).isoformat(timespec="seconds"),
            identity=Identity.here(),
            seconds=0.0,
        )

    @libraries.kept()
    def check(self) -> SelfCheck:
        self._emit(Stage("search"))
        if (device := self._device()) is not None:
            self._launches(device)
            if device.kind == "cuda":
                self._rates()
            self._compare(device)
        return replace(
            self._found,
            seconds=time.monotonic() - self._begun,
            problems=tuple(self._problems),
        )

    def _device(self) -> Device | None:
        found = self._ask("device", {}, "the device")
        if found is None:
            return None
        device = read_json(Device, found["device"])
        costs = tuple(read_json(FixedCost, cost) for cost in found["fixed_costs"])
        self._found = replace(self._found, device=device, fixed_costs=costs)
        seen = self._found.identity.gpu
        if seen and device.kind != "cuda":
            reason = f"the driver has an {seen}, and PyTorch sees no GPU"
            self._note("PyTorch on the GPU", reason)
        return device

    def _launches(self, device: Device) -> None:
        found = self._ask("launches", {"kind": device.kind}, "the launch time of an operation")
        if found is not None:
            self._found = replace(self._found, launch_seconds=found["seconds"])

    def _rates(self) -> None:
        found = self._ask("rates", {"kind": "cuda"}, "bandwidth and matrix products")
        if found is not None:
            self._found = replace(self._found, rates=read_json(Rates, found))

    def _compare(self, device: Device) -> None:
        """Measure the small workloads, predict them, and keep both numbers of each."""
        workloads = self._workloads or workloads_for(device.kind)
        launching = self._trial(LAUNCH_BOUND) if device.kind == "cuda" else None
        trials = {one.name: self._trial(one) for one in workloads}
        measured = {name: trial for name, trial in trials.items() if trial is not None}
        order = {
            "check": self._found.to_dict(),
            "launch_bound": None if launching is None else _asked(LAUNCH_BOUND),
            "step_seconds": None if launching is None else launching["step_seconds"],
            "asked": {one.name: _asked(one) for one in workloads},
        }
        found = self._ask("predictions", order, "predictions")
        if found is None:
            return
        predicted: Mapping[str, Found] = found["predicted"]
        for reason in dict.fromkeys(one["problem"] for one in predicted.values()):
            if reason:
                names = [name for name, one in predicted.items() if one["problem"] == reason]
                self._note(f"the prediction of {', '.join(names)}", reason)
        compared = [
            comparison
            for one in workloads
            if one.name in measured
            for comparison in comparisons(one, measured[one.name], predicted[one.name]["numbers"])
        ]
        self._found = replace(
            self._found,
            comparisons=tuple(compared),
            step_launch_seconds=found["step_launch_seconds"],
            step_predictor=found["step_predictor"],
        )

    def _trial(self, one: Checked) -> Found | None:
        """The fields of a trial of the workload, which fits; ``None`` if it did not run."""
        self._emit(Log(f"Measuring {one.name}"))
        order = TrialOrder(one.workload, one.batch_size).to_json()
        what = f"a training step of {one.name}"
        found = self._run(TRIAL, order_line("trial", order), "trial", what)
        if found is not None and not found["fits"]:
            self._note(what, f"{OUT_OF_MEMORY}: {found['failure']}")
            return None
        return found

    def _ask(self, kind: str, order: Found, what: str) -> Found | None:
        self._emit(Log(f"Measuring {what}"))
        return self._run([*_CHILD, kind], json.dumps(order), kind, what)

    def _run(self, command: list[str], order: str, share: str, what: str) -> Found | None:
        """The answer of a process; ``None`` if it failed, which is noted as a problem."""
        reserved = _RESERVED * self._seconds if share == "trial" else 0.0
        over = self._begun + self._seconds - reserved
        left = min(_SHARES[share] * self._seconds, over - time.monotonic())
        if left <= 0:
            self._note(
                what, f"not measured, since the {self._seconds:.0f} s of the check were over"
            )
            return None
        try:
            return _answer(run_together(command, [order], os.environ, left)[0])
        except OutOfTime:
            self._note(what, f"not measured, since it took longer than {left:.0f} s")
        except _Failed as error:
            self._note(what, str(error))
        return None

    def _note(self, what: str, reason: str) -> None:
        problem = Problem(what, reason, advice_on(reason))
        self._emit(Log(f"{what}: {reason}", "warning"))
        self._problems.append(problem)


def _answer(end: Ended) -> Found:
    if end.status < 0:
        raise _Failed(f"the process was killed by signal {-end.status}")
    if end.status not in (0, GAVE_UP) or not end.answer:
        raise _Failed(end.last_words or "the process ended without a message")
    found: Found = json.loads(end.answer)
    return found


def _asked(one: Checked) -> dict[str, Any]:
    return {"fields": dict(one.fields), "batch_size": one.batch_size}


def comparisons(one: Checked, measured: Found, predicted: Mapping[str, float]) -> list[Comparison]:
    """The values of a workload that were both measured and predicted.

    Args:
        one: The workload.
        measured: The fields of its trial. On a CPU its peak is that of live tensors.
        predicted: The predictions, by what they count.
    """
    known = {**measured, "live_bytes": measured["peak_allocated_bytes"]}
    return [
        Comparison(
            workload=one.name,
            fields=dict(one.fields),
            batch_size=measured["batch_size"],
            counted=counted,
            measured=float(known[counted]),
            predicted=predicted[counted],
        )
        for counted in (*MEMORY, STEP)
        if known[counted] and predicted.get(counted)
    ]
