"""Evaluation between training steps, against the loop of Hugging Face's Trainer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_map
from transformers import (
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainingArguments,
)

from engine.core.errors import DoesNotFit, InvalidInput
from engine.interface.request import AnalysisRequest
from engine.interface.result import AnalysisResult
from engine.interface.workload import Workload
from engine.measurement import cpu
from engine.measurement.protocol import TrialOrder
from engine.prediction.evaluation import largest_evaluation_batch
from engine.prediction.predicted_analysis import analyze_predicted
from engine.prediction.probe import predict_trial
from engine.prediction.requested_gpu import catalogue_gpu
from engine.step.batches import make_batch
from engine.step.evaluating import evaluate, evaluation_of
from engine.step.training import build_model, prepare
from engine.tests.shared import slow, small_workload
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.recorder import MemoryRecorder

pytestmark = pytest.mark.usefixtures("small_models")

PADDED: dict[str, Any] = {"batching": "longest", "sample_lengths": "p50=20,max=64"}
BEAMS: dict[str, Any] = {"eval_num_beams": 3}
WRITES_MORE: dict[str, Any] = {"sequence_length": 8, "eval_new_tokens": 90}
BATCH_SIZE = 4


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("gpt2", {"eval_batch_size": 32}),
        slow("gpt2", {"eval_batch_size": 8, "eval_samples": 64, "precision": "bf16-mixed"}),
        slow("bert", {"eval_batch_size": 64, "eval_samples": 4096}),
        slow("t5-small", {"eval_batch_size": 8, "eval_samples": 64, "eval_accumulation_steps": 3}),
        slow("llama-3.2-1b", {"eval_batch_size": 8, "eval_samples": 64, "lora_rank": 4}),
        slow("t5-small", {"eval_batch_size": 64, "eval_samples": 64, "eval_new_tokens": 16}),
        slow("gpt2", {"eval_batch_size": 64, "eval_samples": 64, "eval_new_tokens": 16}),
        slow("gpt2", PADDED | {"eval_batch_size": 64, "eval_samples": 64, "eval_new_tokens": 16}),
    ],
    ids=str,
)
def test_the_peak_is_equal_to_the_byte(model: str, fields: dict[str, Any]) -> None:
    workload = small_workload(model, **fields)
    trial = cpu.run_trial(TrialOrder(workload, BATCH_SIZE))
    assert trace(workload, BATCH_SIZE, None).peak_by_category()[0] == trial.peak_allocated_bytes
    without = small_workload(model, **{name: None for name in fields if "eval" in name})
    assert trace(without, BATCH_SIZE, None).peak_by_category()[0] < trial.peak_allocated_bytes


def answer(**fields: Any) -> AnalysisResult:
    workload = small_workload("gpt2", eval_batch_size=8, **fields)
    request = AnalysisRequest(workload, gpu="t4", memory_limit_bytes=2**30)
    return analyze_predicted(request, lambda _: None)


@pytest.mark.longer
def test_an_answer_says_which_of_training_and_evaluation_needs_more() -> None:
    (said,) = (caveat for caveat in answer().caveats if "valuation" in caveat)
    assert said.startswith("Training needs more memory: evaluation at batch 8 peaks at 0.0")
    largest = int(said.split("Evaluation batches up to ")[1].split(" fit")[0].replace(",", ""))
    assert largest > 1000


@pytest.mark.slow
def test_the_largest_evaluation_batch_is_the_last_that_fits() -> None:
    request = AnalysisRequest(
        small_workload("gpt2", eval_batch_size=8, eval_samples=40_000, eval_accumulation_steps=2),
        gpu="t4",
        memory_limit_bytes=2**30,
    )
    gpu = catalogue_gpu(request)
    largest = largest_evaluation_batch(request, gpu)
    assert 8 < largest < 20_000
    for batch_size, fits in ((largest, True), (largest + 1, False)):
        workload = replace(request.workload, eval_batch_size=batch_size)
        traced = trace(workload, 2, cuda_behaviour(gpu.compute_capability))
        assert predict_trial(workload, gpu, traced).fits is fits


@pytest.mark.slow
def test_kept_logits_are_named_where_they_do_not_fit() -> None:
    with pytest.raises(DoesNotFit, match=r"for logits: the Trainer keeps those of all 4,096") as no:
        answer(eval_samples=4096, sequence_length=64)
    assert "set eval_accumulation_steps to 1: then evaluation batches up to" in str(no.value)
    fits = answer(eval_samples=4096, sequence_length=64, eval_accumulation_steps=1)
    assert fits.largest_batch_size > 1


@pytest.mark.slow
def test_a_batch_that_does_not_fit_alone_is_named() -> None:
    request = AnalysisRequest(small_workload("gpt2", eval_batch_size=60_000), gpu="t4")
    with pytest.raises(DoesNotFit, match=r"Evaluation batches up to [\d,]+ fit\.$"):
        analyze_predicted(request, lambda _: None)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"eval_batch_size": 8, "parallelism": "ddp", "world_size": 2}, "eval_batch_size"),
        ({"eval_samples": 8}, "eval_samples"),
        ({"eval_batch_size": 8, "eval_accumulation_steps": 2}, "eval_accumulation_steps"),
        ({"eval_batch_size": 0}, "eval_batch_size"),
        ({"eval_batch_size": 8, "eval_samples": 8, "eval_num_beams": 2}, "eval_num_beams"),
        ({"eval_batch_size": 8, "eval_samples": 8, "eval_new_tokens": 4}, "eval_new_tokens"),
    ],
    ids=str,
)
def test_what_cannot_be_evaluated_is_refused(fields: dict[str, Any], wrong: str) -> None:
    with pytest.raises(InvalidInput) as error:
        small_workload("bert", **fields)
    assert list(error.value.fields) == [wrong]


@pytest.mark.slow
def test_generation_in_evaluation_is_told_apart() -> None:
    workload = small_workload("t5-small", eval_batch_size=512, eval_samples=512, eval_new_tokens=32)
    request = AnalysisRequest(workload, gpu="t4", memory_limit_bytes=2**30)
    caveats = analyze_predicted(request, lambda _: None).caveats
    (said,) = (caveat for caveat in caveats if "valuation at batch" in caveat)
    assert "(generating 32 tokens at " in said


@pytest.mark.parametrize("precision", ["fp32", slow("bf16-mixed")])
@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("t5-small", {}),
        slow("bart-large", {}),
        ("gpt2", {}),
        slow("llama-3.2-1b", {}),
        slow("gpt2", PADDED),
        ("llama-3.2-1b", PADDED),
        slow("gpt2", WRITES_MORE),
        slow("llama-3.2-1b", PADDED | WRITES_MORE),
        slow("t5-small", WRITES_MORE),
        ("t5-small", BEAMS),
        slow("t5-small", BEAMS | WRITES_MORE),
        slow("gpt2", BEAMS),
        slow("llama-3.2-1b", PADDED | BEAMS | WRITES_MORE),
    ],
    ids=str,
)
def test_generating_takes_what_the_trainer_takes(
    model: str,
    fields: dict[str, Any],
    precision: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("transformers.trainer_pt_utils.nested_numpify", _on_the_host)
    workload = small_workload(
        model,
        precision=precision,
        eval_batch_size=8,
        eval_samples=8,
        **{"eval_new_tokens": 12} | fields,
    )
    trainers = _peak_of_the_trainer(workload, 8, tmp_path)
    assert 0 <= trainers - _peak_of_ours(workload) <= LEFT_OUT_BYTES


class _Samples(torch.utils.data.Dataset[Any]):
    def __init__(self, workload: Workload, count: int) -> None:
        self._batch = make_batch(workload, count)
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {name: tensor[index] for name, tensor in self._batch.items()}


LEFT_OUT_BYTES = 128
"""The Trainer keeps each batch's loss as well, though no metric is computed from it."""


