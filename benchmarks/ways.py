"""Ways of training, and what the prediction of each is held against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.errors import Errors
from engine.core.adapters import Adapter
from engine.core.choices import ZERO, Batching, CrossEntropy, Method, Parallelism
from engine.core.choices import Quantization as Quantized
from engine.core.optimizers import Optimizer
from engine.interface.workload import Workload

REAL = "real steps on a CPU"
PROCESSES = "real processes on a CPU"
PACKAGE = "steps of the package on a CPU"
SOURCE = "arithmetic from the source"
"""References for a way besides published measurements, by the tests of the engine."""


@dataclass(frozen=True)
class Way:
    """One way of training.

    Attributes:
        name: Its common name.
        beside: The other references of its prediction.
        tests: The file among the engine's tests.
        holds: Whether a workload is trained that way.
        generates: Whether texts are only generated.
    """

    name: str
    beside: str
    tests: str
    holds: Callable[[Workload], bool]
    generates: bool = False


def _optimizer(*names: Optimizer) -> Callable[[Workload], bool]:
    return lambda workload: workload.optimizer in names


def _method(*names: Method) -> Callable[[Workload], bool]:
    return lambda workload: workload.method in names


def _parallelism(*names: Parallelism) -> Callable[[Workload], bool]:
    return lambda workload: workload.parallelism in names


_STEPS = "prediction_against_real_steps"

WAYS = (
    Way("all weights trained", REAL, _STEPS, lambda w: w.lora_rank is None),
    Way("LoRA", REAL, _STEPS, lambda w: w.lora_rank is not None),
    Way("DoRA", REAL, _STEPS, lambda w: w.lora_rank is not None and w.adapter is Adapter.DORA),
    Way("modules trained beside adapters", REAL, _STEPS, lambda w: bool(w.modules_to_save)),
    Way("new tokens trained beside adapters", REAL, _STEPS, lambda w: bool(w.trained_tokens)),
    Way("QLoRA", PACKAGE, "quantizing", lambda w: w.quantization.in_4_bits),
    Way(
        "LoRA on weights in 8 bits", PACKAGE, "eight_bits",
        lambda w: w.quantization is Quantized.INT8,
    ),
    Way("bf16 weights", REAL, _STEPS, lambda w: w.precision == "bf16-true"),
    Way("mixed precision", REAL, _STEPS, lambda w: w.precision.endswith("-mixed")),
    Way(
        "8-bit and paged AdamW", SOURCE, "optimizers",
        _optimizer(Optimizer.ADAMW_8BIT, Optimizer.PAGED_ADAMW, Optimizer.PAGED_ADAMW_8BIT),
    ),
    Way("Adafactor", REAL, _STEPS, _optimizer(Optimizer.ADAFACTOR)),
    Way(
        "Muon, schedule-free, Adam-mini", PACKAGE, "optimizer_packages",
        _optimizer(Optimizer.MUON, Optimizer.SCHEDULE_FREE_ADAMW, Optimizer.ADAM_MINI),
    ),
    Way(
        "GaLore, APOLLO, SOAP, Shampoo", PACKAGE, "optimizer_packages",
        lambda w: w.optimizer.spec.needs_whole_matrices,
    ),
    Way("optimizer in backward", REAL, _STEPS, lambda w: w.optimizer_in_backward),
    Way("gradient checkpointing", REAL, _STEPS, lambda w: w.gradient_checkpointing),
    Way(
        "some layers or operators recomputed", REAL, _STEPS,
        lambda w: w.checkpoint_every > 1 or w.recompute != "all",
    ),
    Way("activations offloaded", REAL, "offloading", lambda w: w.activation_offload),
    Way(
        "optimizer offloaded", REAL, "offloading",
        lambda w: w.optimizer_offload and w.parallelism is Parallelism.NONE,
    ),
    Way(
        "loss in parts, chunked or Liger", REAL, "cross_entropy",
        lambda w: w.cross_entropy is not CrossEntropy.MODEL,
    ),
    Way("DDP", PACKAGE, "parallel", _parallelism(Parallelism.DDP)),
    Way("FSDP", PACKAGE, "parallel", _parallelism(Parallelism.FSDP)),
    Way(
        "FSDP, shards offloaded", SOURCE, "parallel",
        lambda w: w.cpu_offload and w.parallelism is Parallelism.FSDP,
    ),
    Way(
        "ZeRO", SOURCE, "zero",
        _parallelism(*ZERO),
    ),
    Way(
        "ZeRO, offloaded", SOURCE, "zero_offload",
        lambda w: w.parallelism in ZERO and (w.cpu_offload or w.optimizer_offload),
    ),
    Way(
        "tensor and sequence parallel", PROCESSES, "tensor_parallel",
        lambda w: w.tensor_parallel > 1,
    ),
    Way("context parallel", SOURCE, "context_parallel", lambda w: w.context_parallel > 1),
    Way("expert parallel", PROCESSES, "expert_parallel", lambda w: w.expert_parallel > 1),
    Way("pipeline parallel", PROCESSES, "pipeline", lambda w: w.pipeline_parallel > 1),
    Way("DPO", REAL, "methods", _method(Method.DPO)),
    Way("ORPO and KTO", REAL, "methods", _method(Method.ORPO, Method.KTO)),
    Way("GRPO", REAL, "methods", _method(Method.GRPO)),
    Way("PPO", REAL, "methods", _method(Method.PPO)),
    Way("distillation", REAL, "methods", _method(Method.DISTILLATION)),
    Way(
        "samples of several lengths, packing", REAL, "batching",
        lambda w: w.batching is not Batching.FIXED,
    ),
    Way("evaluation", REAL, "evaluating", lambda w: w.eval_batch_size is not None),
    Way("generation alone", REAL, "generating", lambda w: True, generates=True),
)  # fmt: skip

HEADINGS = (
    "way of training", "numbers", "median error", "worst", "ran: false alarm",
    "out of memory: false safe", "beside that",
)  # fmt: skip


def cells(comparisons: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """A row for each way, with the published measurements that are trained that way.

    Args:
        comparisons: Those of the JSON; a factory's have no workload, and are no way's.
    """
    known = [
        (Workload.parse(one["measurement"]["workload"]), one)
        for one in comparisons
        if one["measurement"]["workload"] is not None and one["fits"] is not None
    ]
    return [
        _row(way, [one for workload, one in known if _is_of(way, workload, one)]) for way in WAYS
    ]


def _is_of(way: Way, workload: Workload, comparison: Mapping[str, Any]) -> bool:
    generates = comparison["measurement"].get("texts") is not None
    return generates is way.generates and way.holds(workload)


def _row(way: Way, found: list[Mapping[str, Any]]) -> list[str]:
    errors = Errors.of(one["error"] for one in found)
    alarms = [not one["fits"] for one in found if one["measurement"]["ran"]]
    safe = [one["fits"] for one in found if not one["measurement"]["ran"]]
    return [
        way.name,
        str(errors.compared or "-"),
        *("-" if share is None else f"{share:.1%}" for share in (errors.median, errors.worst)),
        *(f"{sum(wrong)} of {len(wrong)}" if wrong else "-" for wrong in (alarms, safe)),
        f"{way.beside} (`test_{way.tests}.py`)",
    ]
