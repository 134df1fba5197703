"""``validate prediction``: predictions compared with real steps."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console, RenderableType

from engine.cli import main as cli
from engine.core.errors import InvalidInput
from engine.events import Event
from engine.interface.trial import Source, Trial
from engine.measurement import checks as validate_prediction
from engine.measurement import cpu, steps
from engine.measurement.checks import Fit, PredictionCheck, summarize, validate_local
from engine.measurement.protocol import DeviceFacts, TrialOrder
from engine.prediction.timing.intervals import PUBLISHED, Counted, read_residuals

MIB = 2**20
PUBLISHED_ROWS = read_residuals(PUBLISHED)
CPU = DeviceFacts("cpu", "a CPU", 64 * 2**30, 0, 0.0)


def quiet(event: Event) -> None:
    """Ignores events."""


def shown(rendered: RenderableType) -> str:
    out = io.StringIO()
    Console(file=out, width=80).print(rendered)
    return out.getvalue()


@pytest.fixture
def measured_here(small_models: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small models, measured in this process: a child process would use the full ones."""
    monkeypatch.setattr(validate_prediction, "local_device", lambda: CPU)
    monkeypatch.setattr(validate_prediction, "measure", cpu.run_trial)
    monkeypatch.setattr(steps, "TIMED_STEPS", 1)


@pytest.mark.slow
@pytest.mark.usefixtures("measured_here")
def test_on_the_cpu_predictions_are_exact_and_can_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.toml"
    given = ["resnet", "--gpu", "local", "--memory-limit", "64MiB", "--write", str(path), "--json"]
    assert cli.main(["validate", "prediction", *given]) == cli.OK
    out, err = capsys.readouterr()
    check = json.loads(out)
    assert check["source"] == Source.MEASURED
    assert check["worst_error"] == 0
    assert {one["residual"]["counted"] for one in check["comparisons"]} == {Counted.LIVE}
    assert check["false_safe_rate"] == 0
    # The largest predicted to fit does, and the next one does not.
    last, next_one = check["fits"][-2:]
    assert (last["predicted"], last["measured"]) == (True, True)
    assert (next_one["predicted"], next_one["measured"]) == (False, False)
    assert next_one["batch_size"] == last["batch_size"] + 1

    rows = read_residuals(path)
    assert rows
    assert all(row.ratio == 1 for row in rows)
    assert rows[0].workload == {"model": "resnet"}
    assert torch.__version__ in rows[0].source
    assert f"{len(rows)} rows added" in err


@pytest.mark.longer
@pytest.mark.usefixtures("measured_here")
def test_a_batch_predicted_to_fit_that_does_not_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails_at_the_limit(order: TrialOrder) -> Trial:
        fits = order.batch_size <= 2
        return Trial(order.batch_size, fits, Source.MEASURED, 50 * MIB if fits else None)

    monkeypatch.setattr(validate_prediction, "measure", fails_at_the_limit)
    check = validate_local(["resnet"], 64 * MIB, quiet)
    assert check.false_safe_rate == pytest.approx(1 / 2)
    assert "of 2 batches predicted to fit, 1 did not" in check.verdict


@pytest.mark.longer
@pytest.mark.usefixtures("measured_here")
def test_nothing_is_compared_where_nothing_fits() -> None:
    with pytest.raises(InvalidInput, match="nothing fits"):
        validate_local(["resnet"], MIB, quiet)


@pytest.mark.longer
@pytest.mark.usefixtures("small_models")
def test_a_cuda_device_gives_every_number(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = DeviceFacts("cuda", "NVIDIA A10", 23_696_375_808, 268_435_456, 8.6)
    limit = 6 * 2**30

    def measure(order: TrialOrder) -> Trial:
        if order.batch_size > 40:
            return Trial(order.batch_size, False, Source.MEASURED, failure="out of memory")
        return Trial(order.batch_size, True, Source.MEASURED, 2**31, 2**31, 2**32, 0.5, 4.0)

    monkeypatch.setattr(validate_prediction, "local_device", lambda: gpu)
    monkeypatch.setattr(validate_prediction, "measure", measure)
    monkeypatch.setattr("engine.prediction.probe.host_decides", lambda _: False)
    check = validate_local(["bert"], limit, quiet)
    assert {compared.residual.counted for compared in check.comparisons} == {
        Counted.PEAK_ALLOCATED,
        Counted.PEAK_RESERVED,
        Counted.DEVICE_USED,
        Counted.STEP_SECONDS,
    }
    assert {compared.residual.gpu for compared in check.comparisons} == {"a10"}


def prediction_check(**changed: Any) -> PredictionCheck:
    given: dict[str, Any] = {"fits": [Fit("bert", 9, True, False)], "false_safe_rate": 1.0}
    return replace(summarize("a GPU", PUBLISHED_ROWS, [], Source.PREDICTED), **given | changed)


@pytest.mark.slow
def test_known_measurements_can_be_predicted_again_without_a_device(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["validate", "prediction", "--json"]) == cli.OK
    answer = json.loads(capsys.readouterr().out)
    assert answer["source"] == "predicted"
    assert answer["false_safe_rate"] is None
    assert answer["worst_error"] < 0.03
    assert len(answer["comparisons"]) >= 5


def test_the_error_is_that_of_the_prediction() -> None:
    one = PUBLISHED_ROWS[0]
    check = summarize("a GPU", [one], [], Source.MEASURED)
    assert check.worst_error == pytest.approx(abs(1 / one.ratio - 1))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gpu", "a10"], "only local is measured"),
        (["bert"], "--gpu local"),
        (["--write"], "--gpu local"),
        (["--gpu", "local", "--memory-limit", "much"], "not a size"),
    ],
)
def test_bad_input_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["validate", "prediction", *arguments]) == cli.BAD_INPUT
    assert said in capsys.readouterr().err


def test_the_table_marks_batches_wrongly_predicted_to_fit() -> None:
    from engine.cli.render_checks import render_prediction

    text = shown(render_prediction(prediction_check()))
    assert "peak allocated, forward only" in text.replace("\n", " ") or "forward only" in text
    assert "does not fit" in text
