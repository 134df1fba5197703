"""Models of the Hugging Face hub: only their config, and a clear error where it is unavailable."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import errors

from engine.analysis import analyze
from engine.core.errors import InvalidInput
from engine.hub import SWITCH, download_config, resolve
from engine.interface.request import AnalysisRequest
from engine.interface.trial import Source, Trial
from engine.interface.workload import Workload
from engine.measurement import checks
from engine.measurement.protocol import DeviceFacts, TrialOrder
from engine.models.presets import PRESETS
from engine.models.tasks import Kind, Task
from engine.prediction.plans.plan import plan
from engine.prediction.timing.intervals import Counted, append_residuals

# Releases of huggingface_hub have had several HTTP clients.
client: Any = importlib.import_module(errors.HfHubHTTPError.__mro__[1].__module__.partition(".")[0])

SMALL_BERT = PRESETS["bert"].config() | {
    "num_hidden_layers": 1,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
"""A config as the hub might have it."""


def hub_with(config: object, folder: Path) -> Callable[[str], Path]:
    path = folder / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return lambda hub_id: path


def test_a_hub_id_is_accepted_before_its_config_is_fetched() -> None:
    workload = Workload.parse({"model": "someone/her-model", "sequence_length": "48"})
    assert workload.preset.kind is Kind.UNKNOWN
    assert workload.preset.display_name == "someone/her-model"
    assert (workload.task, workload.sequence_length) == (None, 48)
    assert Workload.parse(workload.to_dict()) == workload


@pytest.mark.parametrize(
    "name",
    ["a/b/c", "/b", "a/", "../b", "a/..", "a/b--c", "a b/c", "a/b\n", "a/b?x", "é/b", "a/" * 90],
)
def test_an_invalid_hub_id_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="unknown model"):
        Workload(name)


def test_the_config_sets_the_task_and_the_sizes(tmp_path: Path) -> None:
    workload = resolve(Workload("someone/her-model"), hub_with(SMALL_BERT, tmp_path))
    assert workload.config == SMALL_BERT
    assert workload.model == "someone/her-model"
    assert workload.task is Task.SEQUENCE_CLASSIFICATION
    assert (workload.sequence_length, workload.label_count) == (64, 2)
    assert Workload.parse(workload.to_dict()) == workload
    assert resolve(workload, unreachable) == workload


def unreachable(hub_id: str) -> Path:
    raise AssertionError(f"asked for {hub_id}")


def test_a_preset_is_never_fetched() -> None:
    assert resolve(Workload("bert"), unreachable) == Workload("bert")


@pytest.mark.parametrize(
    ("workload", "field", "says"),
    [
        (Workload("a/b", sequence_length=65), "sequence_length", "from 1 to 64"),
        (Workload("a/b", image_size=224), "image_size", "takes no image size"),
        (Workload("a/b", task=Task.CONTRASTIVE), "task", "choose one of"),
    ],
)
def test_fields_that_do_not_suit_the_config_are_named(
    workload: Workload, field: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput) as raised:
        resolve(workload, hub_with(SMALL_BERT, tmp_path))
    assert list(raised.value.fields) == [field]
    assert says in raised.value.fields[field]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("<html>", "not JSON"),
        ({"model_type": "mine", "auto_map": {"AutoModel": "mine.Model"}}, "custom code"),
        (SMALL_BERT | {"hidden_act": "nonesuch"}, "transformers cannot train it"),
        (" " * (2**20 + 1), "too large"),
    ],
)
def test_an_unusable_config_is_reported_at_the_model(
    config: object, says: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput) as raised:
        resolve(Workload("someone/her-model"), hub_with(config, tmp_path))
    assert list(raised.value.fields) == ["model"]
    assert "someone/her-model" in raised.value.fields["model"]
    assert says in raised.value.fields["model"]


@pytest.mark.longer
def test_an_analysis_fetches_the_config_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("engine.hub.download_config", hub_with(SMALL_BERT, tmp_path))
    request = AnalysisRequest(Workload("someone/her-model"), gpu="a10", batch_multiple=64)
    assert analyze(request, lambda event: None).model_name == "someone/her-model"


@pytest.fixture
def her_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setattr("engine.hub.download_config", hub_with(SMALL_BERT, tmp_path))
    return "someone/her-model"


@pytest.mark.slow
def test_a_plan_fetches_the_config_first(her_model: str) -> None:
    made = plan(
        AnalysisRequest(Workload(her_model), gpu="local", batch_multiple=1024), lambda event: None
    )
    assert made.model_name == her_model
    assert made.workload is not None
    assert made.workload.task is Task.SEQUENCE_CLASSIFICATION
    assert made.fastest is not None


@pytest.mark.slow
def test_a_check_of_predictions_fetches_the_config_first(
    her_model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def measure(order: TrialOrder) -> Trial:
        assert getattr(order.workload, "config", None) == SMALL_BERT
        return Trial(order.batch_size, True, Source.MEASURED, peak_allocated_bytes=24 * 2**20)

    device = DeviceFacts("cpu", "a CPU", 64 * 2**30, 0, 0.0)
    monkeypatch.setattr(checks, "local_device", lambda: device)
    monkeypatch.setattr(checks, "measure", measure)
    check = checks.validate_local([her_model], 24 * 2**20, lambda event: None)
    residuals = [compared.residual for compared in check.comparisons]
    assert {tuple(residual.workload) for residual in residuals} == {("model",)}

    written = tmp_path / "calibration.toml"
    of_a_gpu = replace(residuals[0], gpu="a10", counted=Counted.PEAK_ALLOCATED)
    append_residuals(written, [of_a_gpu])
    monkeypatch.setattr(checks, "PUBLISHED", written)
    monkeypatch.setattr(checks, "calibration_file", lambda: tmp_path / "none.toml")
    (again,) = checks.validate_known().comparisons
    assert again.residual.workload == {"model": her_model}


@pytest.mark.parametrize("word", ["off", "OFF", "0", "false"])
def test_the_hub_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.setenv(SWITCH, word)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", None)
    with pytest.raises(InvalidInput, match=r"Hub is switched off here .*--config FILE"):
        download_config("a/b")


class Answer:
    """Stands in for the hub's response on the size of a file."""

    def __init__(self, size: int) -> None:
        self.size = size


