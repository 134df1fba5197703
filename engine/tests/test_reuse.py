"""Reusing traces between analyses changes only the time they take."""

from __future__ import annotations

from typing import Any

import pytest

from engine.analysis import analyze
from engine.core.errors import InvalidInput
from engine.events import Event, Log
from engine.interface.request import AnalysisRequest
from engine.traces.workloads import KeptTraces

pytestmark = pytest.mark.usefixtures("small_models")

TAKEN = "reusing its traces"


def asked(gpu: str, **fields: Any) -> AnalysisRequest:
    given = {"model": "distilbert", "gpu": gpu, "sequence_length": 32, "batch_multiple": 64}
    return AnalysisRequest.parse(given | {"current_batch_size": 64} | fields)


def taken(request: AnalysisRequest, kept: KeptTraces) -> bool:
    """Whether a result reused traces of the previous analysis; checks it against a fresh one."""
    events: list[Event] = []
    assert analyze(request, events.append, traced=kept) == analyze(request, lambda _: None)
    said = [event.message for event in events if isinstance(event, Log)]
    assert any(TAKEN in line for line in said) != any("Traced two" in line for line in said)
    return any(TAKEN in line for line in said)


@pytest.mark.slow
def test_another_gpu_or_batch_reuses_the_traces() -> None:
    kept = KeptTraces()
    assert not taken(asked("a10"), kept)
    assert taken(asked("l4", current_batch_size=128), kept)


@pytest.mark.slow
@pytest.mark.parametrize("other", [{"precision": "bf16-mixed"}, {"global_batch_size": 512}])
def test_another_workload_is_traced_again(other: dict[str, Any]) -> None:
    kept = KeptTraces()
    assert not taken(asked("a10"), kept)
    assert not taken(asked("a10", **other), kept)


@pytest.mark.slow
def test_only_the_last_few_workloads_are_kept() -> None:
    kept = KeptTraces(most=2)
    long, short = asked("a10"), asked("a10", sequence_length=16)
    assert [taken(request, kept) for request in (long, short, long)] == [False, False, True]
    assert not taken(asked("a10", optimizer="sgd"), kept)
    assert [taken(request, kept) for request in (long, short)] == [True, False]


@pytest.mark.longer
def test_a_workload_that_cannot_be_traced_leaves_nothing_behind() -> None:
    kept = KeptTraces()
    wrong = {"model_type": "distilbert", "vocab_size": 100, "dim": 30, "n_heads": 7}
    with pytest.raises(InvalidInput):
        analyze(asked("a10", config=wrong, model="own"), lambda _: None, traced=kept)
    assert not taken(asked("a10"), kept)
