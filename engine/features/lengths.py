"""Lengths of samples where they differ, and the way that batches are made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..core.choices import Attention, Batching
from ..core.fields import Described, Group, Interval
from ..models.tasks import Task
from .contradiction import GIVEN, NOT_GIVEN, OF_ANSWERS, VARIES, Contradiction, one_of, other_than
from .length_distribution import EXAMPLE


@dataclass(frozen=True, kw_only=True)
class SampleLengths:
    """Lengths of samples where they differ, and the way that batches are made of them."""

    batching: Annotated[
        Batching,
        Described(
            "Batching",
            "How samples of different lengths become a batch. Anything but fixed needs the lengths "
            "of your samples.",
            Group.LENGTHS,
            chip="{} batches",
        ),
    ] = Batching.FIXED
    sample_lengths: Annotated[
        str | None,
        Described(
            "Sample lengths",
            "Percentiles of your samples' lengths in tokens, such as "
            "p50=310,p90=900,p99=2100,max=4096, or the length of each, one per line; the command "
            "line takes a file of these. What is longer than the sequence length is cut. Of a "
            "list, the answer names the longest sample, to be put first in a run.",
            Group.LENGTHS,
            empty="all as long as the sequence length",
            metavar="LENGTHS",
        ),
    ] = None
    run_batches: Annotated[
        int,
        Interval(ge=1, le=100_000_000),
        Described(
            "Batches per run",
            "Batches of one training run, over all GPUs and micro-batches. With 99% probability "
            "none of them needs more memory than predicted.",
            Group.LENGTHS,
            unit="batches",
        ),
    ] = 10_000


_PADS = one_of(Batching.LONGEST, Batching.BUCKETED, Batching.MAX_TOKENS)
_IN_ONE_ROW = one_of(Batching.PADDING_FREE)
_CAUSAL = Task.CAUSAL_LANGUAGE_MODELLING
_TEXTS = (
    Task.SEQUENCE_CLASSIFICATION,
    Task.TOKEN_CLASSIFICATION,
    Task.MASKED_LANGUAGE_MODELLING,
    _CAUSAL,
)

RULES = (
    Contradiction(
        {"attention": one_of(Attention.FLASH), "batching": _PADS},
        "padding needs a mask, which FlashAttention does not take here; choose sdpa, or packed",
    ),
    Contradiction(
        {"batching": VARIES, "sample_lengths": NOT_GIVEN},
        f"enter the lengths of your samples too, such as {EXAMPLE}",
    ),
    Contradiction(
        {"sample_lengths": GIVEN, "batching": one_of(Batching.FIXED)},
        "batches of a fixed length do not depend on it; choose how samples are batched too",
    ),
    Contradiction(
        {"batching": VARIES, "task": other_than(*_TEXTS, None)},
        "samples of this task are predicted with one length; choose fixed",
    ),
    Contradiction(
        {"batching": VARIES, "method": OF_ANSWERS},
        "answers are predicted with one length; choose fixed or sft",
    ),
    Contradiction(
        {"batching": _IN_ONE_ROW, "attention": other_than(Attention.FLASH)},
        "without FlashAttention one row needs a mask of its square; choose flash, or packed",
    ),
    Contradiction(
        {"batching": _IN_ONE_ROW, "eval_batch_size": GIVEN},
        "evaluation is not predicted in one row; leave its batch size out, or choose packed",
    ),
    Contradiction(
        {
            "batching": one_of(Batching.PACKED, Batching.PADDING_FREE),
            "task": other_than(_CAUSAL, None),
        },
        "only language models train on such rows; choose longest or bucketed",
    ),
)
