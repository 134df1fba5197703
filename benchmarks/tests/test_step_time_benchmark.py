"""The benchmark of step times: its rows, the fit, the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from benchmarks.results.documents import ROOT
from benchmarks.step_time import predictions
from benchmarks.step_time.predictions import Predicted
from benchmarks.step_time.report import ON_SEVERAL_GPUS, Figures, figures, tables
from benchmarks.step_time.rows import CHECKED, FITTED, OWN, Row, gpus, read_rows
from engine.answer.economics import GPUS_NOISE, MOVES_NOISE, Verdict
from engine.core.choices import Precision
from engine.prediction.timing import correction
from engine.prediction.timing.step_time import step_work
from engine.tracing.trace import Operation

pytestmark = pytest.mark.torch

HOSTS = {f"host.{source}": 40e-6 for source in OWN}

ROW = Row("lambda-v1", "a10", "toy", 224, "tf32", "none", 64, False, 0.1)


def _operations(row: Row) -> list[tuple[Operation, int]]:
    rows = 64 * row.batch
    flops = 2 * rows * 512 * 512
    dtype = "float16" if row.precision == "fp16-mixed" else "float32"
    return [
        (Operation("aten.mm", dtype, flops, 4096 * rows, "forward", (1, rows, 512, 512)), 12),
        (
            Operation(
                "aten.convolution", dtype, 9 * flops, 999 * rows, "forward",
                (rows, 512, 512, 9, 1, 0), row.channels_last,
            ),
            5,
        ),
        (
            Operation("aten.convolution", dtype, 9 * rows, 999 * rows, "forward",
                      (rows, 64, 1, 9, 64, 0)),
            3,
        ),
        (Operation("aten.gelu", dtype, 0, 2048 * rows, "forward"), 40),
        (Operation("aten._unsafe_view", dtype, 0, 2048 * rows, "forward"), 7),
        (Operation("aten.add_", "float32", 0, 10**6, "optimizer"), 30),
    ]  # fmt: skip


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row has the same small work."""
    for module in ("table", "predictions"):
        monkeypatch.setattr(f"benchmarks.step_time.{module}.operations_of", _operations)


def _rows() -> list[Row]:
    return [
        replace(ROW, gpu=gpu, precision=precision, batch=batch, channels_last=last)
        for gpu in ("a10", "v100-pcie", "h100", "rtx-3090")
        for precision, last in (("tf32", False), ("fp32", False), ("fp16-mixed", True))
        for batch in (1, 16, 256)
    ]


def test_every_row_ran_on_a_known_gpu_and_no_check_was_fitted() -> None:
    fitted, checks = read_rows(FITTED), read_rows(CHECKED)
    assert {row.gpu for row in (*fitted, *checks)} <= gpus().keys()
    assert {(row.source, row.trace) for row in fitted}.isdisjoint(
        (row.source, row.trace) for row in checks
    )
    assert all(row.seconds > 0 and row.batch > 0 for row in (*fitted, *checks))


@pytest.mark.usefixtures("traced")
def test_the_fit_and_the_engine_compute_the_same_times() -> None:
    from benchmarks.step_time.table import Table, as_table
    from engine.prediction.timing.speed_model import speed_model

    rows = _rows()
    by_fit = Table(rows).seconds(as_table(speed_model()), {}).tolist()
    for row, seconds in zip(rows, by_fit, strict=True):
        operations = [one for one, times in _operations(row) for _ in range(times)]
        precision = Precision.TF32 if row.precision == "tf32" else Precision.FP32
        expected = step_work(operations, gpus()[row.gpu], precision).timed()
        assert seconds == pytest.approx(expected.seconds, rel=0.02), row


@pytest.mark.longer
@pytest.mark.usefixtures("traced")
def test_the_fit_finds_what_rows_determine_and_leaves_the_rest() -> None:
    import torch

    from benchmarks.step_time.fitting import constants, fit, model_of
    from benchmarks.step_time.table import Table, as_table

    rows = _rows()
    wanted = constants({row.gpu for row in rows})
    true = {name: one.start for name, one in wanted.items()} | {"gpu.a10": 0.8}
    model = as_table(model_of(true.__getitem__, {row.gpu for row in rows}, list))
    seconds = Table(rows).seconds(model, {}).tolist()
    measured = [replace(row, seconds=time) for row, time in zip(rows, seconds, strict=True)]
    table, everything = Table(measured), torch.ones(len(rows), dtype=torch.bool)
    weights = torch.full((len(rows),), 100.0, dtype=torch.float64)
    found = fit(table, everything, weights)
    again = found.seconds(table).tolist()
    assert again == pytest.approx(seconds, rel=0.05)
    assert found.values["gpu.a10"] < 0.95
    assert found.values["ATTENTION.compute"] == pytest.approx(wanted["ATTENTION.compute"].start)


