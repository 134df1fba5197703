"""Every prediction has a range, from the known errors of earlier ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.allocator.caching import ALLOCATE, FREE
from engine.core.errors import EngineError
from engine.core.process import CALIBRATION_VARIABLE
from engine.gpus import GPUS
from engine.interface.trial import GpuFacts
from engine.measurement.checks import validate_known
from engine.prediction.probe import predict_live_memory, predict_memory, predict_trial
from engine.prediction.timing import intervals
from engine.prediction.timing.intervals import (
    MIN_MEMORY_SHARE,
    Counted,
    RelativeRange,
    Residual,
    append_residuals,
    device_used_interval,
    memory_range,
    range_of,
    read_residuals,
    step_time_range,
)
from engine.tests.shared import small_workload
from engine.traces.tracer import trace
from engine.tracing.every_batch import AffineTrace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Category, Trace

ASSUMED = RelativeRange(0.5, 2.0)
MIB = 2**20


def residual(ratio: float, gpu: str = "a10", model: str = "bert", **fields: object) -> Residual:
    given = {"counted": Counted.PEAK_ALLOCATED, "source": "a test", "batch_size": 8} | fields
    return Residual(gpu=gpu, workload={"model": model}, measured=ratio, predicted=1.0, **given)  # type: ignore[arg-type]  # fields vary


@pytest.fixture(autouse=True)
def no_own_residuals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "calibration.toml"
    monkeypatch.setenv(CALIBRATION_VARIABLE, str(path))
    return path


def test_without_residuals_the_range_is_assumed() -> None:
    assert range_of([], 0.02, ASSUMED) == ASSUMED


def test_each_side_reaches_as_far_as_its_widest_residual_with_a_floor() -> None:
    seen = [residual(ratio, gpu=f"gpu-{n}") for n, ratio in enumerate([0.99, 1.0, 1.05, 1.01])]
    found = range_of(seen, 0.02, ASSUMED)
    factor = 1 + 2 / 4
    assert found.low == pytest.approx(1 - 0.02 * factor)
    assert found.high == pytest.approx(1 + 0.05 * factor)


def test_many_residuals_of_one_configuration_count_as_one() -> None:
    assert range_of([residual(1.01)] * 50, 0.02, ASSUMED).high == pytest.approx(1.06)


@given(
    st.lists(
        st.builds(residual, st.floats(0.2, 5), st.sampled_from(["a10", "t4", "h100"])), min_size=1
    )
)
def test_the_range_holds_every_residual_and_the_prediction_itself(seen: list[Residual]) -> None:
    found = range_of(seen, 0.02, ASSUMED)
    assert 0 <= found.low < 1 < found.high
    for one in seen:
        assert found.low <= one.ratio <= found.high + 1e-12


@given(st.integers(0, 2**45))
def test_the_ends_in_bytes_are_on_the_safe_side(predicted: int) -> None:
    found = RelativeRange(0.94, 1.06)
    assert found.low_bytes(predicted) <= predicted * 0.94
    assert found.high_bytes(predicted) >= predicted * 1.06 - 1e-3
    assert found.low_bytes(predicted) <= predicted <= found.high_bytes(predicted)


@pytest.mark.slow
@given(
    used=st.integers(1, 2**40),
    headroom=st.integers(0, 2**40),
    jumps=st.lists(st.integers(-(2**30), 2**30), max_size=2),
    convolves=st.booleans(),
)
def test_an_interval_is_only_ever_widened(
    used: int, headroom: int, jumps: list[int], convolves: bool
) -> None:
    total, span = used + headroom, memory_range()
    low, high = device_used_interval(used, total, jumps=jumps, convolves=convolves)
    plain = span.low_bytes(used), span.high_bytes(used)
    assert low <= plain[0] <= used <= plain[1] <= high
    if not convolves:
        assert (low < plain[0]) <= any(jump < 0 for jump in jumps)
        assert (high > plain[1]) == any(jump > 0 for jump in jumps)
    for jump in jumps:
        assert low <= max(0, used + jump) * span.low
        assert high >= used + jump


def test_convolutions_may_take_less_or_more_but_no_more_than_there_is() -> None:
    used = 1000 * 2**20
    plain = memory_range().high_bytes(used)
    assert device_used_interval(used, 2 * used, convolves=True)[1] == 1150 * 2**20
    assert device_used_interval(used, 1100 * 2**20, convolves=True)[1] == 1100 * 2**20
    assert device_used_interval(used, used, convolves=True)[1] == plain
    assert device_used_interval(used, 2 * used, convolves=True)[0] == 900 * 2**20


@pytest.mark.parametrize(
    ("batch_size", "low_jump", "high_jump"),
    # The second tensor finds room where the first one was, from batch 5 on.
    [(5, 0, 40), (4, -60, 0), (20, 0, 0)],
)
def test_a_careful_interval_covers_how_batches_nearby_are_packed(
    batch_size: int, low_jump: int, high_jump: int
) -> None:
    def traced(size: int) -> Trace:
        events = [(ALLOCATE, 0), (FREE, 0), (ALLOCATE, 1), (FREE, 1)]
        sizes = [(20 + 10 * size) * MIB, 65 * MIB]
        return Trace(size, events, sizes, [Category.ACTIVATIONS] * 2, last_step=len(events))

    gpu = GpuFacts("a GPU", 2**40, 2**40)
    trace = AffineTrace(traced(2), traced(3)).at(batch_size)
    plain, careful = (predict_memory(gpu, trace, careful=value) for value in (False, True))
    used = plain.device_used_bytes
    assert used is not None
    assert (plain.device_used_low_bytes, plain.device_used_high_bytes) == device_used_interval(
        used, gpu.total_bytes
    )
    assert careful == replace(
        plain,
        device_used_low_bytes=memory_range().low_bytes(used + low_jump * MIB),
        device_used_high_bytes=memory_range().high_bytes(used + high_jump * MIB),
    )


@pytest.mark.slow
def test_the_calibration_in_the_repository_matches_current_predictions() -> None:
    # Update these rows when you change the predictor: `validate prediction` prints them.
    stored = read_residuals(intervals.PUBLISHED)
    now = [compared.residual for compared in validate_known().comparisons]
    assert len(stored) == len(now) >= 5
    for one, again in zip(stored, now, strict=True):
        assert one.gpu in GPUS
        assert again.predicted == pytest.approx(one.predicted, rel=0.005)


def test_the_published_measurements_lie_within_the_range() -> None:
    found = memory_range()
    assert 1 - found.low >= MIN_MEMORY_SHARE
    for one in read_residuals(intervals.PUBLISHED):
        assert found.low <= one.ratio <= found.high


def test_step_times_are_as_far_off_as_published_ones() -> None:
    for launch_limited in (False, True):
        found = step_time_range("transformers", True, launch_limited)
        assert found.low < 1 < found.high
        unknown = step_time_range("transformers", False, launch_limited)
        assert unknown.low <= found.low
        assert unknown.high >= found.high


def test_your_own_residuals_count_but_not_those_of_the_cpu(
    no_own_residuals: Path,
) -> None:
    before = memory_range()
    append_residuals(no_own_residuals, [residual(3.0, counted=Counted.LIVE)])
    assert memory_range() == before
    append_residuals(no_own_residuals, [residual(1.5, "t4")])
    assert memory_range().high == pytest.approx(2.0)


def test_a_written_calibration_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "calibration.toml"
    rows = [
        residual(1.25, source='a "quoted" \\ source\nof two lines, é'),
        Residual(
            gpu="NVIDIA H200",
            workload={"model": "gpt2", "gradient_checkpointing": True, "lora_rank": 8},
            batch_size=3,
            counted=Counted.DEVICE_USED,
            measured=12,
            predicted=11.5,
            source="x",
            forward_only=True,
        ),
    ]
    append_residuals(path, rows[:1])
    append_residuals(path, rows[1:])
    assert read_residuals(path) == rows


@pytest.mark.parametrize(
    "text",
    [
        "not toml",
        "[[residual]]\ngpu = 'a10'",
        "[[residual]]\ngpu = 'a10'\nworkload = {}\nbatch_size = 1\ncounted = 'pages'\n"
        "measured = 1\npredicted = 1\nsource = ''",
        "[[residual]]\ngpu = 'a10'\nworkload = {}\nbatch_size = 1\ncounted = 'step_seconds'\n"
        "measured = 1000\npredicted = 1\nsource = 'seconds and milliseconds'",
        "residual = 3",
    ],
)
def test_a_calibration_file_with_a_mistake_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "calibration.toml"
    path.write_text(text)
    with pytest.raises(EngineError, match=r"calibration\.toml is not usable"):
        read_residuals(path)


def test_a_prediction_far_off_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "calibration.toml"
    with pytest.raises(EngineError, match=r"was not written: .* 25 times the prediction"):
        append_residuals(path, [residual(1.0), residual(25.0)])
    assert not path.exists()


@pytest.mark.usefixtures("small_models")
def test_a_predicted_trial_carries_its_ranges() -> None:
    workload, gpu = small_workload("bert"), GPUS["a10"]
    step = trace(workload, 4, cuda_behaviour(gpu.compute_capability))
    trial = predict_trial(workload, gpu, step)
    assert trial.device_used_bytes is not None
    assert trial.device_used_low_bytes is not None
    assert trial.device_used_high_bytes is not None
    assert trial.step_seconds is not None
    assert trial.step_seconds_low is not None
    assert trial.step_seconds_high is not None
    assert trial.device_used_low_bytes < trial.device_used_bytes < trial.device_used_high_bytes
    assert trial.step_seconds_low < trial.step_seconds < trial.step_seconds_high


@pytest.mark.usefixtures("small_models")
def test_live_bytes_are_exact_and_have_no_range() -> None:
    trial = predict_live_memory(2**30, trace(small_workload("bert"), 4, None))
    assert trial.device_used_low_bytes is None
    assert trial.device_used_high_bytes is None
