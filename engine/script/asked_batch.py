"""Traces of a script that small batches do not tell, from the batch that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..gpus import Gpu
from ..traces.batch_rule import LOW
from ..traces.source import TraceSource
from ..tracing.every_batch import AffineTrace
from ..tracing.lowering import CudaBehaviour
from ..tracing.trace import Trace
from .devices.process_group import world_size
from .each_size import EachSize
from .factory import ScriptFailed
from .request import Script
from .trace_report import on_the_host


def trace_from_the_asked(
    script: Script,
    behaviour: CudaBehaviour | None,
    warn: Callable[[str], None],
    gpu: Gpu | None,
    asked: int,
) -> AskedTraces:
    """Traces from that of the batch that was asked for, and of others that the script takes.

    Args:
        script: The script to trace.
        behaviour: The GPU's; ``None`` for the CPU.
        warn: Receives a sentence that names the batch sizes traced.
        gpu: The GPU that the script sees; by default one that behaves so.
        asked: The batch size that was asked for.

    Raises:
        ScriptFailed, CannotTrace: As for :func:`trace_script`, at that batch size.
    """
    each = EachSize(script, behaviour, gpu, asked)
    multiple, line, traced = _line_near(each, asked)
    if line is None and each.settle():
        multiple, line, traced = _line_near(each, asked)
    caveat = (
        f"{script.name} cannot be told from a batch of {LOW}; traced were those of "
        f"{', '.join(f'{size:,}' for size in traced)}. Whether it takes others was not tried."
    )
    warn(caveat)
    rule = each if line is None else line
    return AskedTraces(each, rule, multiple, [*each.low.trace.caveats, caveat])


@dataclass(eq=False)
class AskedTraces:
    """The traces of a script at the batch size that was asked for, and at others near it.

    Attributes:
        each: Traces one batch size by itself.
        rule: Gives all multiples; ``each`` where nothing else does.
        multiple: What batch sizes are multiples of, as far as is known.
        caveats: Caveats of every trace.
    """

    each: EachSize
    rule: TraceSource = field(repr=False)
    multiple: int
    caveats: list[str]

    def at(self, batch_size: int) -> Trace:
        source = self.each if batch_size % self.multiple else self.rule
        told = replace(source.at(batch_size), batch_multiple=self.multiple)
        return replace(told, caveats=[*self.caveats, *on_the_host(told)])


def _line_near(each: EachSize, asked: int) -> tuple[int, AffineTrace | None, tuple[int, ...]]:
    """A line from the batch that was asked for on: what its sizes are multiples of, and which.

    Raises:
        ScriptFailed: If other sizes give the same step, so that none of them is its batch size.
    """
    alike = None
    for multiple, sizes in _near(asked).items():
        line = each.line(sizes)
        if line is None:
            continue
        if line.low.sizes != line.high.sizes:
            return multiple, line, (asked, *sizes)
        if line.low.micro_batches == line.high.micro_batches:
            alike = sizes[0]
    if alike is not None:
        raise ScriptFailed(
            f"a step of {each.script.name} creates the same tensors at batch {asked:,} and "
            f"{alike:,}; {each.script.wants_data}"
        )
    return asked, None, (asked,)


def _near(asked: int) -> dict[int, tuple[int, int]]:
    """Pairs of batch sizes that a script may take if it takes one, by what all are multiples of."""
    units = sorted({1, 2, 8, world_size()})
    steps = {unit: (asked + unit, 2 * asked) for unit in units if not asked % unit and unit < asked}
    return {**steps, asked: (2 * asked, 4 * asked)}