@pytest.mark.usefixtures("traced")
def test_what_is_written_is_what_the_engine_reads(tmp_path: Path) -> None:
    from benchmarks.step_time.fitting import Fitted
    from benchmarks.step_time.writing import as_toml, ranges_as_toml
    from engine.prediction.timing.speed_model import read_model, speed_model

    model = speed_model()
    path = tmp_path / "step_time.toml"
    text = as_toml(Fitted(HOSTS, model), _rows()) + ranges_as_toml(model.ranges, 0.068, 0.242)
    path.write_text(text, encoding="utf-8")
    again = read_model(path)
    assert again.bandwidth == pytest.approx(model.bandwidth)
    assert again.asking == pytest.approx(model.asking)
    assert again.overlap == pytest.approx(model.overlap)
    assert again.launches == pytest.approx(model.launches)
    assert again.unaligned == pytest.approx(model.unaligned)
    assert again.compute == pytest.approx(model.compute)
    assert again.relaid == pytest.approx(model.relaid)
    assert again.half_tiles == pytest.approx(model.half_tiles)
    assert again.half_row == pytest.approx(model.half_row)
    assert again.generations["hopper"].earlier == pytest.approx(model.generations["hopper"].earlier)
    assert again.gpus == pytest.approx(model.gpus)
    assert again.ranges == model.ranges
    assert "36 lambda-v1" in text


def test_kernels_of_a_profile_are_counted_by_group() -> None:
    from benchmarks.step_time.own import seconds_by_group

    rows = [
        ("aten::addmm", "[[4], [8, 4], [4, 4]]", 2, 3e6),
        ("aten::cudnn_convolution", "[[8, 3, 9, 9], [4, 3, 3, 3], []]", 1, 1e6),
        ("aten::convolution_backward", "[[8, 4, 9, 9], [8, 3, 9, 9], [4, 3, 1, 1]]", 1, 2e6),
        ("aten::native_batch_norm", "[[8, 4, 9, 9]]", 1, 4e6),
        ("aten::_fused_adamw_", "[]", 1, 5e6),
        ("aten::_conv_depthwise2d", "[[8, 64, 9, 9], [64, 1, 3, 3], []]", 1, 2e6),
        ("aten::copy_", "[[8, 3, 9, 9]]", 1, 7e6),
        ("Memcpy HtoD (Pageable -> Device)", "[]", 1, 6e6),
        ("some_kernel<float>", "[]", 9, 9e6),  # its operator has its time already
    ]
    assert seconds_by_group(rows) == {
        "PRODUCT": 3.0,
        "CONVOLUTION": 1.0,
        "POINTWISE_CONVOLUTION_BACKWARD": 2.0,
        "OWN_BATCH_NORM": 4.0,
        "OWN_DEPTHWISE_CONVOLUTION": 2.0,
        "MULTI_TENSOR": 5.0,
        "ELEMENTS": 1.0,
    }


def test_our_own_rows_are_those_that_were_timed() -> None:
    from benchmarks.step_time.own import own_rows

    rows = own_rows()
    steps = [row for row in rows if not row.kind]
    assert len(steps) == 87 + 78
    assert {row.source for row in steps} == set(OWN)
    assert all(row.seconds > 0 for row in rows)
    kernels = [row for row in rows if row.kind]
    assert len({(row.gpu, row.trace, row.batch) for row in kernels}) == 8 + 25
    assert not any(row.kind.startswith(("DEPTHWISE", "GROUPED", "LONG")) for row in kernels)
    whole = {row.work_name: row.seconds for row in steps}
    for name, seconds in whole.items():  # kernels of a step run one after another
        assert sum(one.seconds for one in kernels if one.work_name == name) <= 1.06 * seconds


@pytest.mark.longer
def test_a_model_is_traced_as_it_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.step_time import models
    from benchmarks.step_time.tracing import operations, work_of

    tiny = {
        "model_type": "bert", "vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 32,
    }  # fmt: skip
    monkeypatch.setitem(models.CONFIGS, "tiny", tiny)
    job = {
        "trace": "tiny-qa", "size": 8, "precision": "fp16-mixed", "optimizer": "sgd-momentum",
        "channels_last": False,
    }  # fmt: skip
    work = work_of(job)
    names = {name for name, *_ in work}
    assert {"aten.bmm", "aten._softmax", "aten.native_layer_norm_backward"} <= names
    assert {phase for _, _, phase, *_ in work} == {"forward", "backward", "optimizer"}
    # The numbers at two batch sizes give any other.
    at_five = sorted(one.numbers for one in operations(job, 5))
    extended = sorted(
        tuple(a + 3 * (b - a) for a, b in zip(low, high, strict=True))
        for *_, times, low, high in work
        for _ in range(times)
    )
    assert extended == at_five


