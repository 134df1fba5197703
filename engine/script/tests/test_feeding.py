"""Batches that feed training steps, told apart from those of an evaluation between them."""

from __future__ import annotations

from engine.script.data.feeding import BatchesRead

TRAIN, HELD_OUT, IMAGES = range(3)


def read(batches: BatchesRead, *data: int) -> None:
    for one in data:
        batches.read(one)


def test_micro_batches_count_whether_they_are_read_one_by_one_or_at_once() -> None:
    for at_once in (1, 4):
        batches = BatchesRead()
        for _ in range(4 // at_once):
            read(batches, *[TRAIN] * at_once)
            for _ in range(at_once):
                batches.forward(learns=True)
        assert batches.fed == {TRAIN: 4}
        batches.step_ended()
        assert batches.fed == {}


def evaluated_step(batches: BatchesRead) -> None:
    for _ in range(16):
        read(batches, HELD_OUT)
        batches.forward(learns=False)
    read(batches, TRAIN)
    batches.forward(learns=True)


def test_an_evaluation_before_a_step_does_not_feed_it() -> None:
    batches = BatchesRead()
    evaluated_step(batches)
    assert batches.fed == {TRAIN: 1}


def test_an_evaluation_before_the_first_step_is_told_from_one_between_two() -> None:
    batches = BatchesRead()
    evaluated_step(batches)
    assert (batches.evaluates_first, batches.evaluates) == (True, False)
    batches.step_ended()
    evaluated_step(batches)
    assert batches.evaluates


def test_a_teacher_that_looks_first_is_no_evaluation() -> None:
    batches = BatchesRead()
    for _ in range(2):
        read(batches, TRAIN, IMAGES)  # two sets of data, a part of a batch each
        batches.forward(learns=False)
        batches.forward(learns=True)
    assert batches.fed == {TRAIN: 2, IMAGES: 2}
    assert not batches.evaluates


def test_without_modules_all_that_was_read_counts() -> None:
    batches = BatchesRead()
    read(batches, TRAIN, TRAIN)
    assert batches.fed == {TRAIN: 2}