def fake_hub(monkeypatch: pytest.MonkeyPatch, head: object, file: object) -> list[dict[str, Any]]:
    """Make the hub's library respond like this; returns the files requested."""
    asked: list[dict[str, Any]] = []

    def answer(what: object) -> Any:
        if isinstance(what, Exception):
            raise what
        return what

    def download(*args: Any, **options: Any) -> Any:
        asked.append(options)
        return answer(file)

    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", lambda *a, **k: answer(head))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return asked


def refusal(kind: type[errors.HfHubHTTPError], status: int) -> Exception:
    request = client.Request("HEAD", "https://hub.example/a/b")
    return kind("no", response=client.Response(status, request=request))


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (refusal(errors.GatedRepoError, 403), "accepting its licence"),
        (refusal(errors.RepositoryNotFoundError, 404), "no public model a/b"),
        (refusal(errors.RemoteEntryNotFoundError, 404), "has no config.json"),
        (refusal(errors.HfHubHTTPError, 503), "cannot be reached"),
        (client.ConnectError("no route"), "cannot be reached"),
        (client.ReadTimeout("slow"), "cannot be reached"),
        (errors.OfflineModeIsEnabled("offline"), "cannot be reached"),
        (TimeoutError(), "cannot be reached"),
        (Answer(2**40), "too large"),
    ],
)
def test_an_unavailable_config_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, head: object, says: str
) -> None:
    fake_hub(monkeypatch, head, errors.LocalEntryNotFoundError("not cached"))
    with pytest.raises(InvalidInput) as raised:
        download_config("a/b")
    assert list(raised.value.fields) == ["model"]
    assert says in raised.value.fields["model"]
    assert (
        "enter its config.json (on the command line, --config FILE)" in raised.value.fields["model"]
    )


def test_the_cache_is_used_when_the_hub_is_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = fake_hub(monkeypatch, client.ConnectError("no route"), str(tmp_path))
    assert download_config("a/b") == tmp_path
    assert asked == [{"local_files_only": True}]


def test_the_hub_is_used_when_it_is_in_reach(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = fake_hub(monkeypatch, Answer(900), str(tmp_path))
    assert download_config("a/b") == tmp_path
    assert asked == [{"local_files_only": False}]
