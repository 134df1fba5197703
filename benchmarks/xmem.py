"""Training runs that others measured, predicted beside what other estimators said of them.

The runs are those of xMem's evaluation (``benchmarks/data/README.md`` says what they count). Each
is traced as a script, ``xmem_train.py``, with the software of that time in an environment of its
own, which is made in ``var/accuracy``.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.errors import Errors
from benchmarks.estimators import ROOT, TORCHVISION, Question, environment_with
from engine.core.errors import EngineError
from engine.versions import software

RUNS = Path(__file__).with_name("data") / "xmem.csv"

SOFTWARE = {"transformers": "4.51.3", "torchvision": TORCHVISION}
"""Software of their time, as far as known: of the releases of transformers from 4.48 on only this
one fits. torchvision's networks have not changed since; the release is the one for our torch."""

OURS = "MemoryMark"
OURS_WHOLE = "MemoryMark, models of CNNs counted"
OTHERS = {"xMem": "xmem", "DNNMem": "dnnmem", "SchedTune": "schedtune", "LLMem": "llmem"}
"""The other estimators, by the name of their columns."""

MIN_LINES = 16
"""A run takes four batches of lines of unknown lengths. From this many lines on, one of them is
taken to be as long as the longest can be; runs with fewer are set aside."""
_STEPS = 4

MAX_LENGTH, PIXELS = 128, 86
"""Tokens in the longest lines, and pixels per side of the images."""


class Kind(StrEnum):
    """The kind of model a run trains; the values are those of the file."""

    NETWORK = "cnn"
    TRANSFORMER = "transformer"


@dataclass(frozen=True)
class Place:
    """A GPU of these runs, where the catalogue's is another or none.

    Attributes:
        compute_capability: Such as 8.6.
        context_bytes: Held beside what the allocator reserves.
    """

    compute_capability: float
    context_bytes: int


PLACES = {
    "NVIDIA GeForce RTX 3060": Place(8.6, 92_274_688),
    "NVIDIA GeForce RTX 4060": Place(8.9, 98_566_144),
}
"""Contexts of the RTX 3090 and 4090 in the catalogue, scaled by multiprocessors (28 of 82, 24 of
128). The runs themselves leave room for 243 and 141 MiB at most, beyond what one of them reached
before it went out of memory; no verdict differs with these."""


