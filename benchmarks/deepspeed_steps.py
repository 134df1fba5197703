"""DeepSpeed's own training steps on a CPU, beside what is predicted of them, to the byte.

``python -m benchmarks.deepspeed_steps`` needs DeepSpeed 0.19.8 in the environment. Each GPU is a
process, and they meet over Gloo. Every tensor is counted as it comes and goes, with nothing of
CUDA's behaviour: what is compared is what ZeRO keeps and when.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from engine.allocator.caching import ALLOCATE
from engine.core.choices import ZERO, Precision
from engine.core.optimizers import Optimizer
from engine.interface.workload import Workload
from engine.parallel.zero import cast_trained, computed_alone
from engine.step.batches import make_batch
from engine.step.training import build_model, inputs_on_device, prepare
from engine.traces.tracer import trace
from engine.tracing.recorder import MemoryRecorder
from engine.tracing.trace import Trace

_WIDE = {"vocab_size": 1024, "bos_token_id": 1, "eos_token_id": 2}
_LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
    **_WIDE,
}
_GPT2 = {"model_type": "gpt2", "n_embd": 256, "n_layer": 2, "n_head": 8, "n_positions": 64, **_WIDE}
CONFIGS = {"GPT-2": _GPT2, "Llama": _LLAMA}
PHASES = ("forward", "backward and update", "between steps")
_PHASE_OF = {"forward": PHASES[0], "backward": PHASES[1], "optimizer": PHASES[1]}
BATCH_SIZE = 4
STEPS = 2


def workloads() -> Iterator[tuple[str, Workload]]:
    """The workloads to run, each with the name of its model."""
    for (name, config), stage, gpus in product(CONFIGS.items(), ZERO, (1, 2)):
        yield (
            name,
            Workload(
                name,
                config=config,
                sequence_length=32,
                precision=Precision.BF16_MIXED,
                optimizer=Optimizer.ADAMW,
                parallelism=stage,
                world_size=gpus,
                reduce_bucket_size=200_000,
                gradient_accumulation=gpus,
            ),
        )


def main() -> None:
    """Print a line for each run: the most bytes in each phase, and those between steps."""
    deepspeed = import_module("deepspeed")
    titles = ["model", "ZeRO", "GPUs and micro-batches"]
    titles += [f"{phase}: DeepSpeed | predicted" for phase in PHASES]
    print(_line(titles), _line(["---"] * (len(titles) + len(PHASES))), sep="\n")  # noqa: T201  # a command
    for name, workload in workloads():
        real = run(workload, deepspeed)
        predicted = most_of(trace(workload, BATCH_SIZE, None))
        stage = workload.parallelism.value[-1]
        cells = [name, stage, workload.world_size]
        for phase in PHASES:
            off = predicted[phase] / real[phase] - 1
            cells += [f"{real[phase]:,}", f"{predicted[phase]:,} ({off:+.2%})"]
        print(_line(cells), flush=True)  # noqa: T201  # a command


def _line(cells: list[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def run(workload: Workload, deepspeed: Any) -> dict[str, int]:
    """The most bytes in each phase of DeepSpeed's last step, on the GPU where they are most.

    Args:
        workload: A workload with ZeRO. Each of its GPUs becomes a process.
        deepspeed: The package.
    """
    context = get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        meeting, found = str(Path(folder) / "meeting"), context.SimpleQueue()
        processes = [
            context.Process(target=_one_gpu, args=(workload, rank, meeting, found, deepspeed))
            for rank in range(workload.world_size)
        ]
        for process in processes:
            process.start()
        most: list[dict[str, int]] = [found.get() for _ in processes]
        for process in processes:
            process.join()
    return {phase: max(one[phase] for one in most) for phase in PHASES}


def _one_gpu(workload: Workload, rank: int, meeting: str, found: Any, deepspeed: Any) -> None:
    """Run a process of a training run, which puts into a queue what it found."""
    world_size = workload.world_size
    os.environ |= {"DS_ACCELERATOR": "cpu", "LOCAL_RANK": str(rank), "RANK": str(rank)}
    os.environ |= {"WORLD_SIZE": str(world_size), "LOCAL_SIZE": str(world_size)}
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    # It would be compiled, for minutes; a build that was stopped leaves a lock, at which all later
    # ones wait forever. Gloo does the same.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    store = FileStore(meeting, world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    found.put(most_of(recorded(workload, deepspeed.initialize)))
    dist.barrier()
    dist.destroy_process_group()


@dataclass
class _Run:
    """DeepSpeed's engine as a recorder needs it; only the phase classifies its allocations."""

    model: torch.nn.Module
    optimizer: None = None
    phase: str = "start"


def recorded(workload: Workload, initialize: Any) -> Trace:
    """A trace of real steps on DeepSpeed's engine.

    Args:
        workload: A workload with ZeRO, whose processes have met.
        initialize: ``deepspeed.initialize``.
    """
    alone = computed_alone(workload)
    model = cast_trained(build_model(alone), workload)
    training = prepare(alone, model)
    batch, run = make_batch(workload, BATCH_SIZE), _Run(model)
    recorder = MemoryRecorder(run, BATCH_SIZE, counted=lambda one: one.device.type != "meta")
    with recorder:
        engine, *_ = initialize(
            model=model, optimizer=training.optimizer, config=deepspeed_config(workload)
        )

    def step() -> None:
        for _ in range(workload.gradient_accumulation):
            run.phase = "inputs"
            inputs = inputs_on_device(training, batch)
            run.phase = "forward"
            loss = training.loss(engine, inputs)
            run.phase = "backward"
            engine.backward(loss)
            run.phase = "optimizer"
            engine.step()
        run.phase = "idle"

    for _ in range(STEPS):
        recorder.record_step(step)
    return recorder.trace


def deepspeed_config(workload: Workload) -> dict[str, Any]:
    """The DeepSpeed config of a workload."""
    return {
        "train_micro_batch_size_per_gpu": BATCH_SIZE,
        "gradient_accumulation_steps": workload.gradient_accumulation,
        "bf16": {"enabled": True},
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            "stage": int(workload.parallelism.value[-1]),
            "reduce_bucket_size": workload.reduce_bucket_size,
            "overlap_comm": workload.overlap_comm,
        },
    }


def most_of(found: Trace) -> dict[str, int]:
    """The most bytes alive at once in each phase of the last step, and those after it."""
    most, phases = dict.fromkeys(PHASES, 0), dict(found.phases)
    live, phase = 0, ""
    for index, (kind, tensor) in enumerate(found.events):
        phase = _PHASE_OF.get(phases[index], "") if index in phases else phase
        live += found.sizes[tensor] if kind == ALLOCATE else -found.sizes[tensor]
        if index >= found.last_step and phase:
            most[phase] = max(most[phase], live)
    return most | {PHASES[-1]: live}


if __name__ == "__main__":
    main()
