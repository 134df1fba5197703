"""Sentences about what a trace saw of a script: an answer says what it rests on."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Sequence
from textwrap import shorten

from torch.optim import Optimizer

from ..gpus import Gpu
from ..parallel.interconnect import script_caveats
from ..tracing.trace import Category, Trace
from ..tracing.unsure import unsure_caveats
from ..versions.loaded_modules import namespace
from .data.loaders import Loaders
from .process.unlike_steps import STEPS
from .values.placeholders import Line, Values
from .values.searches import assumed_of_searches

FORMATS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}

_ATTENTION = {
    "flash": "FlashAttention",
    "efficient": "memory-efficient attention",
    "cudnn": "cuDNN's attention",
}

_GAPS = {"update_proj_gap", "precondition_frequency"}
"""Settings of GaLore and APOLLO, and of SOAP, that say after how many steps."""

MIB = 2**20
_MAX_LINES, _MAX_LINE_LENGTH = 5, 80


def seen(trace: Trace, optimizers: Iterable[Optimizer]) -> str:
    """The number formats, attention kernels and optimizers of the traced steps.

    Args:
        trace: Its operations are those of the last step.
        optimizers: Optimizers that stepped.
    """
    stepped = list(optimizers)
    parts = [
        f"matrix products in {' and '.join(_formats(trace)) or 'no number format'}",
        *_kernels(trace),
        *sorted({_name(optimizer) for optimizer in stepped}),
    ]
    said = f"{STEPS} steps were traced. The last one has {', '.join(parts)}."
    return " ".join(
        [said, *_renewals(stepped), *_preconditioners(stepped), *assumed_of_searches(stepped)]
    )


def classes_of(optimizers: Iterable[Optimizer]) -> tuple[str, ...]:
    """The classes of optimizers that stepped, each once."""
    return tuple(sorted({type(optimizer).__name__ for optimizer in optimizers}))


def _renewals(optimizers: Iterable[Optimizer]) -> list[str]:
    """Caveats about what an optimizer does too seldom for the traced steps to show."""
    found = {
        (type(optimizer).__name__, group[gap])
        for optimizer in optimizers
        for group in optimizer.param_groups
        for gap in _GAPS & group.keys()
    }
    return [
        f"{name} decomposes or projects anew every {steps:,} steps. The trace met the first time, "
        "when part of its state was not there yet, so a later one may need up to that much more."
        for name, steps in sorted(found)
        if steps > STEPS
    ]


def _preconditioners(optimizers: Iterable[Optimizer]) -> list[str]:
    """Caveats about what pytorch-optimizer's Shampoo first does after the traced steps."""
    found = {
        (type(optimizer).__name__, getattr(optimizer, "preconditioning_compute_steps", 1))
        for optimizer in optimizers
    }
    return [
        f"{name} computes its preconditioners every {steps:,} steps. The trace did not meet such a "
        "step, which needs more memory."
        for name, steps in sorted(found)
        if steps > STEPS
    ]


def _formats(trace: Trace) -> list[str]:
    """The number formats of matrix products and convolutions, that of most work first."""
    work: Counter[str] = Counter()
    for operation in trace.operations:
        if operation.flops:
            work[operation.dtype] += operation.flops
    formats = [FORMATS.get(dtype, dtype) for dtype, _ in work.most_common()]
    return ["TF32" if name == "fp32" and trace.tf32 else name for name in formats]


def _kernels(trace: Trace) -> list[str]:
    names = {operation.name for operation in trace.operations}
    return [
        words
        for kernel, words in _ATTENTION.items()
        if f"aten._scaled_dot_product_{kernel}_attention" in names
    ]


def _name(optimizer: Optimizer) -> str:
    """Such as ``AdamW (fused)``."""
    name = type(optimizer).__name__
    groups = optimizer.param_groups
    chosen = {way for way in ("fused", "foreach") if any(group.get(way) for group in groups)}
    return f"{name} ({', '.join(sorted(chosen))})" if chosen else name


def divided(processes: int) -> list[str]:
    """Caveat where each process has a part of the batch."""
    if processes == 1:
        return []
    return [
        f"The script divides its batch among {processes:,} processes: batch sizes are those of all "
        f"of them, and a GPU has 1/{processes:,} of each."
    ]


