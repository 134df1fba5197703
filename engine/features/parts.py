"""Settings that are not predicted where GPUs have parts of a model."""

from __future__ import annotations

from ..core.choices import Method
from .contradiction import GIVEN, IN_PARTS, ON, VARIES, Values, other_than

DEGREES = ("tensor_parallel", "pipeline_parallel")
"""Fields that divide a model into parts on several GPUs."""
NOT_IN_PARTS: tuple[tuple[str, Values], ...] = (
    ("lora_rank", GIVEN),
    ("method", other_than(Method.SFT)),
    ("batching", VARIES),
    ("cross_entropy", IN_PARTS),
    ("activation_offload", ON),
    ("eval_batch_size", GIVEN),
    ("cpu_offload", ON),
    ("use_cache", ON),
    ("compile", ON),
    ("optimizer_in_backward", ON),
)
"""Settings that are not predicted where GPUs have parts of a model."""
