"""Tries every pair of model type and task in a process of its own, and writes what is admitted."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from multiprocessing.connection import Connection
from operator import attrgetter
from typing import Any

import torch
import transformers

from engine.models.architectures import ADMITTED, Architecture, read_architectures
from engine.models.tasks import Task

from .admission import Outcome, facts_of, pairs, try_pair

LIMIT_SECONDS = 60
_TOO_SLOW = f"a step of a small model takes more than {LIMIT_SECONDS} s of a processor"
_FORK = multiprocessing.get_context("fork")


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
    outcome = None
    try:
        # A busy machine may take long over little work, so the limit is on the processor's time.
        if receiver.poll(10 * LIMIT_SECONDS):
            outcome = receiver.recv()
        process.kill()
    except EOFError:
        pass  # it has ended; how, its exit status tells
    process.join()
    if outcome is None:
        slow = process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL)
        outcome = Outcome(_TOO_SLOW if slow else "its step ends the process")
    return Tried(model_type, task, outcome, time.monotonic() - begin)


def _send(sender: Connection, model_type: str, task: Task) -> None:
    torch.set_num_threads(1)  # threads of its own do not survive a fork
    used = int(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (used + LIMIT_SECONDS, used + LIMIT_SECONDS + 1))
    sender.send(try_pair(model_type, task))


def architectures_of(
    tried: Iterable[Tried], kept: Mapping[str, Architecture] | None = None
) -> dict[str, Architecture]:
    """The architectures that pairs show, by type of model.

    Args:
        tried: The pairs, by type.
        kept: Earlier outcomes of pairs that were not tried.
    """
    found = dict(kept or {})
    for model_type, group in groupby(tried, attrgetter("model_type")):
        known = found.get(model_type, Architecture())
        outcomes = {pair.task: pair.outcome for pair in group}
        admitted = [task for task, outcome in outcomes.items() if not outcome.refused]
        refused = {task: outcome.refused for task, outcome in outcomes.items() if outcome.refused}
        facts: dict[str, Any] = {}
        for task in admitted:
            facts = outcomes[task].facts | facts
        found[model_type] = replace(
            known,
            tasks=_usual_first({*known.tasks, *admitted} - refused.keys()),
            refused=_without(known.refused, admitted) | refused,
            **facts,
        )
    return found


def _usual_first(tasks: Set[Task]) -> tuple[Task, ...]:
    """The tasks of a model, its usual one first: encoders are rarely trained as decoders."""
    order = [task for task in Task if task in tasks]
    decoding = Task.CAUSAL_LANGUAGE_MODELLING
    if Task.MASKED_LANGUAGE_MODELLING in tasks and decoding in tasks:
        order.remove(decoding)
        order.append(decoding)
    return tuple(order)


def _without(refused: Mapping[Task, str], tasks: Collection[Task]) -> dict[Task, str]:
    return {task: reason for task, reason in refused.items() if task not in tasks}


def as_toml(architectures: Mapping[str, Architecture]) -> str:
    """The contents of ``admitted.toml``."""
    lines = [
        "# Made by `python -m benchmarks.coverage`. Not to be edited.",
        f'transformers = "{transformers.__version__}"',
    ]
    for model_type, architecture in sorted(architectures.items()):
        lines += ["", f'[models."{model_type}"]']
        if architecture.tasks:
            lines.append(f"tasks = {json.dumps(architecture.tasks)}")
        lines += [f"{name} = {json.dumps(value)}" for name, value in facts_of(architecture).items()]
        if architecture.refused:
            lines.append(f'[models."{model_type}".refused]')
            lines += [f"{task} = {json.dumps(why)}" for task, why in architecture.refused.items()]
    return "\n".join(lines) + "\n"


def summary(tried: Iterable[Tried]) -> str:
    """The number of admitted pairs, by task, and the reasons why others are not."""
    tried = list(tried)
    lines = [f"{'task':32}{'pairs':>8}{'admitted':>10}{'same trace':>12}{'seconds':>9}"]
    groups = {str(task): [pair for pair in tried if pair.task is task] for task in Task}
    groups["all"] = tried
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
    parser.add_argument("--task", type=Task, choices=list(Task), action="append", help="only this")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="at a time")
    parser.add_argument("--dry-run", action="store_true", help="leave the file of admitted as is")
    options = parser.parse_args()
    chosen = [
        (model_type, task)
        for model_type, task in pairs()
        if model_type in (options.types or [model_type]) and task in (options.task or [task])
    ]
    torch.set_num_threads(1)
    try_pair("bert", Task.SEQUENCE_CLASSIFICATION)  # loads modules once, for all forks
    tried = []
    with ThreadPoolExecutor(options.processes) as pool:
        for pair in pool.map(lambda pair: try_apart(*pair), chosen):
            tried.append(pair)
            said = pair.outcome.refused or "admitted"
            sys.stdout.write(f"{pair.model_type:32}{pair.task:32}{pair.seconds:6.1f} s  {said}\n")
            sys.stdout.flush()
    sys.stdout.write(f"\n{summary(tried)}\n")
    if not options.dry_run:
        kept = read_architectures() if len(chosen) < len(pairs()) else {}
        ADMITTED.write_text(as_toml(architectures_of(tried, kept)))
    return 0
