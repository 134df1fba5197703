"""Admission: the file against the installed transformers, a sample against real steps."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from engine.models.architectures import ARCHITECTURES, Architecture, read_architectures
from engine.models.coverage import checked_with
from engine.models.model import missing_modules
from engine.models.tasks import Task

pytestmark = pytest.mark.torch

ADMITTED = [(name, task) for name, known in ARCHITECTURES.items() for task in known.tasks]
REFUSED = [(name, task) for name, known in ARCHITECTURES.items() for task in known.refused]
CLASSIFICATION = Task.SEQUENCE_CLASSIFICATION
MAKE = "run python -m benchmarks.coverage"


def todays(count: int) -> list[tuple[str, Task]]:
    """Some admitted pairs, others every day, so that in time all of them are tried."""
    day = datetime.now(UTC).date().isoformat()
    return random.Random(day).sample(ADMITTED, count)  # noqa: S311  # no secret


@pytest.mark.slow
def test_todays_pairs_are_equal_to_real_steps(subtests: pytest.Subtests) -> None:
    from benchmarks.coverage.sweep import try_apart

    for model_type, task in todays(3):
        with subtests.test(model_type=model_type, task=task.value):
            if missing := missing_modules(*ARCHITECTURES[model_type].needs):
                pytest.skip(f"needs {' and '.join(missing)}, which requirements.txt leaves out")
            outcome = try_apart(model_type, task).outcome
            assert outcome.refused == ""
            for name, value in outcome.facts.items():
                written = getattr(ARCHITECTURES[model_type], name)
                assert written == (tuple(value) if isinstance(value, list) else value)


def test_the_file_was_made_with_this_transformers() -> None:
    import transformers

    made, installed = checked_with(), transformers.__version__
    assert made == installed, f"made with transformers {made}, here is {installed}; {MAKE}"


def test_the_file_has_every_pair_of_this_transformers() -> None:
    from benchmarks.coverage.admission import pairs

    written, listed = {*ADMITTED, *REFUSED}, set(pairs())
    assert not listed - written, f"transformers has pairs that were not tried; {MAKE}"
    assert not written - listed, f"transformers no longer has these pairs; {MAKE}"


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    from benchmarks.coverage.sweep import as_toml

    path = tmp_path / "admitted.toml"
    path.write_text(as_toml(ARCHITECTURES))
    assert read_architectures(path) == ARCHITECTURES


def test_pairs_are_put_together_by_type_the_usual_task_first() -> None:
    from benchmarks.coverage.admission import Outcome
    from benchmarks.coverage.sweep import Tried, architectures_of, summary

    facts = {"positions": "n_positions", "default_positions": 1024}
    tried = [
        Tried("gpt2", CLASSIFICATION, Outcome(facts=facts), 1.0),
        Tried("gpt2", Task.CAUSAL_LANGUAGE_MODELLING, Outcome(facts=facts, same_trace=True), 2.0),
        Tried("gpt2", Task.TOKEN_CLASSIFICATION, Outcome("it is too slow"), 30.0),
    ]
    (found,) = architectures_of(tried).values()
    assert found.tasks == (Task.CAUSAL_LANGUAGE_MODELLING, CLASSIFICATION)
    assert found.refused == {Task.TOKEN_CLASSIFICATION: "it is too slow"}
    assert found.positions == "n_positions"
    assert "1 of 1 types admitted" in summary(tried)
    assert "1  it is too slow" in summary(tried)


def test_a_model_that_cannot_be_made_small_is_refused_with_the_reason() -> None:
    from benchmarks.coverage.admission import try_pair

    assert "encoder" in try_pair("xlm", Task.CAUSAL_LANGUAGE_MODELLING).refused


def test_torchvision_prepares_images_only_where_a_model_takes_nothing_else() -> None:
    from benchmarks.coverage.admission import Refused, try_pair

    tried = []

    def refuse(architecture: Architecture, config: dict[str, Any]) -> None:
        tried.append((architecture.image_processor, architecture.needs))
        raise Refused("it does not train")

    with patch("benchmarks.coverage.admission._try_architecture", refuse):
        assert try_pair("lfm2_vl", Task.IMAGE_TEXT_TO_TEXT).refused
    plain, prepared = ("", ()), ("Lfm2VlImageProcessor", ("torchvision",))
    assert tried == [plain, plain, prepared, prepared]


@pytest.mark.slow
def test_a_model_with_kernels_of_its_own_says_which_it_was_tried_without() -> None:
    from benchmarks.coverage.admission import try_pair

    for _ in range(2):  # transformers says so once only
        outcome = try_pair("mamba", Task.CAUSAL_LANGUAGE_MODELLING)
        assert outcome.facts["kernels"] == ["causal-conv1d", "mamba-ssm"]


def test_a_small_config_shows_every_kind_of_layer() -> None:
    from benchmarks.coverage.small_configs import VOCABULARY, small_config

    small = small_config("gemma3_text")
    assert set(small["layer_types"]) == {"sliding_attention", "full_attention"}
    assert small["vocab_size"] == VOCABULARY
    assert small["hidden_size"] == 64
    assert small["num_key_value_heads"] < small["num_attention_heads"]


def test_layers_of_a_small_config_may_have_heads_of_their_own() -> None:
    from benchmarks.coverage.small_configs import small_config

    small = small_config("dots3_note_text")
    assert small["num_attention_heads"] == small["num_key_value_heads"] == 4
    assert set(small["layer_types"]) == {"indexed_attention", "sliding_attention"}