def _on_the_host(tensors: Any) -> Any:
    """Arrays in the place of what the Trainer moves to the host, which is the device here."""
    return tree_map(lambda tensor: np.zeros(len(tensor)), tensors)


@pytest.mark.parametrize("precision", ["fp32", slow("bf16-mixed"), slow("bf16-true")])
@pytest.mark.parametrize(
    ("model", "samples", "accumulation"),
    [
        ("gpt2", None, None),
        ("gpt2", 8, None),
        slow("gpt2", 16, None),
        ("gpt2", 64, None),
        ("gpt2", 60, None),
        ("gpt2", 64, 3),
        ("t5-small", 64, None),
        slow("bert", 64, None),
    ],
)
def test_it_takes_what_the_trainer_takes(
    model: str,
    samples: int | None,
    accumulation: int | None,
    precision: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("transformers.trainer_pt_utils.nested_numpify", _on_the_host)
    workload = small_workload(
        model,
        precision=precision,
        eval_batch_size=8,
        eval_samples=samples,
        eval_accumulation_steps=accumulation,
    )
    trainers = _peak_of_the_trainer(workload, samples or 24, tmp_path)
    assert 0 <= trainers - _peak_of_ours(workload) <= LEFT_OUT_BYTES


# A loader's batches are on the host, as all is here: so only floats are counted, no tokens.
def _peak_of_ours(workload: Workload) -> int:
    evaluation = evaluation_of(workload)
    assert evaluation is not None
    training = prepare(workload, build_model(workload))
    recorder = MemoryRecorder(training, 1, counted=torch.is_floating_point)
    recorder.record_step(lambda: evaluate(training, evaluation))
    return recorder.trace.peak_by_category()[0]


def _peak_of_the_trainer(workload: Workload, samples: int, folder: Path) -> int:
    training = prepare(workload, build_model(workload))
    generates = workload.eval_new_tokens is not None
    if generates:
        settings: Any = training.model.generation_config
        config: Any = training.model.config
        settings.eos_token_id = settings.forced_eos_token_id = None
        settings.pad_token_id = 0
        if not config.is_encoder_decoder:  # no token, so that none is padding
            settings.pad_token_id = config.pad_token_id = -1
        settings.use_cache = True  # which from_pretrained leaves on
        settings.num_beams = workload.eval_num_beams
        settings.max_new_tokens = workload.eval_new_tokens
    arguments = (Seq2SeqTrainingArguments if generates else TrainingArguments)(
        output_dir=str(folder),
        use_cpu=True,
        report_to=[],
        per_device_eval_batch_size=workload.eval_batch_size or 0,
        eval_accumulation_steps=workload.eval_accumulation_steps,
        bf16=workload.precision == "bf16-mixed",
        disable_tqdm=True,
        **{"predict_with_generate": True} if generates else {},
    )
    trainer = (Seq2SeqTrainer if generates else Trainer)(
        model=training.model,
        args=arguments,
        eval_dataset=_Samples(workload, samples),
        compute_metrics=None if workload.eval_samples is None else lambda _: {},
    )
    recorder = MemoryRecorder(training, 1, counted=torch.is_floating_point)
    recorder.record_step(trainer.evaluate)
    return recorder.trace.peak_by_category()[0]