def _predicted(batch: int, seconds: float, measured: float, filled: float = 1.0) -> object:
    from benchmarks.step_time.predictions import Predicted

    return Predicted(
        "s", "a10", "toy", 224, "fp32", "none", False, batch, True, "transformers", measured,
        seconds, seconds, seconds, filled, False, seconds, seconds, seconds,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("predicted", "measured", "filled", "verdict", "wrong"),
    [
        (1.20, 1.10, 1.0, Verdict.GAIN, False),
        (1.20, 0.98, 1.0, Verdict.GAIN, True),
        (1.08, 0.98, 0.5, Verdict.PROBABLE, False),
        (0.99, 1.02, 1.0, Verdict.NO_GAIN, False),
        (1.01, 1.00, 1.0, Verdict.NO_GAIN, False),
        (0.99, 1.20, 1.0, Verdict.NO_GAIN, True),
    ],
)
def test_a_sure_verdict_is_held_against_the_measured_ratio(
    predicted: float, measured: float, filled: float, verdict: Verdict, wrong: bool
) -> None:
    rows = [_predicted(1, 1.0, 1.0, filled), _predicted(2, 2 / predicted, 2 / measured, filled)]
    (found,) = figures(rows).sweeps  # type: ignore[arg-type]  # stand-ins of the same shape
    assert (found.verdict, found.wrong) == (verdict, wrong)
    assert found.low <= found.predicted <= found.high


@pytest.fixture(scope="module")
def published() -> tuple[Predicted, ...]:
    """The published predictions."""
    return tuple(predictions.read())


@pytest.fixture(scope="module")
def shown(published: tuple[Predicted, ...]) -> Figures:
    """The report of the published predictions."""
    return figures(list(published))


@pytest.mark.slow
def test_the_published_predictions_give_every_table(
    published: tuple[Predicted, ...], shown: Figures
) -> None:
    assert len(tables(shown)) == 6
    assert shown.errors[0].rows == sum(row.fitted for row in published)
    assert shown.errors[0].median < 0.1
    assert not any(sweep.wrong for sweep in shown.sweeps)
    assert all(one.within >= 0.85 * one.rows for one in shown.coverage)


def test_what_the_fit_writes_needs_no_ranges_yet(
    published: tuple[Predicted, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.step_time import report

    monkeypatch.setattr(report, "step_time_range", lambda *_: pytest.fail("there are none"))
    assert report.unseen_error(published).rows == sum(row.fitted for row in published)
    assert len(report.ranges_of(published)) == 12


def test_steps_of_several_gpus_are_shown_but_are_no_checks(
    published: tuple[Predicted, ...], shown: Figures
) -> None:
    rows = {one.group.strip(): one.rows for one in shown.errors}
    several = sum(row.source in ON_SEVERAL_GPUS for row in published)
    assert rows["llm-foundry: 8 GPUs, predicted as one"] == several > 0
    assert rows["checks: never fitted"] == sum(not row.fitted for row in published) - several


def test_predictions_are_read_as_they_were_written(tmp_path: Path) -> None:
    from benchmarks.step_time.predictions import read, write

    rows: Sequence[Predicted] = [_predicted(3, 0.25, 0.5)]  # type: ignore[list-item]  # stand-ins of the same shape
    write(rows, tmp_path / "rows.csv")
    assert read(tmp_path / "rows.csv") == rows


def test_measured_steps_bring_published_predictions_closer(shown: Figures) -> None:
    assert [one.rows > 10 for one in shown.learned] == [True, True]
    for one in shown.learned:
        assert one.median < 1.05 * one.before
        assert one.percentile_90 < 0.95 * one.before_percentile_90


def test_the_engine_takes_the_spreads_that_were_found(shown: Figures) -> None:
    taken = (correction.GPU_SPREAD, correction.WORKLOAD_SPREAD, correction.STEP_SPREAD)
    for spread, value in zip(shown.spreads, taken, strict=True):
        assert value == pytest.approx(spread.deviation, abs=0.01), spread.cause


def test_the_noise_of_moves_holds_for_published_pairs_of_precisions(
    published: tuple[Predicted, ...],
) -> None:
    """Pairs of one model on one GPU, by constants fitted without that model."""
    setups: dict[tuple[object, ...], list[Predicted]] = defaultdict(list)
    for row in published:
        if row.fitted:
            setup = (row.source, row.gpu, row.trace, row.size, row.optimizer, row.channels_last)
            setups[setup].append(row)
    pairs = [
        pair
        for rows in setups.values()
        for pair in combinations(rows, 2)
        if pair[0].precision != pair[1].precision
    ]
    within = sum(_ratio_holds(*pair) for pair in pairs)
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert f"±{100 * MOVES_NOISE:.0f}%, which holds for {within} of {len(pairs)} published" in text
    assert f"±{100 * GPUS_NOISE:.0f}%, which holds for 90% of" in text


def _ratio_holds(one: Predicted, other: Predicted) -> bool:
    off = (one.measured / other.measured) / (one.unseen / other.unseen)
    return 1 / (1 + MOVES_NOISE) <= off <= 1 + MOVES_NOISE
