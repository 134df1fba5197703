from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from django.conf import settings

from analyses.charts.breakdown import (
    CATEGORIES,
    MAX_BAR_LENGTH,
    breakdown_rows,
    memory_bars,
    memory_sizes,
)
from analyses.tests.factories import make_result, make_trial
from engine.core.sizes import GIB
from engine.interface.trial import Source, Trial

TOTAL = 10 * GIB


def test_every_byte_of_the_gpu_is_in_exactly_one_category() -> None:
    trial = make_trial(16)
    sizes = memory_sizes(trial, total_bytes=TOTAL)
    assert sum(sizes.values()) == TOTAL
    assert list(sizes) == [name for name in CATEGORIES if name in sizes]
    assert trial.peak_reserved_bytes is not None
    assert trial.peak_allocated_bytes is not None
    assert trial.device_used_bytes is not None
    assert sizes["cached"] == trial.peak_reserved_bytes - trial.peak_allocated_bytes
    assert sizes["context"] == trial.device_used_bytes - trial.peak_reserved_bytes
    assert sizes["free"] == TOTAL - trial.device_used_bytes


def test_without_a_breakdown_tensors_are_one_piece() -> None:
    trial = replace(make_trial(16), breakdown={})
    sizes = memory_sizes(trial, TOTAL)
    assert sizes["tensors"] == trial.peak_allocated_bytes
    assert set(sizes) == {"tensors", "cached", "context", "free"}


def test_a_trial_on_the_cpu_only_has_tensors() -> None:
    trial = Trial(4, True, Source.MEASURED, peak_allocated_bytes=GIB)
    assert memory_sizes(trial, TOTAL) == {"tensors": GIB, "free": 9 * GIB}


def test_the_bars_stack_without_gaps_up_to_what_is_used() -> None:
    current, recommended = memory_bars(make_result(current=16, recommended=128))
    assert (current.role, current.batch_size) == ("current", 16)
    assert (recommended.role, recommended.batch_size) == ("recommended", 128)
    for bar in (current, recommended):
        assert bar.limit == 100
        end = 0.0
        for segment in bar.segments:
            assert segment.start == pytest.approx(end, abs=0.01)
            end = segment.start + segment.width
        assert end < 100


def test_the_bar_of_a_batch_that_does_not_fit_exceeds_the_gpus_limit() -> None:
    current, recommended = memory_bars(make_result(current=384))
    assert not current.trial.fits
    assert current.limit == recommended.limit < 100
    last = current.segments[-1]
    assert last.start + last.width == pytest.approx(100, abs=0.01)
    assert "free" not in current.sizes
    assert "does not fit" in current.summary


def test_a_batch_of_unknown_memory_has_an_empty_bar_that_says_so() -> None:
    result = make_result(current=384)
    unknown = Trial(384, False, Source.MEASURED, failure="out of memory")
    result = replace(result, trials=[unknown, *result.trials[1:]])
    current = memory_bars(result)[0]
    assert current.segments == []
    assert "unknown" in current.summary
    assert current.source is Source.MEASURED


def test_a_recommended_current_batch_has_one_bar() -> None:
    (bar,) = memory_bars(make_result(current=128, recommended=128))
    assert bar.role == "recommended"
    assert bar.title == "Current and recommended batch"


def test_the_table_has_a_row_for_each_category_of_any_bar() -> None:
    bars = memory_bars(make_result(current=384))
    rows = {row.category: row for row in breakdown_rows(bars)}
    assert rows["free"].cells[0] == (None, "current")
    free, role = rows["free"].cells[1]
    assert free is not None
    assert role == "recommended"
    assert "tensors" not in rows


def test_vllm_is_named_only_where_it_shares_the_gpu() -> None:
    bars = memory_bars(make_result())
    for beside_vllm in (False, True):
        rows = {row.category: row for row in breakdown_rows(bars, beside_vllm=beside_vllm)}
        assert ("vLLM" in rows["context"].meaning) is beside_vllm


def test_the_bar_of_a_far_too_large_batch_is_cut_off() -> None:
    current, recommended = memory_bars(make_result(current=2000))
    assert current.is_cut
    assert not recommended.is_cut
    assert current.limit == pytest.approx(100 / MAX_BAR_LENGTH, abs=0.01)
    last = current.segments[-1]
    assert last.start + last.width == pytest.approx(100, abs=0.01)


@pytest.mark.parametrize("name", [name for name in CATEGORIES if name != "free"])
def test_every_category_has_a_colour_in_each_theme(name: str) -> None:
    css = Path(settings.BASE_DIR, "static/memorymark/colours.css").read_text()
    assert len(re.findall(rf"--of-{name}: light-dark\(#\w+, #\w+\);", css)) == 1
