"""Predicts how fast texts are generated: reading the prompts, then one token after another.

A token is read with all weights and all keys and values before it, so that the bandwidth decides,
or, in small models and small batches, the host that launches the operations. Both are as in
:mod:`.step_time`, but for one share: a product of few rows reaches more of the bandwidth than those
of training steps that the shares were fitted to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import attrgetter

from ..choices import Precision
from ..gpus import Gpu
from ..texts import Texts
from ..tracing.trace import ENCODING, PROMPT, TOKEN, Operation, Trace
from .intervals import RelativeRange
from .kernels import Kind, kind_of
from .speed_model import speed_model
from .step_time import Scales, StepTime, step_work

READING = 0.8
"""Assumed: the share of the bandwidth at which a product reads weights for a few rows. gpt-fast
states 72% to 79% of an A100's for whole tokens (https://pytorch.org/blog/accelerating-generative-ai-2)."""

SPEED_RANGE = RelativeRange(0.6, 1.3)
"""Assumed of tokens per second. Of the published speeds in docs/methods.md all lie within it, but
they are few, and hosts differ."""


@dataclass(frozen=True)
class GenerationSpeed:
    """How fast texts are generated on a GPU.

    Attributes:
        prompt_seconds: Until the first token of each text, with what is encoded.
        token_seconds: For each further token of all texts, in the mean; 0 where there is none.
        tokens_per_second: New ones of all texts, over the whole time.
        waits_for_host: Whether a token takes as long as the host takes to launch its operations.
    """

    prompt_seconds: float
    token_seconds: float
    tokens_per_second: float
    waits_for_host: bool


def generation_speed(trace: Trace, texts: Texts, gpu: Gpu, precision: Precision) -> GenerationSpeed:
    """How fast the texts of a trace are generated.

    Args:
        trace: Of generating, as :func:`~.generation.generation_traces` makes it.
        texts: How long they are.
        gpu: Where.
        precision: Of the workload.
    """
    prompt, at_length = 0.0, {}
    waits = False
    for phase, operations in groupby(trace.operations, attrgetter("phase")):
        if phase in (ENCODING, PROMPT):
            prompt += pass_time(list(operations), gpu, precision).seconds
        elif phase.startswith(f"{TOKEN} "):
            taken = pass_time(list(operations), gpu, precision)
            at_length[int(phase.removeprefix(f"{TOKEN} "))] = taken.seconds
            waits = taken.launch_limited
    count = texts.new_tokens - 1
    last = max(at_length, default=0)  # the decoder may read more than the prompt, or another text
    token = _mean(at_length, last - count + 1, last) if count else 0.0
    seconds = prompt + count * token
    return GenerationSpeed(prompt, token, trace.batch_size * texts.new_tokens / seconds, waits)


def pass_time(operations: Sequence[Operation], gpu: Gpu, precision: Precision) -> StepTime:
    """The time of one forward pass of generation: the longer of kernels and host."""
    fitted = speed_model().bandwidth[Kind.PRODUCT]
    parts = [
        step_work(part, gpu, precision).timed(Scales(bandwidth=scale))
        for part, scale in (
            ([one for one in operations if kind_of(one) is Kind.PRODUCT], READING / fitted),
            ([one for one in operations if kind_of(one) is not Kind.PRODUCT], 1.0),
        )
    ]
    on_gpu = math.fsum(part.gpu_seconds for part in parts)
    on_host = math.fsum(part.host_seconds for part in parts)
    return StepTime(max(on_gpu, on_host), on_gpu, on_host, 1.0)


def _mean(at_length: dict[int, float], first: int, last: int) -> float:
    """The mean over all lengths from the first to the last, between those that were traced.

    Lengths below the shortest traced one lie on the line through the next two.
    """
    known = sorted(at_length.items())
    if len(known) == 1:
        return known[0][1]
    if first < known[0][0]:
        known.insert(0, (first, _on_line(known[0], known[1], first)))
    areas = ((high - low) * (a + b) / 2 for (low, a), (high, b) in pairwise(known))
    return math.fsum(areas) / (last - first)


def _on_line(one: tuple[int, float], other: tuple[int, float], length: int) -> float:
    slope = (other[1] - one[1]) / (other[0] - one[0])
    return one[1] + slope * (length - one[0])
