from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import InvalidInput
from engine.core.parsing import collect
from engine.interface.assumptions import Assumptions
from engine.interface.request import MAX_BATCH_SIZE, AnalysisRequest, as_flags
from engine.interface.workload import Workload

ASKED: dict[str, object] = {"model": "bert", "gpu": "a10"}


def test_a_request_survives_json() -> None:
    request = AnalysisRequest(
        Workload("bert"),
        gpu="t4",
        current_batch_size=8,
        batch_multiple=4,
        memory_limit_bytes=2**33,
        assumptions=Assumptions(hours_per_run=3, price_per_hour_usd=0.5),
    )
    assert AnalysisRequest.parse(json.loads(json.dumps(request.to_dict()))) == request


def test_null_says_that_there_is_no_batch_yet_and_leaving_it_out_does_not() -> None:
    none = AnalysisRequest.parse(ASKED | {"current_batch_size": None})
    assert none.current_batch_size is None
    assert AnalysisRequest.parse(none.to_dict()) == none
    assert AnalysisRequest.parse(ASKED | {"current_batch_size": ""}).current_batch_size == 16
    left_out = {name: value for name, value in ASKED.items() if name != "current_batch_size"}
    assert AnalysisRequest.parse(left_out).current_batch_size == 16
    assert as_flags({"current_batch_size": None}) == ["--current-batch-size", "none"]


def test_what_needs_a_batch_says_so() -> None:
    with pytest.raises(InvalidInput, match="a batch size is needed here"):
        _ = AnalysisRequest.parse(ASKED | {"current_batch_size": None}).known_batch_size


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"global_batch_size": 100, "batch_multiple": 8}, ["global_batch_size"]),
        ({"global_batch_size": 64, "gradient_accumulation": 2}, ["gradient_accumulation"]),
        ({"global_batch_size": 64, "batch_multiple": 8}, []),
    ],
)
def test_a_global_batch_needs_a_batch_that_divides_it(
    fields: dict[str, object], named: list[str]
) -> None:
    wrong: dict[str, str] = {}
    collect(lambda: AnalysisRequest.parse(ASKED | {"current_batch_size": None} | fields), wrong)
    assert list(wrong) == named


def test_a_gpu_may_be_written_as_people_type_it() -> None:
    assert AnalysisRequest.parse(ASKED | {"gpu": "NVIDIA A10"}).gpu == "a10"
    assert AnalysisRequest.parse(ASKED | {"gpu": "RTX4090"}).gpu == "rtx-4090"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"gpu": None}, "choose a catalogue GPU, local or any"),
        ({"gpu": "b9000"}, "unknown gpu 'b9000'"),
        ({"gpu": 7}, "unknown gpu '7'"),
        ({"current_batch_size": 0}, "from 1 to 65,536"),
        ({"current_batch_size": -1}, "from 1 to 65,536"),
        ({"current_batch_size": 10**9}, "from 1 to 65,536"),
        ({"current_batch_size": "ten"}, "enter a whole number from 1 to 65,536"),
        ({"current_batch_size": {}}, "enter a whole number"),
        ({"batch_multiple": 0}, "from 1 to 1,024"),
        ({"memory_limit_bytes": 5}, "from 1,048,576 to"),
        ({"hours_per_run": -1}, "a number from 0"),
        ({"hours_per_run": "nan"}, "a number from 0"),
        ({"runs_per_year": "inf"}, "a number from 0"),
        ({"price_per_hour_usd": "free"}, "a number from 0"),
        ({"sequence_length": 513}, "from 1 to 512"),
        ({"surprise": 1}, "unknown field"),
    ],
)
def test_an_invalid_field_is_named_with_what_to_do(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        AnalysisRequest.parse(ASKED | wrong)
    assert list(raised.value.fields) == list(wrong)
    assert says in str(raised.value)


def test_all_invalid_fields_are_named_together() -> None:
    given = {"model": "x", "gpu": "y", "current_batch_size": 0, "hours_per_run": -1}
    with pytest.raises(InvalidInput) as raised:
        AnalysisRequest.parse(given)
    assert set(raised.value.fields) == set(given)


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "tf32"])
@pytest.mark.parametrize("gpu", ["t4", "v100-16gb"])
def test_a_number_format_the_gpu_lacks_is_refused(precision: str, gpu: str) -> None:
    with pytest.raises(InvalidInput, match="choose fp16-mixed or fp32"):
        AnalysisRequest.parse({"model": "bert", "gpu": gpu, "precision": precision})


_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers())
)


@pytest.mark.longer
@given(st.dictionaries(st.sampled_from([*AnalysisRequest.parse(ASKED).to_dict(), "?"]), _VALUES))
def test_any_input_gives_a_request_within_bounds_or_error_messages(
    fields: dict[str, object],
) -> None:
    wrong: dict[str, str] = {}
    request = collect(lambda: AnalysisRequest.parse(ASKED | fields), wrong)
    if request is None:
        assert wrong
        assert all(wrong.values())
    else:
        assert 1 <= request.known_batch_size <= MAX_BATCH_SIZE
        assert math.isfinite(request.assumptions.hours_per_run)
        assert AnalysisRequest.parse(request.to_dict()) == request
