"""Estimators that install from the package index, run on published training runs.

Each runs in an environment of its own in ``var/accuracy``, without a network. It estimates
every run that its arguments can describe: its optimizer, its precision, what the model reads. Their
figures are for what the allocator holds, so a published one is taken without the context.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.errors import Errors
from engine.core.errors import EngineError
from engine.versions.environments import Environment, make, offered
from engine.versions.software import as_text

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "var" / "accuracy"

TORCHVISION = "0.28.0"
"""Has the networks of xMem's runs; the release is the one for our torch."""


@dataclass(frozen=True)
class Question:
    """A published training run, as far as it can be described to an estimator.

    Attributes:
        name: Name of the run.
        model: How to build it: one field of ``workload`` (those of a workload), ``script`` (a name
            in ``xmem_train.py``) or ``module`` (``module:class``).
        batch_size: Samples per step.
        optimizer: Such as ``adamw``, in lower case; ``none`` for no optimizer.
        precision: The precision, as a workload has it.
        sequence_length: Tokens per sample, for a model of text.
        image_size: Pixels per side, for a model of images.
        checkpointing: Whether activations are recomputed.
        total_bytes: Memory of the GPU beside the context.
        measured_bytes: Memory of the run, besides the context; the amount reached, if it went out
            of memory; ``None`` where only that is published.
        left_out_bytes: The part that an estimate counts and the measurement does not.
        ran: Whether it did not go out of memory.
        ours_bytes: Our prediction for it.
    """

    name: str
    model: Mapping[str, Any]
    batch_size: int
    optimizer: str
    precision: str
    sequence_length: int | None
    image_size: int | None
    checkpointing: bool
    total_bytes: int
    measured_bytes: int | None
    left_out_bytes: int
    ran: bool
    ours_bytes: int


@dataclass(frozen=True)
class Tool:
    """An estimator, and the settings it takes.

    Attributes:
        package: Its name in the package index.
        version: The release used.
        optimizers: The optimizers it has a figure for.
        precisions: The precisions it has a figure for.
        images: Whether it takes models of images.
        checkpointing: Whether it takes the recomputation of activations as a setting.
        note: How it was run.
    """

    package: str
    version: str
    optimizers: frozenset[str]
    precisions: frozenset[str]
    images: bool
    checkpointing: bool
    note: str

    def takes(self, question: Question) -> bool:
        """Whether its arguments can describe the run."""
        return (
            question.optimizer in self.optimizers
            and question.precision in self.precisions
            and (self.images or question.image_size is None)
            and (self.checkpointing or not question.checkpointing)
        )


TOOLS = (
    Tool(
        "torch-kitsune", "0.7.0",
        frozenset({"adam", "adamw", "sgd", "sgd-momentum", "adagrad", "rmsprop", "none"}),
        frozenset({"fp32", "bf16-true"}), images=True, checkpointing=False,
        note="`predict_memory` with the model on the meta device",
    ),
    Tool(
        "gpu-estimator", "0.2.0", frozenset({"adam", "adamw", "sgd"}),
        frozenset({"fp32", "fp16-mixed", "bf16-mixed"}), images=False, checkpointing=True,
        note="`estimate` with the number of parameters; text only",
    ),
    Tool(
        "accelerate", "1.15.0", frozenset({"adam", "adamw"}),
        frozenset({"fp32", "fp16-mixed"}), images=True, checkpointing=False,
        note="the command reads models from the Hub only, so its functions were given ours; it "
        "takes no batch size",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Answers:
    """The answers of an estimator about the runs it was given.

    Attributes:
        version: Version of the package.
        note: How it was run.
        errors: Errors of its figures for the runs that fitted.
        ours: Errors of ours for the same runs.
        ran_out: Runs that went out of memory.
        false_safe: Number of them that it expects to fit.
        ran: Runs that did not.
        false_alarm: Number of those that it expects not to fit.
    """

    package: str
    version: str
    note: str
    errors: Errors
    ours: Errors
    ran_out: int
    false_safe: int
    ran: int
    false_alarm: int


def answers(tool: Tool, said: Sequence[tuple[Question, int]]) -> Answers:
    """Sum up what a tool said, in bytes."""
    fits = [(question.ran, figure <= question.total_bytes) for question, figure in said]
    ran = [(question, figure) for question, figure in said if question.ran]
    taken = [(one, figure, one.measured_bytes) for one, figure in ran if one.measured_bytes]
    return Answers(
        package=tool.package,
        version=tool.version,
        note=tool.note,
        errors=Errors.of(
            (figure - question.left_out_bytes) / measured - 1
            for question, figure, measured in taken
        ),
        ours=Errors.of(question.ours_bytes / measured - 1 for question, _, measured in taken),
        ran_out=sum(not ran for ran, _ in fits),
        false_safe=sum(fit and not ran for ran, fit in fits),
        ran=len(ran),
        false_alarm=sum(ran and not fit for ran, fit in fits),
    )


def ask_all(questions: Sequence[Question], say: Callable[[str], object]) -> list[Answers]:
    """Run every tool, each in its environment, which is created unless it exists.

    Raises:
        EngineError: If an environment cannot be made, or a tool fails.
    """
    return [_ask(tool, questions, say) for tool in TOOLS]


def environment_with(wanted: Mapping[str, str], say: Callable[[str], object]) -> Environment:
    """The environment in ``var/accuracy`` with these versions, which is made unless it was before.

    Raises:
        EngineError: If it cannot be made.
    """
    name = as_text(wanted)
    known = {environment.name: environment for environment in offered(FOLDER)}
    if name not in known:
        say(f"Making {FOLDER / name}")
        return make(FOLDER, wanted)
    return known[name]


def _ask(tool: Tool, questions: Sequence[Question], say: Callable[[str], object]) -> Answers:
    wanted = {tool.package: tool.version, "torchvision": TORCHVISION}
    environment = environment_with(wanted, say)
    asked = [question for question in questions if tool.takes(question)]
    say(f"Asking {tool.package} {tool.version} about {len(asked)} of {len(questions)} runs")
    command = [os.fspath(environment.python), "-m", "benchmarks.estimators_asked", tool.package]
    done = subprocess.run(
        command,
        cwd=ROOT,
        input=json.dumps([asdict(question) for question in asked]),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    if done.returncode:
        raise EngineError(f"{tool.package}: it ended with status {done.returncode}")
    return answers(tool, list(zip(asked, json.loads(done.stdout), strict=True)))


HEADINGS = (
    "estimator", "runs", "median error", "worst", "ours, of the same runs", "false safe",
    "false alarm",
)  # fmt: skip


def cells(found: Mapping[str, Any]) -> list[str]:
    """A row of the table: one tool's answers, as JSON has them."""
    errors, ours = found["errors"], found["ours"]
    return [
        f"{found['package']} {found['version']}: {found['note']}",
        str(found["ran"] + found["ran_out"]),
        *(_share(share) for share in (errors["median"], errors["worst"], ours["median"])),
        f"{found['false_safe']} of {found['ran_out']}",
        f"{found['false_alarm']} of {found['ran']}",
    ]


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def render(found: Sequence[Answers]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == HEADINGS[0] else "right")
    for one in found:
        table.add_row(*cells(asdict(one)))
    return table
