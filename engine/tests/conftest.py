"""Models cut down to a few small layers, for tests that need a real step and not a large one."""

from __future__ import annotations

from typing import Any

import pytest

from engine.presets import PRESETS, Preset
from engine.workload import Workload

_SMALL: dict[str, dict[str, Any]] = {
    "bert": {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "vocab_size": 1000,
    },
    "gpt2": {
        "n_layer": 2,
        "n_embd": 64,
        "n_head": 4,
        "vocab_size": 1000,
        "bos_token_id": 999,
        "eos_token_id": 999,
    },
    "resnet": {"depths": [1, 1, 1, 1], "hidden_sizes": [32, 64, 128, 256], "embedding_size": 16},
}


@pytest.fixture
def small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every preset at reduced depth and width."""
    whole = Preset.config
    monkeypatch.setattr(Preset, "config", lambda preset: whole(preset) | _SMALL[preset.name])


def small_workload(model: str, **fields: Any) -> Workload:
    """A workload on small inputs."""
    size = {"sequence_length": 32} if PRESETS[model].kind == "text" else {"image_size": 64}
    return Workload(model, **size | fields)
