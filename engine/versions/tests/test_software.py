"""The versions that an answer is for, and the warning where they are not the asker's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from runpy import run_module

import pytest

from engine.cli.main import main
from engine.core.errors import InvalidInput
from engine.events import Event, Log
from engine.interface.request import AnalysisRequest
from engine.interface.workload import Workload
from engine.script.factory import Factory
from engine.script.request import ScriptRequest
from engine.versions import software

Install = Callable[[Path, str, str], None]


@pytest.fixture
def install() -> Install:
    """Leaves what a package leaves in an environment."""

    def leave(home: Path, name: str, number: str) -> None:
        info = home / "lib" / "python3.12" / "site-packages" / f"{name}-{number}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")

    return leave


def test_a_workload_keeps_versions_in_one_order() -> None:
    workload = Workload("bert", software="torch==2.6.0, transformers=4.51.3")
    assert workload.software == "transformers=4.51.3,torch=2.6.0"
    assert Workload.parse(workload.to_dict()) == workload


def test_versions_that_cannot_be_read_are_refused_at_their_field() -> None:
    with pytest.raises(InvalidInput) as refused:
        AnalysisRequest.parse({"model": "bert", "gpu": "a10", "software": "newest"})
    assert list(refused.value.fields) == ["software"]


def test_a_script_has_versions_too() -> None:
    factory = Factory.of("engine.examples.my_training:make_step")
    request = ScriptRequest.parse(factory, {"software": "torch==2.6.0"})
    assert request.software == "torch=2.6.0"


def test_only_other_versions_are_worth_a_word() -> None:
    here = {"transformers": "5.23.0", "torch": "2.13.0+cpu"}
    assert software.caveat("", here) == []
    assert software.caveat("transformers=5.23.0,torch=2.13.0", here) == []
    (said,) = software.caveat("transformers=4.51.3,torch=2.13.0", here)
    assert said.startswith("These numbers are for transformers 5.23.0, not transformers 4.51.3.")
    assert "T5 and GPT" in said
    (said,) = software.caveat("torch=2.13.0,peft=0.14.0,trl=0.9.6", here)
    assert said == "Not traced: peft 0.14.0, trl 0.9.6. Memory may differ between versions."


def test_quantized_experts_differ_several_times_across_transformers_5() -> None:
    here = {"transformers": "5.23.0"}

    def told(wanted: str, *, quantizes_experts: bool = True) -> str:
        (said,) = software.caveat(wanted, here, quantizes_experts=quantizes_experts)
        return said

    assert "may differ several times" in told("transformers=4.46.0")
    assert "2% to 11%" not in told("transformers=4.46.0")
    assert "2% to 11%" in told("transformers=5.0.0")
    assert "2% to 11%" in told("transformers=4.46.0", quantizes_experts=False)


@pytest.mark.parametrize(
    ("model", "quantization", "several"),
    [
        ("mixtral-8x7b", "nf4", True),
        ("mixtral-8x7b", "none", False),
        ("llama-3.2-1b", "nf4", False),
    ],
)
def test_a_workload_knows_whether_it_quantizes_experts(
    model: str, quantization: str, several: bool
) -> None:
    lora = {"lora_rank": 8, "precision": "bf16-true", "software": "transformers=4.46.0"}
    workload = Workload.parse({"model": model, "quantization": quantization, **lora})
    assert ("several times" in workload.software_caveats[0]) is several


def test_a_workload_depends_on_peft_only_with_lora() -> None:
    plain, adapted = Workload("bert"), Workload("bert", lora_rank=8)
    assert set(plain.versions_here) == {"transformers", "torch"}
    assert set(adapted.versions_here) == {"transformers", "torch", "peft"}


def test_the_versions_of_a_project_are_those_of_its_environment(
    tmp_path: Path, install: Install
) -> None:
    install(tmp_path / ".venv", "transformers", "4.44.2")
    install(tmp_path / ".venv", "numpy", "1.26.4")
    install(tmp_path / "active", "torch", "2.6.0")
    assert software.of_project(tmp_path, {}) == {"transformers": "4.44.2"}
    active = {"VIRTUAL_ENV": str(tmp_path / "active")}
    assert software.of_project(tmp_path, active) == {"torch": "2.6.0"}


def test_a_project_in_the_environment_that_runs_has_no_versions_of_its_own(
    tmp_path: Path, install: Install
) -> None:
    install(tmp_path / ".venv", "transformers", "4.44.2")
    assert software.of_project(tmp_path, {"VIRTUAL_ENV": sys.prefix}) == {}
    assert software.of_project(tmp_path / "elsewhere", {}) == {}


@pytest.mark.torch
def test_an_architecture_that_a_release_lacks_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from engine.step import transformers_versions
    from engine.step.building import new_model

    monkeypatch.setattr(transformers_versions, "CONFIG_MAPPING", {"bert": object})
    with pytest.raises(InvalidInput, match=r"transformers [0-9.]+ has no models of the type qwen3"):
        new_model(Workload("qwen3-0.6b"))


@pytest.mark.torch
def test_a_release_without_a_table_of_forecasters_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.auto import modeling_auto

    name = "MODEL_FOR_TIME_SERIES_PREDICTION_MAPPING_NAMES"
    monkeypatch.delattr(modeling_auto, name, raising=False)
    older = run_module("engine.step.transformers_versions", run_name="older")
    assert "PatchTSTConfig" in {
        key.__name__ for key in older["AutoModelForPrediction"]._model_mapping
    }


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.usefixtures("small_models", "kept_traces")
def test_an_answer_names_its_versions_and_warns_of_others() -> None:
    from engine.analysis import analyze

    events: list[Event] = []
    fields = {"model": "bert", "gpu": "a10", "sequence_length": 8, "current_batch_size": 2}
    request = AnalysisRequest.parse(fields | {"software": "transformers=4.1.0"})
    result = analyze(request, events.append)
    assert result.software == request.workload.versions_here
    assert "not transformers 4.1.0" in result.caveats[0]
    warnings = [event for event in events if isinstance(event, Log) and event.level == "warning"]
    assert [warning.message for warning in warnings] == result.caveats[:1]


@pytest.mark.longer
@pytest.mark.torch
@pytest.mark.usefixtures("small_models", "kept_traces")
def test_the_command_line_warns_of_the_projects_versions(
    tmp_path: Path,
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    install(tmp_path / ".venv", "transformers", "4.44.2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    assert (
        main(["predict", "bert", "--gpu", "a10", "--batch-size", "2", "--sequence-length", "8"])
        == 0
    )
    printed = capsys.readouterr()
    assert "not transformers 4.44.2" in printed.err
    assert f"With transformers {software.installed()['transformers']}" in " ".join(
        printed.out.split()
    )
