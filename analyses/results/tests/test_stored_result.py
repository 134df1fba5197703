from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from analyses.results.stored import read_result, read_trial
from analyses.tests.factories import make_global_batch, make_result, make_trial
from analyses.tests.first_version import of_first_version
from engine.answer.amounts import trial_at
from engine.core.choices import Parallelism
from engine.core.errors import InvalidInput
from engine.core.optimizers import Optimizer
from engine.interface.result import AnalysisResult, Comparison, MeasuredOn
from engine.interface.trial import Source
from engine.interface.workload import Workload

CONFIG = {"model_type": "bert", "vocab_size": 1000, "max_position_embeddings": 128}


def stored(result: AnalysisResult) -> dict[str, Any]:
    """A result as the database returns it."""
    written: dict[str, Any] = json.loads(json.dumps(result.to_dict()))
    return written


@pytest.mark.parametrize(
    "result",
    [
        make_result(),
        make_result(current=384),
        make_result(source=Source.MEASURED, certificate=["memorymark measure"]),
        make_result(global_batch=make_global_batch()),
        make_result(workload=None),
        make_result(measured_on=MeasuredOn("cpu", "2.13.0", "5.23.0", 4)),
        make_result(comparison=Comparison([80.0, 81.0], [90.0, 92.5], 0.5)),
        make_result(
            workload=Workload(
                model="own",
                config=CONFIG,
                optimizer=Optimizer.LION,
                parallelism=Parallelism.FSDP,
                world_size=8,
            )
        ),
    ],
)
def test_a_stored_result_comes_back_unchanged(result: AnalysisResult) -> None:
    read = read_result(stored(result))
    assert read == result
    assert type(read.source) is Source


def test_a_result_of_the_first_version_is_read_with_what_it_has() -> None:
    result = make_result()
    read = read_result(of_first_version(result))
    assert isinstance(read, AnalysisResult)
    assert (read.timeline, read.largest_tensors, read.certificate) == ([], [], [])
    assert (read.safe_batch_size, read.global_batch) == (None, None)
    assert read.workload == result.workload
    assert read.trials[0].device_used_bytes == result.trials[0].device_used_bytes
    assert read.trials[0].device_used_low_bytes is None


@pytest.mark.parametrize(
    "change",
    [
        {"invented": 1},
        {"source": "guessed"},
        {"workload": {}},
        {"workload": {"model": "bert", "precision": "fp3"}},
        {"speedup": "fast"},
        {"largest_batch_size": True},
        {"largest_batch_size": 1.5},
        {"largest_batch_size": None},
        {"trials": {}},
        {"curve": [1]},
        {"timeline": [{"at": 0.5, "phase": "forward", "bytes": {"parameters": "many"}}]},
        {"largest_tensors": [{"size_bytes": 1}]},
        {"caveats": [None]},
        {"savings": {}},
    ],
)
def test_an_invalid_result_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        read_result(stored(make_result()) | change)


@pytest.mark.parametrize("given", [None, [], 1, "text", {}])
def test_a_value_that_is_not_an_object_is_refused(given: Any) -> None:
    for read in (read_result, read_trial):
        with pytest.raises(InvalidInput):
            read(given)


def test_a_whole_number_of_seconds_is_accepted() -> None:
    trial = replace(make_trial(16), step_seconds=2.0)
    assert read_trial(vars(trial) | {"step_seconds": 2}) == trial


def test_a_measured_trial_is_preferred_to_a_predicted_one() -> None:
    measured = make_trial(16, source=Source.MEASURED)
    result = replace(make_result(), trials=[make_trial(16), measured], curve=[])
    assert trial_at(result, 16) == measured
    assert trial_at(result, 17) is None
