from __future__ import annotations

import pytest

from engine.interface.tokens import Tokens, tokens_of, tokens_per_second
from engine.interface.workload import Workload


@pytest.mark.parametrize(
    ("model", "counted"),
    [
        ("bert", Tokens(128, "tokens")),
        ("gpt2", Tokens(1024, "tokens")),
        ("t5-small", Tokens(512, "source tokens")),
        ("resnet", None),
        ("clip", None),
        ("whisper", None),
    ],
)
def test_tokens_are_counted_where_the_whole_input_is_text(
    model: str, counted: Tokens | None
) -> None:
    workload = Workload(model)
    assert tokens_of(workload) == counted
    assert tokens_of(workload.to_dict()) == counted


def test_a_sample_has_as_many_tokens_as_its_sequence_is_long() -> None:
    workload = Workload("bert", sequence_length=384)
    assert tokens_per_second(workload, 10.0) == 3840
    assert tokens_per_second(workload, None) is None


def test_nothing_is_counted_for_a_script_or_a_model_that_has_not_been_fetched() -> None:
    assert tokens_per_second(None, 10.0) is None
    assert tokens_of(Workload("org/some-model")) is None
