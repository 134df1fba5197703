"""The self-checks that the lab's nodes have stored, and the state of each.

:mod:`analyses.jobs.checking` queues them; the engine measures (:mod:`engine.selfcheck`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Max

from analyses.models import OF_SELF_CHECK, CheckState, Job, Node
from engine.core.errors import InvalidInput
from engine.gpus import ANY, catalogue_name
from engine.gpus.checked import Identity, Problem, SelfCheck, read_self_check

logger = logging.getLogger(__name__)

_NO_RESULT = "Look at the worker's log, mend what it says, and restart the worker."


@dataclass(frozen=True)
class Stored:
    """The column ``Node.self_check``: the result, or why there is none.

    Attributes:
        check: ``None`` if it failed as a whole.
        problem: Why; empty if it did not.
    """

    check: SelfCheck | None = None
    problem: str = ""

    @classmethod
    def of_answer(cls, body: Mapping[str, object]) -> Stored:
        """The self-check in an engine's answer."""
        try:
            return cls(read_self_check(dict(body)))
        except InvalidInput as error:
            return cls(problem=f"The engine's answer is not a self-check: {error}")

    @classmethod
    def of(cls, node: Node) -> Stored | None:
        """The self-check of a node; ``None`` without one, or of another version of MemoryMark."""
        column = node.self_check
        if column is None:
            return None
        try:
            check = column["check"]
            return cls(None if check is None else read_self_check(check), str(column["problem"]))
        except (InvalidInput, KeyError, TypeError):
            logger.warning("the self-check of node %s cannot be read", node.name, exc_info=True)
            return None

    def to_dict(self) -> dict[str, Any]:
        return {"check": self.check and self.check.to_dict(), "problem": self.problem}


@dataclass(frozen=True)
class Shown:
    """A node's self-check, for a page or the API.

    Attributes:
        sentence: Its result in a sentence; empty before there is one.
        problems: Problems on the node, and what to do.
        check: The result; ``None`` without one.
    """

    state: CheckState
    sentence: str = ""
    problems: tuple[Problem, ...] = ()
    check: SelfCheck | None = None


def shown(node: Node) -> Shown:
    """The self-check of a node, whose job is read too unless it was selected with it."""
    stored = Stored.of(node)
    check = stored.check if stored else None
    problems = check.problems if check else ()
    if stored and stored.problem:
        problems = (Problem("The self-check", stored.problem, _NO_RESULT),)
    sentence = check.sentence if check else ""
    return Shown(_state(node, stored), sentence, problems, check)


def _state(node: Node, stored: Stored | None) -> CheckState:
    job: Job | None = getattr(node, "check_job", None)
    if job is not None and (unfinished := OF_SELF_CHECK.get(job.state)) is not None:
        return unfinished
    if stored is None:
        return CheckState.NOT_CHECKED
    if stored.check is None:
        return CheckState.FAILED
    return CheckState.PROBLEMS if stored.check.problems else CheckState.CHECKED


def is_due(node: Node, identity: Identity) -> bool:
    """Whether a node has no result for what it has now: a GPU, its driver and versions."""
    stored = Stored.of(node)
    return stored is None or stored.check is None or stored.check.identity != identity


def of_the_lab(here: str) -> list[dict[str, Any]]:
    """The results that predictions use, as JSON; the one that counts most for a GPU comes last.

    Args:
        here: The name of the node that predicts, whose own counts most.
    """
    checked = Node.objects.filter(self_check__isnull=False).exclude(gpu_name="")
    found = [(node.name, stored.check) for node in checked if (stored := Stored.of(node))]
    results = [(name == here, check.when, check) for name, check in found if check]
    return [check.to_dict() for *_, check in sorted(results, key=lambda one: one[:2])]


def newest(gpu: str) -> str:
    """Version of the self-checks of nodes with a catalogue GPU, or any, for cache keys."""
    checked = Node.objects.filter(self_check__isnull=False).exclude(gpu_name="").order_by()
    ended = checked.values_list("gpu_name").annotate(Max("check_job__finished_at"))
    return " ".join(str(last) for name, last in ended if gpu in (catalogue_name(name), ANY))
