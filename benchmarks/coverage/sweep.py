"""Tries every pair of model type and task in a process of its own, and writes what is admitted."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from multiprocessing.connection import Connection
from operator import attrgetter

import torch
import transformers

from engine.models.architectures import ADMITTED, Architecture, read_architectures
from engine.models.kinds import Task

from .admission import Outcome, facts_of, kind_of, pairs, try_pair

LIMIT_SECONDS = 30
_TOO_SLOW = f"a step of a small model takes more than {LIMIT_SECONDS} s of a processor"
_FORK = multiprocessing.get_context("fork")
_USUAL_FIRST = (
    Task.SPEECH_RECOGNITION,
    Task.CONTRASTIVE,
    Task.SEQUENCE_TO_SEQUENCE,
    Task.CAUSAL_LANGUAGE_MODELLING,
    Task.SEQUENCE_CLASSIFICATION,
    Task.TOKEN_CLASSIFICATION,
    Task.MASKED_LANGUAGE_MODELLING,
    Task.IMAGE_CLASSIFICATION,
)
"""Of the tasks of a model, the first of these is its usual one."""


@dataclass(frozen=True)
class Tried:
    """A pair, what came of it, and how long that took."""

    model_type: str
    task: Task
    outcome: Outcome
    seconds: float


def try_apart(model_type: str, task: Task) -> Tried:
    """Try a pair in a process of its own, so that a crash or a hang costs no other."""
    begin = time.monotonic()
    receiver, sender = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_send, args=(sender, model_type, task))
    process.start()
    sender.close()
    try:
        # A busy machine may take long over little work, so the limit is on the processor's time.
        outcome = receiver.recv() if receiver.poll(10 * LIMIT_SECONDS) else None
    except EOFError:
        outcome = None
    process.kill()
    process.join()
    if outcome is None:
        slow = process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL)
        outcome = Outcome(_TOO_SLOW if slow else "its step ends the process")
    return Tried(model_type, task, outcome, time.monotonic() - begin)


def _send(sender: Connection, model_type: str, task: Task) -> None:
    used = int(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (used + LIMIT_SECONDS, used + LIMIT_SECONDS + 1))
    sender.send(try_pair(model_type, task))


def architectures_of(tried: Iterable[Tried]) -> dict[str, Architecture]:
    """The architectures that pairs show, by type of model."""
    found = {}
    for model_type, group in groupby(tried, attrgetter("model_type")):
        by_task = sorted(group, key=lambda pair: _USUAL_FIRST.index(pair.task))
        admitted = [pair for pair in by_task if not pair.outcome.refused]
        found[model_type] = Architecture(
            kind=kind_of(model_type),
            tasks=tuple(pair.task for pair in admitted),
            refused={p.task: p.outcome.refused for p in by_task if p.outcome.refused},
            **(admitted[0].outcome.facts if admitted else {}),
        )
    return found


def as_toml(architectures: Mapping[str, Architecture]) -> str:
    """The contents of ``admitted.toml``."""
    lines = [
        "# Made by `python -m benchmarks.coverage`. Not to be edited.",
        f'transformers = "{transformers.__version__}"',
    ]
    for model_type, architecture in sorted(architectures.items()):
        lines += ["", f'[models."{model_type}"]', f"kind = {json.dumps(architecture.kind)}"]
        if architecture.tasks:
            lines.append(f"tasks = {json.dumps(architecture.tasks)}")
        lines += [f"{name} = {json.dumps(value)}" for name, value in facts_of(architecture).items()]
        if architecture.refused:
            lines.append(f'[models."{model_type}".refused]')
            lines += [f"{task} = {json.dumps(why)}" for task, why in architecture.refused.items()]
    return "\n".join(lines) + "\n"


def summary(tried: Iterable[Tried]) -> str:
    """How many pairs are admitted, by task, and why others are not."""
    tried = list(tried)
    lines = [f"{'task':32}{'pairs':>8}{'admitted':>10}{'same trace':>12}{'seconds':>9}"]
    groups = {task: [pair for pair in tried if pair.task is task] for task in Task}
    groups["all"] = tried  # type: ignore[index]  # as the last row
    for name, group in groups.items():
        admitted = [pair for pair in group if not pair.outcome.refused]
        same = sum(pair.outcome.same_trace for pair in admitted)
        seconds = sum(pair.seconds for pair in group)
        lines.append(f"{name:32}{len(group):8}{len(admitted):10}{same:12}{seconds:9.0f}")
    types = {pair.model_type for pair in tried}
    admitted_types = {pair.model_type for pair in tried if not pair.outcome.refused}
    lines += ["", f"{len(admitted_types)} of {len(types)} types admitted for some task", ""]
    reasons = Counter(pair.outcome.refused for pair in tried if pair.outcome.refused)
    lines += [f"{count:6}  {reason}" for reason, count in reasons.most_common()]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("types", metavar="TYPE", nargs="*", help="model types; by default all")
    parser.add_argument("--dry-run", action="store_true", help="leave the file of admitted as is")
    options = parser.parse_args()
    torch.set_num_threads(1)
    try_pair("bert", Task.SEQUENCE_CLASSIFICATION)  # loads modules once, for all forks
    tried = []
    for model_type, task in pairs():
        if not options.types or model_type in options.types:
            tried.append(try_apart(model_type, task))
            said = tried[-1].outcome.refused or "admitted"
            print(f"{model_type:32}{task:28}{tried[-1].seconds:6.1f} s  {said}", flush=True)  # noqa: T201
    print(f"\n{summary(tried)}")  # noqa: T201
    if not options.dry_run:
        kept = read_architectures() if options.types else {}
        ADMITTED.write_text(as_toml(kept | architectures_of(tried)))
    return 0
