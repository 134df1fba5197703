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

from ...core.choices import RESIDUAL_LENGTH, Precision
from ...gpus import Gpu
from ...interface.texts import Texts
from ...tracing.trace import ENCODING, PACKING, PROMPT, TOKEN, Operation, Trace
from ..timing.intervals import RelativeRange
from ..timing.kernels import Format, Kernel, Kind, kind_of
from ..timing.speed_model import speed_model
from ..timing.step_time import step_work
from ..timing.work import Scales

READING = 0.8
"""Assumed: the share of the bandwidth at which a product reads weights for a few rows. gpt-fast
states 72% to 79% of an A100's for whole tokens (https://pytorch.org/blog/accelerating-generative-ai-2)."""

SPEED_RANGE = RelativeRange(0.6, 1.3)
"""Assumed of tokens per second. Of the published speeds in docs/methods.md all lie within it, but
they are few, and hosts differ."""


@dataclass(frozen=True)
class GenerationSpeed:
    """Speed of generating texts on a GPU.

    Attributes:
        prompt_seconds: Time until the first token of each text, with what is encoded.
        token_seconds: Time for each further token of all texts, on average; 0 where there is none.
        tokens_per_second: New tokens of all texts, over the whole time.
        waits_for_host: Whether a token takes as long as the host takes to launch its operations.
        waits_for_link: Whether copies of an offloaded cache take longer than a token's kernels.
    """

    prompt_seconds: float
    token_seconds: float
    tokens_per_second: float
    waits_for_host: bool
    waits_for_link: bool = False


def generation_speed(trace: Trace, texts: Texts, gpu: Gpu, precision: Precision) -> GenerationSpeed:
    """Speed of generating the texts of a trace.

    Args:
        trace: Trace of generating, as :func:`~.generation.generation_traces` makes it.
        texts: Lengths of the texts.
        gpu: The GPU.
        precision: Precision of the workload.
    """
    prompt = 0.0
    at_length: dict[str, dict[int, PassTime]] = {TOKEN: {}, PACKING: {}}
    for phase, operations in groupby(trace.operations, attrgetter("phase")):
        kind, _, length = phase.partition(" ")
        if phase in (ENCODING, PROMPT):
            prompt += pass_time(list(operations), gpu, precision).seconds
        elif kind in at_length:
            at_length[kind][int(length)] = pass_time(list(operations), gpu, precision)
    count = texts.new_tokens - 1
    reading = _reading_seconds(at_length[TOKEN], at_length[PACKING], count) if count else 0.0
    seconds = prompt + reading
    last = at_length[TOKEN][max(at_length[TOKEN])] if count else None
    return GenerationSpeed(
        prompt,
        reading / max(count, 1),
        trace.batch_size * texts.new_tokens / seconds,
        waits_for_host=last is not None and last.waits_for_host,
        waits_for_link=last is not None and last.waits_for_link,
    )


def _reading_seconds(usual: dict[int, PassTime], packing: dict[int, PassTime], count: int) -> float:
    """Time of reading ``count`` tokens, some of which pack the cache anew."""
    last = max((*usual, *packing))  # the decoder may read more than the prompt, or another text
    first = last - count + 1
    packings = count // RESIDUAL_LENGTH if packing else 0
    seconds = (count - packings) * _mean(usual, first)
    if packings:
        seconds += packings * _mean(packing, first + RESIDUAL_LENGTH - 1)
    return seconds


@dataclass(frozen=True)
class PassTime:
    """The time of one forward pass of generation.

    Attributes:
        kernels: Time of the GPU's kernels.
        host: Time of the host to launch them.
        sending: Time of copies to the host, in the stream of the kernels.
        fetching: Time of copies from it, beside the kernels.
    """

    kernels: float
    host: float
    sending: float
    fetching: float

    @property
    def seconds(self) -> float:
        """The longest of what runs at once."""
        return max(self.kernels + self.sending, self.host, self.fetching)

    @property
    def waits_for_host(self) -> bool:
        return self.host >= self.seconds

    @property
    def waits_for_link(self) -> bool:
        return not self.waits_for_host and max(self.sending, self.fetching) > self.kernels


_A_BYTE = Kernel(Kind.PRODUCT, Format.HALF, flops=0.0, bytes_moved=1.0)


def pass_time(operations: Sequence[Operation], gpu: Gpu, precision: Precision) -> PassTime:
    """The time of one forward pass of generation."""
    model = speed_model()
    rates = model.rates(gpu)
    fitted = model.moving_seconds(_A_BYTE, rates) * rates.bytes_per_second
    products = [one for one in operations if kind_of(one) is Kind.PRODUCT]
    others = [one for one in operations if kind_of(one) is not Kind.PRODUCT]
    work = [step_work(part, gpu, precision) for part in (products, others)]
    scales = (Scales(bandwidth=READING * fitted), Scales())
    timed = [one.timed(scale) for one, scale in zip(work, scales, strict=True)]
    return PassTime(
        kernels=math.fsum(one.gpu_seconds for one in timed),
        host=math.fsum(one.host_seconds for one in timed),
        sending=math.fsum(one.on_host_seconds for one in work),
        fetching=math.fsum(one.link_seconds for one in work),
    )


def _mean(at_length: dict[int, PassTime], first: int) -> float:
    """The mean over all lengths from the first to the last, between those that were traced.

    Lengths below the shortest traced one lie on the line through the next two.
    """
    known = sorted((length, taken.seconds) for length, taken in at_length.items())
    if len(known) == 1:
        return known[0][1]
    if first < known[0][0]:
        known.insert(0, (first, _on_line(known[0], known[1], first)))
    areas = ((high - low) * (a + b) / 2 for (low, a), (high, b) in pairwise(known))
    return math.fsum(areas) / (known[-1][0] - known[0][0])


def _on_line(one: tuple[int, float], other: tuple[int, float], length: int) -> float:
    slope = (other[1] - one[1]) / (other[0] - one[0])
    return one[1] + slope * (length - one[0])