def fewer(batches: int, before: int) -> list[str]:
    """Caveat where the predicted step has fewer micro-batches than the one before."""
    if batches >= before:
        return []
    return [
        f"Step {STEPS} accumulates {batches:,} micro-batches and the one before {before:,}, as at "
        f"the end of an epoch. Its time and samples are those of {batches:,}; memory counts all."
    ]


def of_evaluation(loaders: Loaders) -> list[str]:
    """Caveats about evaluation, as far as it can be seen."""
    if loaders.evaluates:
        return [
            "The script evaluates between its first steps. Memory includes that, and so does the "
            "time of a step that it comes before; let it evaluate later for the time of training "
            "alone."
        ]
    first = [EVALUATES_FIRST] if loaders.evaluates_first else []
    trainer = namespace("transformers.trainer").get("Trainer", ())
    evaluates = bool(loaders.unread) or any(
        str(getattr(found.args, "eval_strategy", "no")) not in ("no", "IntervalStrategy.NO")
        for found in gc.get_objects()
        if issubclass(type(found), trainer)  # others may raise when they are asked for their class
    )
    return [*first, EVALUATES] if evaluates else first


EVALUATES_FIRST = "The script evaluates before its first step, and memory includes that."
"""The caveat of a script that tries its evaluation before it trains."""

EVALUATES = (
    "The script also evaluates, which was not traced: it takes no gradients, but with a larger "
    "batch or generated text it may need more memory than a training step."
)
"""The caveat of a script whose evaluation comes after its traced steps."""


def values_read(values: Values, decided: Sequence[Line] = ()) -> list[str]:
    """Sentences about lines that read values nobody knew, and what that means.

    Args:
        values: Values that were read.
        decided: Lines whose values were chosen so that memory is at its largest.
    """
    said = []
    chosen = [str(values.users.get(line, line)) for line in decided]
    if chosen:
        said.append(
            f"Memory depends on values read at {_listed(chosen)}. It was traced with those that "
            "take the most: a step with others takes less."
        )
    if lines := [line for line in values.lines() if line not in chosen]:
        said.append(
            f"Placeholders stood for values read at {_listed(lines)}. Other placeholders give "
            "the same memory."
        )
    if lines := values.bounded_lines():
        said.append(
            f"What is selected by values at {_listed(lines)} was taken to be as large as it can be."
        )
    if lines := values.shared_lines():
        said.append(
            f"What is selected by a choice among several at {_listed(lines)} was taken to be as "
            "much for each of them. What they keep together is right, whatever is chosen; one that "
            "is chosen more often takes more while it runs."
        )
    return said


def _listed(lines: Sequence[str]) -> str:
    more = len(lines) - _MAX_LINES
    listed = "; ".join(
        shorten(line, _MAX_LINE_LENGTH, placeholder=" …)") for line in lines[:_MAX_LINES]
    )
    return f"{listed}; and {more} more" if more > 0 else listed


def on_the_host(trace: Trace) -> list[str]:
    """Sentence about what stays out of the GPU's memory, at the batch size of the trace."""
    if trace.host_bytes < MIB:
        return []
    return [
        f"At batch {trace.batch_size:,}, up to {trace.host_bytes / MIB:,.1f} MiB of tensors are on "
        "the host at once. They take no GPU memory."
    ]


def about_the_trace(trace: Trace, gpu: Gpu | None) -> list[str]:
    """Caveats about a trace, on a GPU or on any."""
    caveats = [
        *trace.caveats,
        *script_caveats(trace.world_size, gpu, trace.divided_by),
        "Nothing was run: the script was traced on fake tensors, and memory comes from a replay "
        "through a model of PyTorch's caching allocator. Kernels called outside PyTorch's "
        "operators are not seen.",
        "Memory is attributed from the outside: whatever the script creates besides parameters "
        "and optimizer state counts as inputs.",
    ]
    if Category.PARAMETERS not in trace.categories:
        caveats.append(
            "The script created no torch.nn.Module with parameters, so parameters and gradients "
            "cannot be told apart from inputs and activations."
        )
    stepped = "optimizer" in {operation.phase for operation in trace.operations}
    if not stepped and Category.OPTIMIZER_STATE not in trace.categories:
        caveats.append(
            "No torch.optim.Optimizer took a step, so optimizer state cannot be told apart from "
            "inputs and activations."
        )
    return caveats + unsure_caveats(trace)