@dataclass(frozen=True)
class Estimate:
    """An estimate of a run.

    Attributes:
        figure_bytes: Estimated bytes, counted as measured; ``None`` if it gives no figure.
        fits: Whether it expects the run to fit.
    """

    figure_bytes: int | None
    fits: bool


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
        zero_grad: Where gradients are dropped, as ``xmem_train.py`` takes it; not recorded for
            most, which agree with 0.
        measured_bytes: NVML's largest figure less its first; what the run had reached, if it went
            out of memory.
        ran: Whether it did not.
        others: The other estimators' estimates; none for those that do not take such models.
    """

    gpu: str
    total_bytes: int
    model: str
    kind: Kind
    zero_grad: int
    batch_size: int
    optimizer: str
    measured_bytes: int
    ran: bool
    others: Mapping[str, Estimate]

    @property
    def name(self) -> str:
        dropped = f" z{self.zero_grad}" if self.zero_grad else ""
        return f"{self.model.rpartition('/')[2]} {self.optimizer} b{self.batch_size}{dropped}"

    @property
    def length_known(self) -> bool:
        """Whether its inputs are as large as those that are traced."""
        return self.kind is Kind.NETWORK or self.batch_size * _STEPS >= MIN_LINES

    @property
    def series(self) -> tuple[str, str, str, int]:
        """The properties shared by runs that differ in nothing but the batch size."""
        return self.gpu, self.model, self.optimizer, self.zero_grad


@dataclass(frozen=True)
class Prediction:
    """The prediction for a run.

    Attributes:
        fits: Whether it is expected to fit.
        reserved_bytes: Peak reserved.
        low_bytes, high_bytes: The interval of that.
        model_bytes: Memory reserved as soon as the model is on the GPU.
    """

    fits: bool
    reserved_bytes: int
    low_bytes: int
    high_bytes: int
    model_bytes: int

    def as_measured(self, run: Run) -> tuple[int, int, int]:
        """The figure, low and high, less what the first record of the measurement holds already.

        Of networks it holds the model too, since monitoring starts just before it is moved.
        """
        held = self.model_bytes if run.kind is Kind.NETWORK else 0
        return self.reserved_bytes - held, self.low_bytes - held, self.high_bytes - held


@dataclass(frozen=True)
class Comparison:
    """A run, its prediction, and why there is none."""

    run: Run
    prediction: Prediction | None = None
    failure: str = ""

    def estimates(self) -> dict[str, Estimate]:
        """The estimate of each estimator for the run, ours first."""
        if self.prediction is None:
            return dict(self.run.others)
        fits = self.prediction.fits
        ours = Estimate(self.prediction.as_measured(self.run)[0], fits)
        whole = Estimate(self.prediction.reserved_bytes, fits)
        return {OURS: ours, OURS_WHOLE: whole, **self.run.others}

    @property
    def within_interval(self) -> bool:
        """Whether the run was measured within the predicted interval."""
        if self.prediction is None:
            return False
        _, low, high = self.prediction.as_measured(self.run)
        return low <= self.run.measured_bytes <= high


@dataclass(frozen=True)
class Score:
    """The score of an estimator.

    Attributes:
        name: Name of the estimator.
        every, networks, transformers: Errors of the runs that fitted.
        growth: Errors of the growth from one batch size to the next larger one, of runs alike
            otherwise, as shares of the growth that was measured.
        ran_out: Runs that went out of memory, of those it was given.
        false_safe: Number of them that it expected to fit.
        ran: Runs that did not.
        false_alarm: Number of those that it expected not to fit.
    """

    name: str
    every: Errors
    networks: Errors
    transformers: Errors
    growth: Errors
    ran_out: int
    false_safe: int
    ran: int
    false_alarm: int


def read_runs(text: str) -> list[Run]:
    """Read runs in the form of ``data/xmem.csv``, without those that are set aside."""
    runs = [_run(row) for row in csv.DictReader(text.splitlines())]
    return [run for run in runs if run.length_known]


def _run(row: Mapping[str, str]) -> Run:
    others = {
        name: Estimate(int(row[f"{key}_estimate"] or 0) or None, row[f"{key}_oom"] == "0")
        for name, key in OTHERS.items()
        if row[f"{key}_oom"]
    }
    return Run(
        gpu=row["gpu"],
        total_bytes=int(row["gpu_total_bytes"]),
        model=row["model"],
        kind=Kind(row["kind"]),
        zero_grad=int(row["zero_grad_pos"] or 0),
        batch_size=int(row["batch"]),
        optimizer=row["optimizer"],
        measured_bytes=int(row["measured_bytes"]),
        ran=row["oom"] == "0",
        others=others,
    )


def score(name: str, comparisons: Sequence[Comparison]) -> Score:
    """Score an estimator on the runs that it was given."""
    asked = [(one.run, one.estimates()[name]) for one in comparisons if name in one.estimates()]
    ran_out = [estimate.fits for run, estimate in asked if not run.ran]
    ran = [estimate.fits for run, estimate in asked if run.ran]
    counted = [
        (run, estimate.figure_bytes)
        for run, estimate in asked
        if run.ran and estimate.figure_bytes is not None
    ]
    return Score(
        name=name,
        every=_errors(counted),
        networks=_errors((run, said) for run, said in counted if run.kind is Kind.NETWORK),
        transformers=_errors((run, said) for run, said in counted if run.kind is Kind.TRANSFORMER),
        growth=Errors.of(_growth_errors(counted)),
        ran_out=len(ran_out),
        false_safe=sum(ran_out),
        ran=len(ran),
        false_alarm=len(ran) - sum(ran),
    )


def _errors(counted: Iterable[tuple[Run, int]]) -> Errors:
    return Errors.of(said / run.measured_bytes - 1 for run, said in counted)


def _growth_errors(counted: Iterable[tuple[Run, int]]) -> Iterator[float]:
    """By how much the growth from each batch size to the next larger one is misjudged.

    They are shares of the growth that was measured, not of the memory of either run: where 1.00 GiB
    was measured for the smaller batch and 2.00 GiB for the larger, 15 MiB are 1.5%.
    """
    in_order = sorted(counted, key=lambda one: (one[0].series, one[0].batch_size))
    for _, series in groupby(in_order, key=lambda one: one[0].series):
        for (small, said_of_small), (large, said) in pairwise(series):
            grown = large.measured_bytes - small.measured_bytes
            if large.batch_size > small.batch_size:
                yield (said - said_of_small) / grown - 1


def scores(comparisons: Sequence[Comparison]) -> list[Score]:
    """The scores of every estimator, ours first."""
    return [score(name, comparisons) for name in (OURS, OURS_WHOLE, *OTHERS)]


def compare(runs: Sequence[Run], say: Callable[[str], object]) -> list[Comparison]:
    """Predict runs in the environment of their time, which is made unless it was before.

    Args:
        runs: Runs to predict.
        say: Receives a sentence where this takes long.

    Raises:
        EngineError: If the environment cannot be made, or the predictions end early.
    """
    environment = environment_with(SOFTWARE, say)
    say(f"Tracing {len(runs)} training runs of xMem's evaluation with "
        f"{software.format_versions(environment.versions)}")  # fmt: skip
    command = [os.fspath(environment.python), "-m", "benchmarks.xmem_tracing"]
    asked = json.dumps([asdict(run) for run in runs])
    done = subprocess.run(
        command, cwd=ROOT, input=asked, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise EngineError(f"{environment.name}: tracing ended with status {done.returncode}")
    return [
        Comparison(run, Prediction(**found["prediction"]) if "prediction" in found else None,
                   found.get("failure", ""))
        for run, found in zip(runs, json.loads(done.stdout), strict=True)
    ]  # fmt: skip


def question(comparison: Comparison) -> Question | None:
    """The question for other estimators about a run; ``None`` if we predict nothing for it."""
    run, prediction = comparison.run, comparison.prediction
    if prediction is None:
        return None
    network = run.kind is Kind.NETWORK
    return Question(
        name=run.name,
        model={"script": run.model},
        batch_size=run.batch_size,
        optimizer=run.optimizer.lower(),
        precision="fp32",
        sequence_length=None if network else MAX_LENGTH,
        image_size=PIXELS if network else None,
        checkpointing=False,
        total_bytes=run.total_bytes - PLACES[run.gpu].context_bytes,
        measured_bytes=run.measured_bytes,
        left_out_bytes=prediction.model_bytes if network else 0,
        ran=run.ran,
        ours_bytes=prediction.as_measured(run)[0],
    )


def render(comparisons: Sequence[Comparison]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == HEADINGS[0] else "right")
    for one in scores(comparisons):
        table.add_row(*cells(asdict(one)))
    return table


HEADINGS = (
    "median error of", "all", "CNNs", "transformers", "growth", "false safe", "false alarm",
)  # fmt: skip


def cells(found: Mapping[str, Any]) -> list[str]:
    """A row of the table: one estimator's score, as JSON has it."""
    shares = (found[part]["median"] for part in ("every", "networks", "transformers", "growth"))
    return [
        found["name"],
        *("-" if share is None else f"{share:.1%}" for share in shares),
        f"{found['false_safe']} of {found['ran_out']}",
        f"{found['false_alarm']} of {found['ran']}",
    ]


def to_dict(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """The published numbers, as JSON."""
    ran = [one for one in comparisons if one.run.ran]
    return {
        "software": SOFTWARE,
        "runs": len(comparisons),
        "fitted": len(ran),
        "within_interval": sum(one.within_interval for one in ran),
        "scores": [asdict(one) for one in scores(comparisons)],
        "comparisons": [_row(one) for one in comparisons],
    }


def _row(one: Comparison) -> dict[str, Any]:
    run = one.run
    figure, low, high = one.prediction.as_measured(run) if one.prediction else (None, None, None)
    return {
        "name": run.name,
        "gpu": run.gpu,
        "measured_bytes": run.measured_bytes,
        "ran": run.ran,
        "predicted_bytes": figure,
        "low_bytes": low,
        "high_bytes": high,
        "fits": one.prediction.fits if one.prediction else None,
        "failure": one.failure,
    }
