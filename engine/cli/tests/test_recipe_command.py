"""Recipes on the command line, in the place of a model."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from engine.cli.main import BAD_INPUT, OK, main
from engine.cli.tests.test_render import A10, ANALYSIS, trial
from engine.core.errors import InvalidInput
from engine.interface.request import AnalysisRequest
from engine.interface.result import AnalysisResult

EXAMPLES = Path(__file__).parents[2] / "examples" / "recipes"
AXOLOTL = str(EXAMPLES / "axolotl.yaml")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[AnalysisRequest]:
    """Replaces predictions and analyses, which would load torch; records their requests."""
    requests: list[AnalysisRequest] = []

    def predict_batch(request: AnalysisRequest, *_: Any, **__: Any) -> SimpleNamespace:
        requests.append(request)
        return SimpleNamespace(
            step=None,
            predicted_on=None,
            gpu=A10,
            trial=trial(request.known_batch_size),
            phases=[],
            caveats=[],
        )

    def analyze(request: AnalysisRequest, *_: Any, **__: Any) -> AnalysisResult:
        requests.append(request)
        return ANALYSIS

    predicting, analysing = ModuleType("engine.prediction.one_batch"), ModuleType("engine.analysis")
    vars(predicting)["predict_batch"] = predict_batch
    vars(analysing)["analyze"] = analyze
    monkeypatch.setitem(sys.modules, predicting.__name__, predicting)
    monkeypatch.setitem(sys.modules, analysing.__name__, analysing)
    return requests


def test_predict_answers_for_the_recipes_batch(
    asked: list[AnalysisRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", AXOLOTL, "--gpu", "a10"]) == OK
    assert asked[0].current_batch_size == 2
    assert asked[0].workload.model == "llama-3.2-1b"
    text = " ".join(capsys.readouterr().out.split())
    assert "Read as a recipe of axolotl 0.18.0" in text
    assert "Assumed by axolotl 0.18.0" in text
    assert "learning_rate, output_dir." in text


def test_a_flag_beside_the_recipe_wins_and_the_answer_says_so(
    asked: list[AnalysisRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", AXOLOTL, "--gpu", "a10", "--batch-size", "8", "--json"]) == OK
    assert asked[0].current_batch_size == 8
    answer = json.loads(capsys.readouterr().out)
    assert answer["recipe"]["framework"] == "axolotl"
    assert answer["recipe"]["release"] == "0.18.0"
    assert answer["recipe"]["given_beside"] == {"current_batch_size": "micro_batch_size"}
    assert "output_dir" in answer["recipe"]["not_used"]
    assert any("instead of micro_batch_size" in sentence for sentence in answer["caveats"])


def test_analyze_and_check_take_recipes(
    asked: list[AnalysisRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", AXOLOTL, "--gpu", "a10"]) == OK
    assert "recipe of axolotl" in capsys.readouterr().out
    assert main(["check", AXOLOTL, "--gpu", "a10", "--batch-size", "16", "--json"]) == OK
    assert json.loads(capsys.readouterr().out)["recipe"]["framework"] == "axolotl"
    assert [request.current_batch_size for request in asked] == [2, 16]
    assert main(["check", AXOLOTL, "--gpu", "a10", "--batch-size", "16"]) == OK
    output = capsys.readouterr()
    assert len(output.out.splitlines()) == 1
    assert "recipe of axolotl" in output.err


def test_arguments_of_ms_swift_may_be_json(asked: list[AnalysisRequest], tmp_path: Path) -> None:
    path = tmp_path / "sft.json"
    path.write_text('{"model": "Qwen/Qwen3-0.6B", "tuner_type": "full", "max_length": 256}')
    assert main(["predict", str(path), "--gpu", "a100-80gb"]) == OK
    assert asked[0].workload.sequence_length == 256


def test_a_models_config_is_still_one(asked: list[AnalysisRequest], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "gpt2", "n_layer": 2, "architectures": ["GPT2LMHeadModel"]}')
    assert main(["predict", str(path), "--gpu", "a10", "--batch-size", "2"]) == OK
    assert asked[0].workload.config is not None


def test_a_local_model_is_described_by_its_config(
    asked: list[AnalysisRequest], tmp_path: Path
) -> None:
    recipe, config = tmp_path / "recipe.yml", tmp_path / "config.json"
    recipe.write_text("base_model: ./models/ours\nsequence_len: 128\n")
    config.write_text('{"model_type": "gpt2", "n_layer": 2}')
    assert main(["predict", str(recipe), "--gpu", "a10", "--config", str(config)]) == OK
    assert asked[0].workload.model == "./models/ours"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("base_model: bert\nsequence_leng: 5\n", "error: sequence_leng: line 2: axolotl 0.18.0 "),
        ("base_model: nowhere\n", "error: base_model: line 1: unknown model 'nowhere'"),
        ("base_model: gpt2\noptimizer: lomo\n", "error: optimizer: line 2: lomo is not predicted"),
        ("a: 1\na: 2\n", "error: a: lines 1 and 2: it is written twice"),
        ("[", "error: recipe: this is not YAML"),
    ],
)
def test_what_is_wrong_is_named_by_its_key_and_line(
    text: str, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    assert main(["predict", str(path), "--gpu", "a10"]) == BAD_INPUT
    assert capsys.readouterr().err.startswith(error)


def test_a_wrong_flag_beside_the_recipe_is_named_as_a_flag(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["predict", AXOLOTL, "--gpu", "a10", "--lora-rank", "none"]) == BAD_INPUT
    assert capsys.readouterr().err.startswith("error: --lora-rank: ")
    assert main(["predict", AXOLOTL, "--gpu", "a10", "--framework", "nemo"]) == BAD_INPUT
    assert "error: --framework: 'nemo' is not read" in capsys.readouterr().err


def test_what_the_engine_finds_out_is_named_by_its_key_too(
    asked: list[AnalysisRequest],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise InvalidInput({"attention": "choose sdpa", "gpu": "choose another"})

    monkeypatch.setattr(sys.modules["engine.prediction.one_batch"], "predict_batch", refuse)
    assert main(["predict", AXOLOTL, "--gpu", "a10"]) == BAD_INPUT
    lines = capsys.readouterr().err.splitlines()
    assert "error: attn_implementation: line 21: choose sdpa" in lines
    assert "error: --gpu: choose another" in lines
    assert not asked


def test_a_missing_recipe_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "none.yaml", "--gpu", "a10"]) == BAD_INPUT
    assert "error: recipe: 'none.yaml' cannot be read" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.torch
def test_a_recipe_is_predicted_for_real(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, config = tmp_path / "recipe.yaml", tmp_path / "config.json"
    recipe.write_text(
        "base_model: ours\nsequence_len: 64\nadapter: lora\nlora_r: 4\n"
        "lora_target_modules: [c_attn]\nmicro_batch_size: 2\n"
    )
    config.write_text('{"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2}')
    command = ["predict", str(recipe), "--gpu", "a10", "--config", str(config), "--json"]
    assert main(command) == OK
    answer = json.loads(capsys.readouterr().out)
    assert answer["fits"]
    assert answer["recipe"]["assumed"]["optimizer"] == "adamw_torch_fused"


ACCELERATED = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator()
model = torch.nn.Linear(1024, 1024)
optimizer = torch.optim.SGD(model.parameters())
data = DataLoader(TensorDataset(torch.randn(64, 1024)), batch_size=8)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for (x,) in data:
    assert (accelerator.num_processes, accelerator.mixed_precision) == (4, "bf16")
    accelerator.backward(model(x).float().sum())
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def own_variables() -> Iterator[None]:
    """Takes back variables that a command sets for its whole process.

    The process has trained with Accelerate before, which keeps that it was alone.
    """
    from accelerate import PartialState

    with patch.dict(os.environ), patch.dict(PartialState._shared_state):
        PartialState(cpu=True)
        yield


@pytest.mark.longer
@pytest.mark.usefixtures("own_variables")
def test_a_script_is_launched_as_accelerates_config_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, config = tmp_path / "train.py", tmp_path / "four.yaml"
    script.write_text(ACCELERATED)
    config.write_text("distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 4\n")
    given = ["predict", str(script), "--gpu", "a10", "--batch-size", "8", "--json"]
    assert main([*given, "--accelerate-config", str(config)]) == OK
    answer = json.loads(capsys.readouterr().out)
    assert answer["caveats"][0] == (
        "Launched as four.yaml says: 4 processes, mixed precision bf16."
    )


@pytest.mark.longer
@pytest.mark.usefixtures("own_variables")
def test_the_commands_that_repeat_an_answer_launch_the_script_so_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, config = tmp_path / "train.py", tmp_path / "four.yaml"
    script.write_text(ACCELERATED)
    config.write_text("distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 4\n")
    given = ["analyze", str(script), "--gpu", "a10", "--current-batch-size", "8", "--json"]
    assert main([*given, "--accelerate-config", str(config)]) == OK
    repeated = json.loads(capsys.readouterr().out)["certificate"]
    assert len(repeated) == 2
    assert all(f"--accelerate-config={config}" in command for command in repeated)


@pytest.mark.usefixtures("own_variables")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--framework", "trl"], "--framework: it is the framework of a recipe, and this is a"),
        (["--accelerate-config", "missing.yaml"], "--accelerate-config: 'missing.yaml' cannot be"),
    ],
)
@pytest.mark.parametrize("command", ["predict", "analyze", "plan", "check"])
def test_beside_a_script_no_flag_is_passed_over(
    command: str, words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(ACCELERATED)
    size = ["--batch-size", "8"] if command in ("predict", "check") else []
    assert main([command, str(script), "--gpu", "a10", *size, *words]) == BAD_INPUT
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("own_variables")
def test_a_measured_script_is_one_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, config = tmp_path / "train.py", tmp_path / "four.yaml"
    script.write_text(ACCELERATED)
    config.write_text("distributed_type: MULTI_GPU\nnum_processes: 4\n")
    given = ["measure", str(script), "--batch-size", "8", "--accelerate-config", str(config)]
    assert main(given) == BAD_INPUT
    assert "a script is measured as one process" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--framework", "--accelerate-config"])
@pytest.mark.parametrize("command", ["predict", "analyze", "measure", "plan"])
def test_beside_a_model_they_are_refused(
    command: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ["--batch-size", "8"] if command in ("predict", "measure") else []
    gpu = [] if command == "measure" else ["--gpu", "a10"]
    assert main([command, "gpt2", *size, *gpu, flag, "trl"]) == BAD_INPUT
    assert f"{flag}: it " in capsys.readouterr().err
