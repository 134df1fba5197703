"""Two answers about one step with different versions: the differences, and where they come from."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.answer.release_comparison import (
    compare_releases,
    find_release,
    version_changes,
    why_not_comparable,
)
from engine.answer.step_differences import MAX_LISTED, MemoryDifference, TimeDifference
from engine.cli.tests.test_render import ANALYSIS, trial
from engine.core.sizes import GIB
from engine.interface.result import AnalysisResult, OperationTime, StepProfile, TensorGroup
from engine.interface.trial import Source

QUERY, SOFTMAX = "layer.*.query", "layer.*.attention"
PROFILE = StepProfile(
    16,
    "backward",
    [
        TensorGroup(QUERY, "aten.addmm", "activations", 12, 1200),
        TensorGroup(SOFTMAX, "aten._softmax", "activations", 12, 600),
        TensorGroup(QUERY, "", "parameters", 24, 500),
    ],
    [OperationTime("aten.addmm", 24, 0.010), OperationTime("aten._softmax", 12, 0.004)],
)


def release(
    transformers: str, *, peak: int = 2 * GIB, fits: bool = True, seconds: float = 0.026
) -> AnalysisResult:
    """An answer about batch 16, with the peak and step time of its current batch."""
    current = replace(trial(16, fits=fits), peak_allocated_bytes=peak, step_seconds=seconds)
    others = [one for one in ANALYSIS.trials if one.batch_size != 16]
    software = {"transformers": transformers, "torch": "2.13.0+cpu"}
    return replace(ANALYSIS, trials=[current, *others], software=software, profile=PROFILE)


OLD, NEW = release("4.46.3"), release("4.57.6", peak=int(2.5 * GIB), seconds=0.013)


def test_the_verdict_has_memory_and_time_with_both_versions() -> None:
    assert compare_releases(OLD, NEW).verdict == (
        "Batch 16 fits with either. The peak is 2.50 GiB with transformers 4.57.6 and 2.00 GiB "
        "with transformers 4.46.3 (+25%). A step takes 13.0 ms instead of 26.0 ms (\u221250%). "
        "(Predicted)"
    )


def test_it_says_which_release_runs_out_of_memory() -> None:
    too_large = replace(release("4.47.1", fits=False), largest_batch_size=8)
    said = compare_releases(OLD, too_large).verdict
    assert said.startswith(
        "Batch 16 runs out of memory with transformers 4.47.1. With transformers 4.46.3, it fits."
    )
    assert "The largest batch that fits is 8 instead of 320." in said
    back = compare_releases(too_large, OLD).verdict
    assert back.startswith("Batch 16 fits with transformers 4.46.3. With transformers 4.47.1, it")


def test_nothing_is_said_to_differ_that_does_not() -> None:
    compared = compare_releases(OLD, release("4.47.1"))
    assert "The peak is the same" in compared.verdict
    assert "A step takes the same time" in compared.verdict
    assert (compared.tensors, compared.modules, compared.operations) == ([], [], [])


def test_parts_are_matched_by_module_operation_and_category() -> None:
    changed = StepProfile(
        16,
        "backward",
        [
            TensorGroup(QUERY, "aten.addmm", "activations", 12, 1200),
            TensorGroup(SOFTMAX, "aten.where", "activations", 6, 900),
            TensorGroup(QUERY, "", "parameters", 24, 500),
        ],
        [OperationTime("aten.addmm", 24, 0.010), OperationTime("aten.where", 6, 0.001)],
    )
    compared = compare_releases(OLD, replace(NEW, profile=changed))
    assert compared.tensors == [
        MemoryDifference(SOFTMAX, "aten.where", "activations", 0, 900, 0, 6),
        MemoryDifference(SOFTMAX, "aten._softmax", "activations", 600, 0, 12, 0),
    ]
    assert compared.modules == [MemoryDifference(SOFTMAX, "", "", 600, 900, 12, 6)]
    assert compared.operations == [
        TimeDifference("aten._softmax", 0.004, 0.0, 12, 0),
        TimeDifference("aten.where", 0.0, 0.001, 0, 6),
    ]
    assert compared.caveats == []
    json.dumps(compared.to_dict())


def test_a_peak_that_moved_to_another_phase_is_said() -> None:
    moved = replace(NEW, profile=replace(PROFILE, peak_phase="optimizer"))
    (said,) = compare_releases(OLD, moved).caveats
    assert "from backward to optimizer" in said


def test_without_a_profile_the_whole_step_is_compared() -> None:
    compared = compare_releases(replace(OLD, profile=None), NEW)
    assert "+25%" in compared.verdict
    assert compared.tensors == []
    assert compared.caveats


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (replace(NEW, gpu=replace(NEW.gpu, name="NVIDIA L4")), "different GPUs"),
        (replace(NEW, current_batch_size=None), "no current batch"),
        (replace(NEW, current_batch_size=320), "current batches differ"),
        (replace(NEW, trials=[replace(NEW.trials[0], source=Source.MEASURED)]), "measured"),
        (replace(NEW, software={"transformers": "4.46.3", "torch": "2.13.0+cu126"}), "same"),
        (NEW, ""),
    ],
)
def test_only_the_same_step_with_other_versions_is_compared(
    other: AnalysisResult, why: str
) -> None:
    said = why_not_comparable(OLD, other)
    assert why in said
    assert bool(why) == bool(said)


def test_a_package_may_be_missing_on_one_side() -> None:
    changes = version_changes({"torch": "2.13.0"}, {"torch": "2.13.0+cpu", "peft": "0.15"})
    assert changes == {"peft": ["", "0.15"]}
    said = compare_releases(replace(OLD, software={"torch": "2.13.0"}), OLD).verdict
    assert "transformers not installed" in said


def test_bisecting_ends_at_the_release_after_which_it_runs_out_of_memory() -> None:
    # The memory grows most in the first release, but where it stops fitting counts first.
    peaks = [1, 5, 5, 5, 6, 6]
    answers = [
        release(f"4.{40 + number}.0", peak=peak * GIB, fits=peak < 6)
        for number, peak in enumerate(peaks)
    ]
    assert find_release(len(answers), answers.__getitem__) == (3, 4)


@given(st.integers(2, 60), st.data())
def test_bisecting_finds_the_only_change_with_few_answers(count: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(1, count - 1))
    asked: set[int] = set()

    def at(number: int) -> AnalysisResult:
        asked.add(number)
        return NEW if number >= first else OLD

    assert find_release(count, at) == (first - 1, first)
    assert len(asked) <= 2 + count.bit_length()


sizes = st.dictionaries(st.sampled_from("abcdefghijklmnop"), st.integers(1, 9), min_size=1)


def with_tensors(given: dict[str, int]) -> AnalysisResult:
    groups = [
        TensorGroup(f"{name}.x", name, "activations", 1, size) for name, size in given.items()
    ]
    return replace(NEW, profile=replace(PROFILE, tensors=groups))


@given(sizes, sizes)
def test_the_largest_differences_come_first_and_have_the_sign_of_the_change(
    before: dict[str, int], after: dict[str, int]
) -> None:
    compared = compare_releases(with_tensors(before), with_tensors(after))
    assert len(compared.tensors) <= MAX_LISTED
    for one, other in pairwise(compared.tensors):
        assert abs(one.added_bytes) >= abs(other.added_bytes)
    for one in compared.tensors:
        name = one.operation
        assert one.added_bytes == after.get(name, 0) - before.get(name, 0) != 0
    swapped = compare_releases(with_tensors(after), with_tensors(before))
    total = sum(one.added_bytes for one in compared.tensors)
    if len(compared.tensors) < MAX_LISTED:
        assert total == sum(after.values()) - sum(before.values())
        assert sum(one.added_bytes for one in swapped.tensors) == -total
