"""``check``: a training run's file against a GPU, with an exit status for pipelines."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engine.answer.check import Limits, check
from engine.cli.main import main
from engine.cli.tests.test_render import ANALYSIS, TOTAL, trial
from engine.core.errors import DoesNotFit, MeasurementFailed
from engine.interface.request import AnalysisRequest
from engine.interface.result import AnalysisResult
from engine.interface.trial import Trial
from engine.script.tests.scripts import EXAMPLE

BERT = 'model = "bert"\nbatch_size = 16\n'
SLOW = "[check]\nmin_share_of_recommended_speed = {}\n"


def _answer(**current: Any) -> AnalysisResult:
    """An analysis of batch 16, 1 / 1.405 as fast as the recommended batch 64."""
    trials: list[Trial] = [replace(trial(16), **current), trial(64)]
    found = replace(ANALYSIS, trials=trials, speedup_low=1.38, speedup_high=1.43)
    return found if trials[0].fits else replace(found, speedup=None, speedup_low=None)


@pytest.fixture
def described(tmp_path: Path) -> Callable[[str], list[str]]:
    """Writes a config file; returns the arguments that check it."""

    def write(text: str) -> list[str]:
        path = tmp_path / "training.toml"
        path.write_text(text, encoding="utf-8")
        return ["check", "--config", str(path), "--gpu", "a10"]

    return write


@pytest.fixture
def analysis(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[AnalysisRequest]]:
    """Replaces the analysis, which would load torch, by an answer; records the requests."""

    def put(answer: AnalysisResult | Exception) -> list[AnalysisRequest]:
        asked: list[AnalysisRequest] = []

        def analyze(request: AnalysisRequest, emit: object) -> AnalysisResult:
            asked.append(request)
            if isinstance(answer, Exception):
                raise answer
            return answer

        module = ModuleType("engine.analysis")
        vars(module)["analyze"] = analyze
        monkeypatch.setitem(sys.modules, "engine.analysis", module)
        return asked

    return put


Described = Callable[[str], list[str]]
Put = Callable[..., list[AnalysisRequest]]


def test_a_batch_that_fits_gives_one_sentence_and_status_0(
    described: Described, analysis: Put, capsys: pytest.CaptureFixture[str]
) -> None:
    (asked, status) = (analysis(_answer()), main(described(BERT)))
    assert status == 0
    assert capsys.readouterr().out == (
        "Batch 16 of BERT base fits on NVIDIA A10: it needs 2.75 of 22.00 GiB, and is 71% as "
        "fast as the recommended batch 64 (predicted).\n"
    )
    assert (asked[0].gpu, asked[0].current_batch_size) == ("a10", 16)


def test_every_field_of_a_request_can_be_set_in_the_file(
    described: Described, analysis: Put, tmp_path: Path
) -> None:
    asked = analysis(_answer())
    text = BERT + (
        'precision = "bf16-mixed"\ngradient_checkpointing = true\ngpu = "t4"\n'
        'memory_limit_bytes = "8GiB"\nprice_per_hour_usd = 1.5\nglobal_batch_size = 64\n'
    )
    assert main(described(text)) == 0
    (request,) = asked
    assert request == AnalysisRequest.parse(
        {
            "model": "bert",
            "current_batch_size": 16,
            "gpu": "a10",  # the flag overrides the file
            "precision": "bf16-mixed",
            "gradient_checkpointing": True,
            "memory_limit_bytes": 8 * 2**30,
            "price_per_hour_usd": 1.5,
            "global_batch_size": 64,
        }
    )


def test_the_file_can_set_the_gpu(described: Described, analysis: Put) -> None:
    asked = analysis(_answer())
    assert main(described(f'{BERT}gpu = "h100"\n')[:3]) == 0
    assert asked[0].gpu.startswith("h100")


def test_a_batch_that_does_not_fit_fails_and_names_one_that_does(
    described: Described, analysis: Put, capsys: pytest.CaptureFixture[str]
) -> None:
    analysis(_answer(fits=False, device_used_bytes=23 * 2**30))
    assert main(described(BERT)) == 1
    assert capsys.readouterr().out == (
        "Batch 16 of BERT base does not fit on NVIDIA A10: it needs 23.00 of 22.00 GiB "
        "(predicted). Batch 320 does.\n"
    )


def test_a_batch_that_may_not_fit_fails_unless_optimistic(
    described: Described, analysis: Put, capsys: pytest.CaptureFixture[str]
) -> None:
    near = replace(_answer(device_used_high_bytes=TOTAL + 1), safe_batch_size=12)
    analysis(near)
    assert main(described(BERT)) == 1
    assert capsys.readouterr().out == (
        "Batch 16 of BERT base may not fit on NVIDIA A10: it needs 2.75 (at most 22.00) of "
        "22.00 GiB (predicted). Batch 12 is safe even then.\n"
    )
    assert main([*described(BERT), "--optimistic"]) == 0
    analysis(replace(near, safe_batch_size=0))
    assert main(described(BERT)) == 1
    assert "No batch is certain to fit" in capsys.readouterr().out


def test_a_high_end_of_exactly_all_memory_passes() -> None:
    assert check(_answer(device_used_high_bytes=TOTAL), Limits()).passed


def test_a_model_that_fits_at_no_batch_fails_with_the_engines_message(
    described: Described, analysis: Put, capsys: pytest.CaptureFixture[str]
) -> None:
    analysis(DoesNotFit("BERT base does not fit: batch 1 needs 30 GiB"))
    assert main([*described(BERT), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["passed"] is False
    assert answer["verdict"] == "BERT base does not fit: batch 1 needs 30 GiB"
    assert answer["current_batch_size"] == 16


@pytest.mark.parametrize(
    ("least", "status"),
    [
        (0.5, 0),
        (0.71, 0),  # 1 / 1.405 = 0.712
        (0.72, 0),  # the share is below, the high end of its interval (1 / 1.38 = 0.725) is not
        (0.73, 1),
        (1, 1),
    ],
)
def test_a_training_run_fails_if_surely_slower_than_required(
    least: float,
    status: int,
    described: Described,
    analysis: Put,
    capsys: pytest.CaptureFixture[str],
) -> None:
    analysis(_answer())
    assert main(described(BERT + SLOW.format(least))) == status
    said = capsys.readouterr().out
    assert ("is too slow on NVIDIA A10: 71% as fast as the recommended" in said) == (status == 1)


def test_json_output_has_the_numbers(
    described: Described, analysis: Put, capsys: pytest.CaptureFixture[str]
) -> None:
    analysis(_answer(device_used_high_bytes=3 * 2**30))
    assert main([*described(BERT), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer.pop("verdict").startswith("Batch 16 of BERT base fits")
    assert answer.pop("share_of_recommended_speed") == pytest.approx(1 / 1.405)
    assert (answer.pop("software"), answer.pop("profile")) == ({}, None)
    assert answer == {
        "passed": True,
        "source": "predicted",
        "current_batch_size": 16,
        "recommended_batch_size": 64,
        "device_used_bytes": 11 * 2**28,
        "device_used_high_bytes": 3 * 2**30,
        "total_bytes": TOTAL,
        "largest_batch_size": 320,
        "step_seconds": pytest.approx(0.026),
    }


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("model = bert", ["--config: ", "training.toml is not valid TOML: ", "line 1"]),
        (BERT + "batch = 8", ["batch: unknown key; known are activation_offload, adapter,"]),
        (BERT + "current_batch_size = 8", ["batch_size: write batch_size, not"]),
        (BERT + "[check]\nmax_waste = 0.3", ["check.max_waste: unknown key; known are min_share"]),
        ("check = 1\n" + BERT, ["check: '1' is not a table; write [check]"]),
        (
            BERT + SLOW.format(1.5),
            ["check.min_share_of_recommended_speed: enter a number from 0 to 1"],
        ),
        (BERT + SLOW.format("nan"), ["check.min_share_of_recommended_speed: enter a number"]),
        ('model = "bert"', ["batch_size: add the batch size of the training run"]),
        ('model = "bert"\nbatch_size = 0', ["batch_size: enter a whole number from 1"]),
        ("batch_size = 16", ["model: choose one of the "]),
        ('model = "bertt"\nbatch_size = 16', ["model: unknown model 'bertt'"]),
        (BERT + 'precision = "fp8"', ["precision: choose one of fp32,"]),
        (BERT + "precision = 8", ["precision: choose one of fp32,"]),
        (BERT + "[model_config]", ["model_config: unknown key"]),
        ('batch_size = 16\nconfig = "none.json"', ["config: ", "cannot be read: "]),
        ('batch_size = 16\nfactory = "mine"', ["factory: 'mine' is not a function"]),
    ],
)
def test_a_mistake_in_the_file_is_reported_by_key_with_status_2(
    text: str,
    messages: list[str],
    described: Described,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(described(text)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith(f"error: {messages[0]}")
    assert all(message in err for message in messages)


def test_a_missing_or_unreadable_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--config", str(tmp_path / "none.toml"), "--gpu", "a10"]) == 2
    assert "none.toml cannot be read: No such file" in capsys.readouterr().err
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    assert main(["check", "--config", str(tmp_path / "binary.toml"), "--gpu", "a10"]) == 2
    assert "binary.toml is not valid TOML" in capsys.readouterr().err


def test_an_unknown_gpu_is_reported_by_flag(
    described: Described, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*described(BERT)[:3], "--gpu", "b10"]) == 2
    assert capsys.readouterr().err.startswith("error: --gpu: unknown gpu 'b10'")
    assert main(described(BERT)[:3]) == 2
    assert "error: --gpu: choose a catalogue GPU" in capsys.readouterr().err


def test_an_engine_failure_gives_no_verdict(
    described: Described, analysis: Put, capsys: pytest.CaptureFixture[str]
) -> None:
    analysis(MeasurementFailed("no driver"))
    assert main(described(BERT)) == 1
    assert capsys.readouterr() == ("", "error: no driver\n")


def test_the_keys_in_the_guide_are_accepted(described: Described, analysis: Put) -> None:
    document = (Path(__file__).parents[3] / "docs" / "check.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", document, re.DOTALL)
    asked = analysis(_answer())
    assert main(described(example)) == 0
    assert asked[0].workload.precision == "bf16-mixed"


@pytest.mark.slow
@pytest.mark.torch
class TestForReal:
    """The engine itself behind the check, without a GPU."""

    def test_a_model_that_fits_and_one_that_does_not(
        self, described: Described, capsys: pytest.CaptureFixture[str]
    ) -> None:
        small = 'model = "distilbert"\nsequence_length = 32\nbatch_size = {}\n'
        small += 'memory_limit_bytes = "2GiB"\nbatch_multiple = 8\n'
        assert main([*described(small.format(8)), "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["device_used_high_bytes"] <= answer["total_bytes"] == 2**31
        assert main(described(small.format(4096))) == 1
        assert "does not fit on NVIDIA A10 limited to 2.00 GiB" in capsys.readouterr().out

    def test_a_script_can_be_checked(
        self, described: Described, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([*described(f'factory = "{EXAMPLE}"\nbatch_size = 8\n'), "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert (answer["passed"], answer["source"]) == (True, "predicted")
