"""Lengths of samples: percentiles, and what batches make of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import InvalidInput
from engine.features.length_distribution import EXAMPLE, MEGA_BATCH, Lengths, read_lengths

CHAT = Lengths.parse(EXAMPLE)


@st.composite
def distributions(draw: st.DrawFn) -> Lengths:
    tokens = sorted(draw(st.lists(st.integers(1, 8192), min_size=2, max_size=6)))
    inner = draw(st.sets(st.integers(1, 99), min_size=len(tokens) - 2, max_size=len(tokens) - 2))
    names = ["min", *(f"p{percent}" for percent in sorted(inner)), "max"]
    return Lengths.parse(",".join(f"{n}={t}" for n, t in zip(names, tokens, strict=True)))


@given(distributions(), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_is_longer(lengths: Lengths, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert lengths.at(low) <= lengths.at(high) + 1e-6


@given(distributions(), st.integers(1, 1000), st.integers(1, 1000))
def test_the_worst_of_more_samples_is_longer(lengths: Lengths, one: int, other: int) -> None:
    few, many = sorted((one, other))
    assert lengths.not_exceeded(few, 0.99) <= lengths.not_exceeded(many, 0.99) + 1e-6
    assert lengths.not_exceeded(few, 0.5) <= lengths.not_exceeded(few, 0.99) + 1e-6
    assert lengths.longest_of(few) <= lengths.longest_of(many) + 1e-6
    assert lengths.longest_of(many) <= lengths.longest + 1e-6


@given(distributions(), st.integers(1, 64))
def test_buckets_pad_less_than_chance(lengths: Lengths, batch_size: int) -> None:
    in_buckets = lengths.longest_in_buckets(batch_size)
    assert in_buckets <= lengths.longest_of(batch_size) * 1.05 + 1
    assert in_buckets >= lengths.mean * 0.98 - 1


@given(distributions())
def test_the_text_says_the_same_lengths(lengths: Lengths) -> None:
    assert Lengths.parse(str(lengths)) == lengths


@given(distributions(), st.integers(1, 8192))
def test_cut_lengths_are_the_shorter_of_both(lengths: Lengths, most: int) -> None:
    cut = lengths.cut(most)
    for share in (0.0, 0.1, 0.5, 0.77, 0.99, 1.0):
        assert cut.at(share) == pytest.approx(min(most, lengths.at(share)), abs=1e-3)


@settings(max_examples=20, deadline=None)
@given(distributions(), st.sampled_from([1, 2, 8, 32]), st.integers(0, 10**6))
def test_what_is_expected_is_what_a_simulation_gives(
    lengths: Lengths, batch_size: int, seed: int
) -> None:
    chance = np.random.default_rng(seed)
    trials, spread = 4000, lengths.longest - lengths.at(0.0)
    longest = [
        max(lengths.at(chance.random()) for _ in range(batch_size)) for _ in range(trials // 4)
    ]
    assert sum(longest) / len(longest) == pytest.approx(
        lengths.longest_of(batch_size), abs=0.1 * spread + 1
    )
    bound = lengths.not_exceeded(batch_size, 0.9)
    kept = sum(length <= bound + 1e-6 for length in longest) / len(longest)
    assert kept >= 0.85


@pytest.mark.parametrize("batch_size", [1, 3, 16, 100])
def test_a_total_is_not_exceeded_as_often_as_is_said(batch_size: int) -> None:
    chance = np.random.default_rng(1)
    shares, tokens = zip(*CHAT.points, strict=True)
    drawn = np.interp(chance.random((40_000, batch_size)), shares, tokens).sum(axis=1)
    for probability in (0.5, 0.9, 0.999):
        bound = CHAT.total_not_exceeded(batch_size, 1, probability)
        assert np.mean(drawn <= bound) == pytest.approx(probability, abs=0.01)
    assert CHAT.total_not_exceeded(batch_size, 100, 0.99) >= bound
    assert CHAT.total_not_exceeded(batch_size, 10**6, 0.99) <= batch_size * CHAT.longest


def test_a_very_large_batch_is_near_its_mean() -> None:
    assert CHAT.total_not_exceeded(20_000, 10_000, 0.99) == pytest.approx(
        20_000 * CHAT.mean, rel=0.05
    )


def test_a_token_is_in_a_longer_sample_than_the_mean_one() -> None:
    assert Lengths.parse("min=100,max=100").of_a_token == pytest.approx(100)
    chance = np.random.default_rng(2)
    shares, tokens = zip(*CHAT.points, strict=True)
    drawn = np.interp(chance.random(200_000), shares, tokens)
    assert CHAT.of_a_token == pytest.approx((drawn**2).sum() / drawn.sum(), rel=0.02)


@pytest.mark.parametrize("batch_size", [1, 4, 32])
def test_sorted_mega_batches_are_those_of_transformers(batch_size: int) -> None:
    from transformers.trainer_pt_utils import get_length_grouped_indices

    chance = np.random.default_rng(0)
    lengths = [round(CHAT.at(chance.random())) for _ in range(batch_size * MEGA_BATCH * 20)]
    order = get_length_grouped_indices(lengths, batch_size)
    batches = [order[n : n + batch_size] for n in range(0, len(order), batch_size)]
    mean = sum(max(lengths[n] for n in batch) for batch in batches) / len(batches)
    assert CHAT.longest_in_buckets(batch_size) == pytest.approx(mean, rel=0.05)


def test_a_chosen_example_by_hand() -> None:
    even = Lengths.parse("min=0001,max=1001")
    assert even.mean == 501
    assert even.longest_of(3) == pytest.approx(751)  # n / (n + 1) of the way
    assert even.not_exceeded(1, 0.9) == pytest.approx(901)
    assert even.not_exceeded(100, 0.99) == pytest.approx(1 + 1000 * 0.99**0.01)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p50=310", "add max"),
        ("310", "310 is not a percentile"),
        ("p50=400,p90=300,max=500", "shorter"),
        ("max=0", "from 1"),
        ("max=9999999", "4,194,304"),
        ("p50=1,,max=2", "nothing"),
    ],
)
def test_a_mistake_is_told(text: str, expected: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        Lengths.parse(text)
    message = raised.value.fields["sample_lengths"]
    assert expected in message
    assert EXAMPLE in message


@pytest.mark.parametrize("between", ["\n", "\r\n", ",", " ", ", "])
def test_a_list_gives_its_percentiles(between: str) -> None:
    counted = list(range(1, 1001))
    assert Lengths.parse(between.join(map(str, counted))) == Lengths.of(counted)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12\nlong\n40", "long"),
        ("12\n-4", "-4"),
        ("12\n1.5", "1.5"),
        ("0\n12", "from 1 to"),
        ("length\n" + "12\n" * 2**10, "length"),
        ("12\n" * 2**19, "at most 1,048,576 characters"),
    ],
)
def test_a_mistake_in_a_list_is_told(text: str, expected: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Lengths.parse(text)
    assert expected in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_file_gives_its_percentiles(tmp_path: Path) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text("\n".join(map(str, range(1, 2001))) + "\n")
    read = Lengths.of(read_lengths(path))
    assert read.longest == 2000
    assert read.mean == pytest.approx(1000.5, rel=0.01)
    assert Lengths.parse(str(read)) == read
    assert len(str(read)) <= 500


@pytest.mark.parametrize("content", ["", "12\ntwelve\n", None])
def test_a_file_without_lengths_is_refused(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "lengths.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidInput):
        Lengths.of(read_lengths(path))
