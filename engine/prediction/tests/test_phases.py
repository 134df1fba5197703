"""Each phase of a training run has its peak on the GPU and on the host, and the largest decides."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.answer.phases import about_phases, in_phase, largest_phase, most_on_host, on_a_node
from engine.cli.main import main
from engine.core.choices import Method, Parallelism, Precision, Quantization, Rollout
from engine.core.optimizers import Optimizer
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.interface.result import Phase, PhaseName
from engine.interface.trial import Source, Trial
from engine.interface.workload import Workload
from engine.prediction.memory.host_memory import (
    FILE_BYTES,
    FILE_BYTES_BEFORE_5,
    State,
    Weights,
    of_evaluation,
    while_loading,
    while_saving,
)
from engine.prediction.memory.phases import judged_by_all_phases, phases_of, traced_peaks
from engine.prediction.memory.phases import largest_phase as largest_phase_of
from engine.prediction.memory.weights import weights_of
from engine.prediction.predicted_analysis import analyze_predicted
from engine.tests.shared import slow
from engine.traces.tracer import trace
from engine.tracing.lowering import behaviour_of
from engine.tracing.trace import Category, Trace

GIB = 2**30
ONE_GPU = Workload("bert")
LLAMA = Workload("llama-3.1-8b", precision=Precision.BF16_MIXED, sequence_length=16)
SHARED: dict[Parallelism, Workload] = {
    kind: replace(LLAMA, parallelism=kind, world_size=16)
    for kind in Parallelism
    if kind is not Parallelism.NONE
}
BYTES = st.integers(1, 10**12)


def weights(loaded: int, **other: int) -> Weights:
    return Weights(**({"loaded": loaded, "kept": loaded, "saved": loaded, "largest": 1} | other))


class TestHostMemory:
    @given(BYTES, BYTES, st.sampled_from([ONE_GPU, *SHARED.values()]))
    def test_more_weights_never_need_less(self, one: int, other: int, workload: Workload) -> None:
        small, large = map(weights, sorted((one, other)))
        assert while_loading(workload, small).bytes <= while_loading(workload, large).bytes
        state = State(10**9, 10**6)
        assert (
            while_saving(workload, small, state).bytes <= while_saving(workload, large, state).bytes
        )

    @pytest.mark.parametrize(("gpus", "processes"), [(1, 1), (4, 4), (8, 8), (64, 8)])
    def test_each_process_of_a_node_loads_all_weights(self, gpus: int, processes: int) -> None:
        kind = Parallelism.NONE if gpus == 1 else Parallelism.DDP
        need = while_loading(replace(ONE_GPU, parallelism=kind, world_size=gpus), weights(GIB))
        assert (need.bytes, need.processes) == (GIB, processes)

    def test_quantized_weights_are_on_the_host_one_tensor_at_a_time(self) -> None:
        quantized = replace(LLAMA, lora_rank=8, quantization=Quantization.NF4)
        need = while_loading(quantized, weights(30 * GIB, largest=2 * GIB))
        assert need.bytes == 2 * GIB

    def test_zero_3_loads_in_one_process_what_fsdp_loads_in_each(self) -> None:
        zero = while_loading(SHARED[Parallelism.ZERO_3], weights(GIB))
        fsdp = while_loading(SHARED[Parallelism.FSDP], weights(GIB))
        assert (zero.processes, fsdp.processes) == (1, 8)
        assert "cpu_ram_efficient_loading" in fsdp.how

    def test_adapters_alone_are_saved_with_lora(self) -> None:
        adapted = replace(LLAMA, lora_rank=8)
        need = while_saving(adapted, weights(30 * GIB, saved=GIB // 10), State())
        assert need.bytes == GIB // 10
        assert need.how.startswith("Only the adapters")

    @pytest.mark.parametrize(
        ("version", "limit"), [("5.23.0", FILE_BYTES), ("4.57.3", FILE_BYTES_BEFORE_5)]
    )
    def test_no_more_than_a_file_is_copied_to_the_host(self, version: str, limit: int) -> None:
        huge = weights(400 * GIB, largest=GIB)
        assert while_saving(LLAMA, huge, State(), version).bytes == limit
        one_tensor = weights(400 * GIB, largest=100 * GIB)
        assert while_saving(LLAMA, one_tensor, State(), version).bytes == 100 * GIB

    def test_fsdp_gathers_the_optimizer_state_too(self) -> None:
        need = while_saving(SHARED[Parallelism.FSDP], weights(30 * GIB), State(60 * GIB, GIB))
        assert (need.bytes, need.processes) == (60 * GIB, 1)

    def test_zero_2_copies_the_model_in_each_process(self) -> None:
        need = while_saving(SHARED[Parallelism.ZERO_2], weights(15 * GIB), State())
        assert (need.bytes, need.processes) == (15 * GIB, 8)

    def test_an_evaluation_without_metrics_leaves_nothing(self) -> None:
        assert of_evaluation(replace(ONE_GPU, eval_batch_size=8), 0, 0).bytes == 0

    def test_all_logits_of_an_evaluation_come_to_the_host(self) -> None:
        evaluated = replace(ONE_GPU, eval_batch_size=8, eval_samples=100)
        whole = of_evaluation(evaluated, kept_bytes=100 * 512, kept_rows=100)
        in_parts = of_evaluation(evaluated, kept_bytes=16 * 512, kept_rows=16)
        assert whole.bytes == 100 * 512
        assert in_parts.bytes == 2 * 100 * 512  # the old ones, and a copy with the new ones


def phase(name: PhaseName, device: int, host: int = 0, processes: int = 1) -> Phase:
    return Phase(name, device, host, processes, Source.PREDICTED, "As it is.")


class TestWhatDecides:
    def test_the_largest_on_the_gpu_decides(self) -> None:
        step, evaluation = phase(PhaseName.STEP, 10), phase(PhaseName.EVALUATION, 11)
        assert largest_phase([step, evaluation]) == evaluation
        said = about_phases([step, evaluation], 16)[0]
        assert said == "At batch 16, evaluation needs the most GPU memory."

    def test_the_step_decides_where_others_need_as_much(self) -> None:
        step = phase(PhaseName.STEP, 10)
        assert largest_phase([phase(PhaseName.LOADING, 10), step]) == step
        said = about_phases([step], 16)[0]
        assert said == "At batch 16, the training step needs the most GPU memory."

    def test_host_memory_counts_all_processes_of_a_node(self) -> None:
        loading = phase(PhaseName.LOADING, 1, host=GIB, processes=8)
        saving = phase(PhaseName.SAVING, 1, host=5 * GIB)
        assert most_on_host([loading, saving]) == loading
        assert on_a_node(loading) == 8 * GIB
        said = about_phases([loading, saving], 16)[1]
        assert "8.00 GiB while loading (predicted), 1.00 GiB for each of 8 processes" in said

    def test_nothing_is_said_where_no_phase_is_known(self) -> None:
        assert largest_phase([]) is None
        assert about_phases([], 16) == []
        assert in_phase(None) == in_phase(PhaseName.STEP) == ""


def traced(workload: Workload, batch_size: int = 2) -> Trace:
    return trace(workload, batch_size, behaviour_of(GPUS["a10"]))


def by_name(workload: Workload, step: Trace) -> dict[PhaseName, Phase]:
    return {one.name: one for one in phases_of(workload, GPUS["a10"], step)}


@pytest.mark.torch
@pytest.mark.usefixtures("small_models")
class TestTracedPhases:
    @pytest.mark.longer
    @pytest.mark.parametrize(
        "fields",
        [
            {},
            slow({"lora_rank": 4, "precision": "bf16-mixed"}),
            {"lora_rank": 4, "quantization": "nf4", "precision": "bf16-mixed"},
            slow({"parallelism": "ddp", "world_size": 4}),
            slow({"parallelism": "zero-2", "world_size": 4, "precision": "bf16-mixed"}),
        ],
        ids=lambda fields: ", ".join(map(str, fields.values())) or "one GPU",
    )
    def test_a_step_needs_more_than_loading_and_saving(self, fields: dict[str, Any]) -> None:
        workload = Workload.parse({"model": "gpt2", "sequence_length": 64} | fields)
        found = by_name(workload, traced(workload, 4))
        assert list(found) == [PhaseName.LOADING, PhaseName.STEP, PhaseName.SAVING]
        step = found[PhaseName.STEP].peak_device_bytes
        assert 0 < found[PhaseName.LOADING].peak_device_bytes < step
        assert found[PhaseName.SAVING].peak_device_bytes < step
        assert found[PhaseName.LOADING].source is Source.COMPUTED

    def test_loading_ends_with_the_weights_on_the_gpu(self) -> None:
        workload = Workload("gpt2", sequence_length=16)
        found, loaded = by_name(workload, traced(workload)), weights_of(workload)
        assert found[PhaseName.LOADING].peak_device_bytes == pytest.approx(loaded.loaded, rel=0.05)
        assert found[PhaseName.LOADING].peak_host_bytes == loaded.loaded
        assert loaded.kept == loaded.saved == loaded.loaded

    @pytest.mark.longer
    def test_evaluation_and_its_logits_are_a_phase(self) -> None:
        workload = Workload("gpt2", sequence_length=16, eval_batch_size=8, eval_samples=40)
        step = traced(workload)
        evaluation = by_name(workload, step)[PhaseName.EVALUATION]
        words = workload.preset.config()["vocab_size"]
        assert evaluation.peak_device_bytes == traced_peaks(step)[PhaseName.EVALUATION]
        # Logits of each word in fp32, a label of 8 bytes for each token, a loss for each sample.
        assert evaluation.peak_host_bytes == 40 * (16 * words * 4 + 16 * 8 + 4)
        moved = replace(workload, eval_accumulation_steps=2)
        there = by_name(moved, traced(moved))[PhaseName.EVALUATION]
        assert there.peak_device_bytes < evaluation.peak_device_bytes
        assert there.peak_host_bytes == pytest.approx(2 * evaluation.peak_host_bytes, rel=0.02)

    @pytest.mark.slow
    def test_completions_are_a_phase_of_their_own(self) -> None:
        workload = Workload.parse(
            {"model": "qwen3-0.6b", "method": "grpo", "sequence_length": 32, "completion_length": 8}
        )
        assert PhaseName.GENERATION in by_name(workload, traced(workload))

    @pytest.mark.longer
    def test_vllm_is_beside_the_step_and_generates(self) -> None:
        workload = Workload.parse(
            {"model": "qwen3-0.6b", "method": "grpo", "sequence_length": 32, "completion_length": 8}
        )
        beside = replace(workload, rollout=Rollout.VLLM, vllm_share=30)
        step = traced(beside)
        served = by_name(replace(workload, rollout=Rollout.SERVER), step)
        found = by_name(beside, step)
        share = GPUS["a10"].total_bytes * 30 // 100
        assert PhaseName.GENERATION not in served
        assert found[PhaseName.GENERATION].peak_device_bytes > share
        more = found[PhaseName.STEP].peak_device_bytes - served[PhaseName.STEP].peak_device_bytes
        assert more == share

    def test_adapters_are_far_smaller_than_the_model_they_are_saved_without(self) -> None:
        adapted = replace(LLAMA, lora_rank=4)
        assert weights_of(adapted).saved < weights_of(LLAMA).saved / 4
        assert weights_of(adapted).loaded == weights_of(LLAMA).loaded

    def test_a_reference_is_loaded_too(self) -> None:
        sft = Workload("qwen3-0.6b", sequence_length=32)
        dpo = replace(sft, method=Method.DPO, completion_length=16)
        assert weights_of(dpo).loaded == 2 * weights_of(sft).loaded
        assert weights_of(dpo).saved == weights_of(sft).saved

    @pytest.mark.slow
    def test_an_offloaded_step_holds_its_state_on_the_host(self) -> None:
        workload = replace(SHARED[Parallelism.FSDP], world_size=2, cpu_offload=True)
        found = by_name(workload, traced(workload))
        assert found[PhaseName.STEP].peak_host_bytes > weights_of(workload).loaded // 2

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", [Parallelism.FSDP, slow(Parallelism.ZERO_3)])
    def test_divided_weights_are_whole_for_a_moment(self, kind: Parallelism) -> None:
        workload = SHARED[kind]
        step = traced(workload)
        found = by_name(workload, step)
        held = sum(step.held_between_steps().values())
        largest = weights_of(workload).largest
        gathered = found[PhaseName.SAVING].peak_device_bytes - held
        assert gathered == pytest.approx(largest, rel=0.1)
        assert found[PhaseName.LOADING].peak_device_bytes > gathered


@pytest.mark.torch
@pytest.mark.usefixtures("small_models")
class TestTheTrialOfAStep:
    @pytest.mark.longer
    def test_it_is_as_before_where_the_step_needs_the_most(self) -> None:
        workload = SHARED[Parallelism.FSDP]
        step = traced(workload, 64)
        trial = Trial(64, True, Source.PREDICTED, 10 * GIB, 11 * GIB, 12 * GIB)
        assert judged_by_all_phases(trial, workload, GPUS["a10"], step) is trial

    def test_saving_decides_where_it_gathers_more_than_a_step_needs(self) -> None:
        """A wide embedding whose rows a small step hardly reads, on GPUs that divide it by 16."""
        workload, gpu = SHARED[Parallelism.FSDP], GPUS["a10"]
        shard = gpu.total_bytes // 16
        step = Trace(
            batch_size=1,
            events=[(0, 0), (0, 1), (0, 2), (1, 2)],
            sizes=[shard, 2**20, 2**20],
            categories=[Category.PARAMETERS, Category.OPTIMIZER_STATE, Category.TEMPORARIES],
            modules=["model.embed_tokens", "model.embed_tokens", ""],
            phases=[(0, "idle"), (1, "forward")],
            last_step=2,
        )
        trial = Trial(1, True, Source.PREDICTED, shard, shard, shard + GIB, shard, shard + 2 * GIB)
        judged = judged_by_all_phases(trial, workload, gpu, step)
        assert not judged.fits
        assert "saving, which has weights whole for a moment" in judged.failure
        assert (judged.device_used_bytes or 0) > gpu.total_bytes
        assert largest_phase_of(workload, gpu, step) is PhaseName.SAVING
        one_gpu = replace(workload, parallelism=Parallelism.NONE, world_size=1)
        assert judged_by_all_phases(trial, one_gpu, gpu, step) is trial


def test_an_optimizer_without_state_saves_the_weights_alone() -> None:
    plain = replace(ONE_GPU, optimizer=Optimizer.SGD)
    assert while_saving(plain, weights(GIB), State()).bytes == GIB


@pytest.mark.torch
@pytest.mark.usefixtures("small_models", "kept_traces")
class TestAnswers:
    @pytest.mark.longer
    def test_an_analysis_has_its_phases_and_what_stops_the_next_batch(self) -> None:
        fields = {"model": "gpt2", "gpu": "a10", "sequence_length": 64, "current_batch_size": 4}
        result = analyze_predicted(AnalysisRequest.parse(fields), lambda _: None)
        names = [phase.name for phase in result.phases]
        assert names == [PhaseName.LOADING, PhaseName.STEP, PhaseName.SAVING]
        assert result.limiting_phase is PhaseName.STEP
        recommended = next(
            one for one in result.trials if one.batch_size == result.recommended_batch_size
        )
        step = result.phases[1]
        # The allocator rounds each tensor up.
        assert step.peak_device_bytes <= (recommended.peak_allocated_bytes or 0)
        assert step.peak_device_bytes == pytest.approx(recommended.peak_allocated_bytes, rel=0.03)

    @pytest.mark.slow
    def test_generating_completions_stops_the_next_batch_where_it_takes_more(self) -> None:
        fields = {
            "model": "qwen3-0.6b", "gpu": "a10", "method": "grpo", "lora_rank": 4,
            "sequence_length": 256, "completion_length": 16, "steps_per_generation": 64,
            "precision": "bf16-true", "gradient_checkpointing": True, "current_batch_size": 1,
        }  # fmt: skip
        result = analyze_predicted(AnalysisRequest.parse(fields), lambda _: None)
        assert result.limiting_phase is PhaseName.GENERATION
        assert f"{result.next_batch_size:,} does not in generation." in result.verdict

    @pytest.mark.slow
    def test_predict_prints_the_phases_of_its_batch(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        command = ["predict", "bert", "--gpu", "a10", "--batch-size", "4"]
        assert main([*command, "--json"]) == 0
        phases = json.loads(capsys.readouterr().out)["phases"]
        assert [one["name"] for one in phases] == ["loading", "training step", "saving"]
        assert main(command) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "Peak memory by phase" in said
        assert "At batch 4, the training step needs the most GPU memory." in said
