"""Whether blocks repeat is checked on the first GPU alone, and holds on all others."""

from __future__ import annotations

from typing import Any, cast

import pytest

from engine.gpus import GPUS
from engine.interface.workload import Workload
from engine.tests.shared import slow, small_workload
from engine.traces.families import Family, RecordingBehaviour
from engine.traces.shallow_models import ShallowModels
from engine.traces.tracer import WholeModel
from engine.tracing.lowering import CudaBehaviour, behaviour_of
from engine.tracing.tests.test_depth import WINDOWS, deep
from engine.tracing.trace import Trace

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("small_models")]

LOW, HIGH = 2, 3
GEMMA = {"num_hidden_layers": 19, "layer_types": [*WINDOWS * 9, "full_attention"]}
BF16, FP16 = {"precision": "bf16-mixed"}, {"precision": "fp16-mixed"}
FSDP = {"parallelism": "fsdp", "world_size": 2}


def whole_traces(workload: Workload) -> list[tuple[CudaBehaviour, Trace]]:
    """Traces of the whole model on one GPU of each kind that the catalogue has for a workload."""
    kinds: list[Family] = []
    traces = []
    for behaviour in dict.fromkeys(map(behaviour_of, GPUS.values())):
        if not any(kind.includes(behaviour) for kind in kinds):
            recording = RecordingBehaviour(behaviour)
            whole = WholeModel(workload, cast(CudaBehaviour, recording))
            traces.append((behaviour, whole.at(HIGH)))
            kinds.append(Family(recording.lookups, whole, behaviour.cublas_workspace_bytes))
    return traces


def margin_on(workload: Workload, behaviour: CudaBehaviour) -> int:
    """The margin found on a GPU where the workload was traced on none before."""
    models = ShallowModels(WholeModel(workload, behaviour))
    models.at(LOW)
    return models.margin


@pytest.mark.parametrize(
    ("model", "blocks", "fields"),
    [
        slow("bert", {"num_hidden_layers": 12}, BF16),
        slow("bert", {"num_hidden_layers": 12, "hidden_size": 48}, FP16),
        slow("vit-b", {"num_hidden_layers": 12}, BF16),
        slow("vit-b", {"num_hidden_layers": 12}, FP16),
        slow("vit-b", {"num_hidden_layers": 12}, {}),
        slow("gpt2", {"n_layer": 9}, BF16),
        slow("gpt2", {"n_layer": 9, "n_embd": 60}, FP16),
        slow("mistral-7b", {"num_hidden_layers": 9}, BF16 | {"gradient_checkpointing": True}),
        slow("llama-3.2-1b", {"num_hidden_layers": 19}, BF16 | FSDP),
        slow("gemma-3-1b", GEMMA, BF16 | {"sequence_length": 16}),
        slow("gemma-3-1b", GEMMA | {"head_dim": 256}, FP16 | {"sequence_length": 16}),
        slow("whisper", {"encoder_layers": 9, "decoder_layers": 9}, BF16),
    ],
)
def test_the_margin_of_one_gpu_gives_the_trace_of_the_whole_model_on_another(
    monkeypatch: pytest.MonkeyPatch, model: str, blocks: dict[str, Any], fields: dict[str, Any]
) -> None:
    deep(monkeypatch, **blocks)
    workload = small_workload(model, **fields)
    traces = whole_traces(workload)
    margins = {margin_on(workload, behaviour) for behaviour, _ in traces} - {0}
    assert len(traces) > 1
    assert margins

    for margin in margins:
        for behaviour, whole in traces:
            models = ShallowModels(WholeModel(workload, behaviour), margin)
            models.at(LOW)
            found = models.at(HIGH)
            assert (found.events, found.sizes) == (whole.events, whole.sizes), behaviour
            assert found.operations == whole.operations, behaviour
            assert found == whole, behaviour


@pytest.mark.slow
def test_a_handed_on_margin_saves_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[int] = []
    trace = WholeModel.trace

    def count(source: WholeModel, model: Any, batch_size: int) -> Trace:
        traced.append(batch_size)
        return trace(source, model, batch_size)

    deep(monkeypatch, num_hidden_layers=9)
    monkeypatch.setattr(WholeModel, "trace", count)
    workload, behaviour = small_workload("bert"), behaviour_of(GPUS["h100"])
    for margin, traces in ((None, [LOW, LOW, LOW, HIGH]), (1, [LOW, LOW, HIGH])):
        traced.clear()
        models = ShallowModels(WholeModel(workload, behaviour), margin)
        for batch_size in (LOW, HIGH):
            models.at(batch_size)
        assert traced == traces
