"""The longest texts that fit: in training, and where they are generated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from engine.cli.main import main
from engine.core.errors import DoesNotFit, InvalidInput
from engine.events import Log
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.interface.texts import Texts
from engine.interface.workload import Workload
from engine.prediction.memory.weights import weight_bytes
from engine.prediction.texts import generation, inference
from engine.prediction.texts.generation import generating_workload, generation_traces
from engine.prediction.texts.inference import predict_generation
from engine.prediction.texts.longest import STRIDE, longest_sequence
from engine.tests.shared import slow, small_workload
from engine.tracing.every_batch import AffineTrace
from engine.tracing.lowering import cuda_behaviour

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("small_models", "kept_traces")]

LIMIT = 2**30


def request_of(**fields: Any) -> AnalysisRequest:
    workload = small_workload("llama-3.2-1b", **{"precision": "bf16-true"} | fields)
    return AnalysisRequest(
        workload, gpu="a100-80gb", memory_limit_bytes=LIMIT, current_batch_size=8
    )


@pytest.mark.longer
@pytest.mark.parametrize(
    "fields", [{}, slow({"attention": "eager"}), slow({"gradient_checkpointing": True})], ids=str
)
def test_the_longest_sequence_fits_and_the_next_does_not(fields: dict[str, Any]) -> None:
    lines: list[Any] = []
    found = longest_sequence(request_of(**fields), lines.append)
    assert found.next_length == found.length + STRIDE
    assert found.trial is not None
    assert found.trial.fits
    assert found.trial.batch_size == 8
    assert found.next_trial is not None
    assert not found.next_trial.fits
    # Three traces say where it is; one there and one above say that it is there.
    assert sum(isinstance(line, Log) for line in lines) == 5


@pytest.mark.slow
def test_where_the_model_ends_it_there_is_no_next() -> None:
    request = replace(request_of(), memory_limit_bytes=None, current_batch_size=1)
    found = longest_sequence(replace(request, workload=small_workload("gpt2")), lambda _: None)
    assert found.length == 1024
    assert found.next_length is None


def test_a_model_without_a_sequence_is_refused() -> None:
    with pytest.raises(InvalidInput, match="reads no text"):
        longest_sequence(replace(request_of(), workload=small_workload("resnet")), lambda _: None)


@pytest.mark.longer
def test_generating_from_longer_prompts_is_the_same_with_other_sizes() -> None:
    """Finds the longest prompt without tracing each length of the search."""
    workload, behaviour = request_of().workload, cuda_behaviour(8.0)
    short, longer = (
        replace(
            generation_traces(workload, Texts(length, 8), behaviour, alone=True).at(1),
            batch_size=unit,
        )
        for unit, length in ((1, 128), (2, 256))
    )
    assert AffineTrace(short, longer).at(2).sizes == longer.sizes


@pytest.mark.slow
def test_generating_says_how_many_and_how_long() -> None:
    request = request_of()
    lines: list[Any] = []
    found = predict_generation(request, Texts(256, 64), lines.append)
    assert not any("tracing each length" in str(line) for line in lines)
    assert found.trial.fits
    assert found.trial.batch_size == 8
    for batch_size, fits in (
        (found.largest_batch_size, True),
        (found.largest_batch_size + 1, False),
    ):
        at = replace(request, current_batch_size=batch_size)
        assert predict_generation(at, Texts(256, 64), lambda _: None).trial.fits is fits
    longest = Texts(found.longest_length - 64, 64)
    assert predict_generation(request, longest, lambda _: None).trial.fits
    longer = replace(longest, prompt_length=longest.prompt_length + STRIDE)
    assert not predict_generation(request, longer, lambda _: None).trial.fits


@pytest.mark.parametrize(
    ("share", "told"),
    [
        (0.9, "Here they fit with bf16-true .*, bf16-true with int8 .*, bf16-true with nf4"),
        (0.01, "With bf16-true with nf4 they take .*: that needs "),
    ],
)
def test_weights_that_do_not_fit_are_told_before_anything_is_traced(
    share: float, told: str
) -> None:
    request = AnalysisRequest(small_workload("llama-3.2-1b"), gpu="a10")
    whole = weight_bytes(generating_workload(request.workload, Texts()))
    room = GPUS["a10"].context_bytes + int(share * whole)
    untraced = patch.object(generation, "_trace_model", side_effect=AssertionError)
    with untraced, pytest.raises(DoesNotFit, match=told) as raised:
        predict_generation(replace(request, memory_limit_bytes=room), Texts(), lambda _: None)
    assert "The weights alone take" in str(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize(("attention", "said"), [("eager", True), slow("sdpa", False)])
def test_texts_too_long_for_one_are_told_without_a_search(attention: str, said: bool) -> None:
    request = replace(request_of(attention=attention), memory_limit_bytes=600 * 2**20)
    unsearched = patch.object(inference, "Search", side_effect=AssertionError)
    with unsearched, pytest.raises(DoesNotFit, match="Not even one text fits") as raised:
        predict_generation(request, Texts(60_000, 64), lambda _: None)
    assert "With one text of 60,064 tokens" in str(raised.value)
    assert "GiB are needed" in str(raised.value)
    assert ("sdpa attention" in str(raised.value)) is said


def test_attention_that_no_kernel_takes_is_named() -> None:
    """Windows of Gemma's attention come as masks."""
    workload = small_workload("gemma-3-1b", precision="bf16-true", attention="flash")
    with pytest.raises(InvalidInput) as raised:
        predict_generation(AnalysisRequest(workload, gpu="a10"), Texts(256, 4), lambda _: None)
    assert "choose sdpa" in raised.value.fields["attention"]


def test_a_model_of_one_length_has_no_longest_sequence() -> None:
    with pytest.raises(InvalidInput) as raised:
        longest_sequence(replace(request_of(), workload=Workload("sdxl")), lambda _: None)
    assert "77 tokens always" in raised.value.fields["model"]


@pytest.mark.slow
def test_the_commands_answer(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["llama-3.2-1b", "--gpu", "a100-80gb", "--memory-limit", "1GiB"]
    assert main(["longest", *words, "--batch-size", "8"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert " tokens at batch 8. " in shown
    assert " run out of memory. (Predicted)" in shown
    assert "of what tensors hold, " in shown
    assert main(["generate", *words, "--prompt-length", "256", "--new-tokens", "16"]) == 0
    shown = capsys.readouterr().out
    assert "By default: --precision fp32, --cache-format dynamic\n" in shown
    assert "Batch 1 fits (predicted)." in shown
    assert "texts at once" in shown
    assert "What sets the limit" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--new-tokens", "0"], "error: --new-tokens: enter a whole number from 1"),
        (["--prompt-length", "long"], "error: --prompt-length: enter a whole number"),
        (["--cache-format", "paged"], "error: --cache-format: choose one of dynamic, static"),
        (["--batch-size", "0"], "error: --batch-size: enter a whole number from 1"),
        (["--prompt-length", "131072"], "error: --prompt-length: Llama 3.2 1B takes at most"),
    ],
)
def test_a_mistake_is_named_by_its_flag(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "llama-3.2-1b", "--gpu", "t4", *words]) == 2
    assert said in capsys.readouterr().err
