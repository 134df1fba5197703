"""Allocations, frees and work of a training step, at one batch size and at every other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import islice
from typing import ClassVar

from ..allocator.caching import ALLOCATE, DEFAULT_OPTIONS, FREE, ReplayResult, replay
from ..allocator.options import AllocatorOptions
from ..core.errors import EngineError, InvalidInput
from .column_sums import ColumnSum, at_numbers, numbers_of, with_scratch

MAX_STEPS = 16
"""Repeats of a step under a limit; of all that were tried, none failed later than the eleventh
time."""


class Category(StrEnum):
    """Use of a tensor.

    Temporaries are made and freed within one phase of the step; what one phase leaves to the next
    counts as activations. Casts are copies of parameters in another number format, as autocast
    makes them. Outputs are what an evaluation keeps of its batches for metrics; the
    cache has keys and values of texts being generated.
    """

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer_state"
    CASTS = "casts"
    ACTIVATIONS = "activations"
    TEMPORARIES = "temporaries"
    INPUTS = "inputs"
    WORKSPACES = "workspaces"
    OUTPUTS = "outputs"
    CACHE = "cache"


ENCODING, PROMPT, TOKEN, GROWTH = "encoding", "prompt", "token", "cache"
"""The phases of generating text: an encoder reads, or images are; the prompts are read; a token is
read, with the length of the cache behind a space; the cache is made longer."""
PACKING = "packing"
"""The phase of reading a token after which a quantized cache is packed anew; as with others, its
length stands behind a space."""


def is_generating(phase: str) -> bool:
    """Whether a phase of a trace is one of generating text."""
    reads_token = phase.startswith((f"{TOKEN} ", f"{PACKING} "))
    return reads_token or phase in (ENCODING, PROMPT, GROWTH)


ON_HOST = "host."
"""Begins the name of an operation that runs on the host, where something is offloaded."""
COPY = "link.copy"
"""The name of a copy between the GPU and the host, beside its kernels."""
WAITING_COPY = "link.waiting_copy"
"""The name of one that the kernels wait for."""
TRANSPOSE = "memorymark.transpose"
"""The name of a copy that a layer norm makes of rows that are not contiguous."""
RECOMPUTATION = "recomputation"
"""The phase of what a backward pass runs of the forward pass once more, for checkpointing."""


@dataclass(frozen=True)
class Operation:
    """One kernel's worth of work.

    Attributes:
        name: The operator's name, such as ``aten.addmm``.
        dtype: Number format of its first tensor (``float32``, ``bfloat16``, …).
        flops: Floating-point operations of matrix products and convolutions; zero for others.
        bytes_moved: Bytes of the tensors read and written, each once.
        phase: Phase of the step: ``inputs``, ``forward``, ``backward``, ``recomputation`` in
            between, ``optimizer`` or ``idle``.
        shape: Sizes that decide the efficiency of its kernel. For a matrix product: number of
            products, rows, columns, the length of the sums, and 1 if both matrices lie across
            the sums in memory, where that was seen. For a convolution, forward or
            backward: positions that the kernel visits in all images, the weight's first two
            dimensions, its taps, the groups, and the positions in one image if each depends on the
            one at its place alone, else 0. For an attention kernel: batch times heads, queries,
            keys, width of a head, and 1 if it is causal. For a batch norm: its channels. For a
            layer norm: the length of its rows. Empty for others.
        channels_last: Whether a convolution or a norm works on images in that layout.
        unrolled: Whether its tensors lie in memory unlike one another, or differ in format: a
            kernel of elements then loads them one by one, several at once otherwise.
    """

    name: str
    dtype: str
    flops: int
    bytes_moved: int
    phase: str
    shape: tuple[int, ...] = ()
    channels_last: bool = False
    unrolled: bool = field(default=False, compare=False)  # a batch of one needs no broadcasting

    @property
    def numbers(self) -> tuple[int, ...]:
        """All that may differ between batch sizes."""
        return (self.flops, self.bytes_moved, *self.shape)

    def with_numbers(self, numbers: tuple[int, ...]) -> Operation:
        """The same operation at another batch size, by its :attr:`numbers` there."""
        if numbers == self.numbers:
            return self
        flops, bytes_moved, *shape = numbers
        return Operation(
            self.name,
            self.dtype,
            flops,
            bytes_moved,
            self.phase,
            tuple(shape),
            self.channels_last,
            self.unrolled,
        )


@dataclass
class Trace:
    """Two training steps at one batch size, as they happened.

    Attributes:
        batch_size: Samples per step.
        events: Pairs of ``ALLOCATE`` or ``FREE`` and a tensor id, in order. Parameters and buffers
            come first.
        sizes: Bytes of each tensor, by id.
        categories: Category of each tensor, by id.
        modules: The module that made each tensor, as ``model.named_modules()`` names it, by id; of
            a gradient or an optimizer's state the parameter's; empty for none.
        makers: The operator that made each tensor, by id; empty for parameters.
        phases: Phases of the step: the index of the event that begins each, and its name.
        streams: The CUDA stream each tensor was made in, by id, the default one being 0; empty
            where all were made in that one.
        last_step: Index of the event that begins the last step.
        operations: The work of the last step.
        column_sums: The sums whose scratch some tensors are, by id.
        slopes: Bytes that each tensor takes more with one sample more, by id; empty where that is
            not known, such as of a batch size traced by itself.
        alone: Whether it says nothing of other batch sizes, each of which takes as long to trace.
        stands_in: Whether it is that of batch 2, in the place of a batch 1 that PyTorch refuses: a
            search may pass through it, but no answer may be about it.
        tf32: Whether fp32 matrix products may use TF32.
        host_bytes: The most that tensors took at once that were not on the device.
        micro_batches: Number of batches of that size that the last step accumulates, as far as it
            can be seen.
        optimizers: Classes of the optimizers that stepped in a script, such as ``AdamW``.
        world_size: GPUs that share the step, this being the first of them.
        divided_by: GPUs that the script divides its batch among; 1 if each has the whole.
        computed: Whether a part of it follows what a program's source says, which did not run.
        batch_multiple: Only multiples of this are batch sizes that the step takes.
        caveats: Limits of the trace, in sentences.
    """

    batch_size: int
    events: list[tuple[int, int]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    categories: list[Category] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    makers: list[str] = field(default_factory=list)
    phases: list[tuple[int, str]] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)
    last_step: int = 0
    operations: list[Operation] = field(default_factory=list, compare=False)
    column_sums: dict[int, ColumnSum] = field(default_factory=dict)
    slopes: list[int] = field(default_factory=list, compare=False)
    alone: bool = field(default=False, compare=False)
    stands_in: bool = False
    tf32: bool = False
    host_bytes: int = field(default=0, compare=False)
    micro_batches: int = field(default=1, compare=False)
    optimizers: tuple[str, ...] = field(default=(), compare=False)
    world_size: int = 1
    divided_by: int = field(default=1, compare=False)
    computed: bool = field(default=False, compare=False)
    batch_multiple: int = field(default=1, compare=False)
    caveats: list[str] = field(default_factory=list)

    @property
    def repeatable(self) -> bool:
        """Whether the last step frees all that it makes, and nothing that was made before it.

        Not so where gradients are dropped only when the next step begins, or an optimizer replaces
        a tensor of its state.
        """
        step = self.events[self.last_step :]
        made = {tensor for kind, tensor in step if kind == ALLOCATE}
        return made == {tensor for kind, tensor in step if kind == FREE}

    def replay(
        self, capacity_bytes: int | None = None, options: AllocatorOptions = DEFAULT_OPTIONS
    ) -> ReplayResult:
        """Run the steps through a model of the CUDA caching allocator.

        The last step runs once more if it can: by then the allocator's cache has settled. Under a
        limit it may not have, since what is given back leaves other blocks in other places: there
        a step that fits can be followed by one that does not. So it runs on until nothing changes
        any more, or :data:`MAX_STEPS` times where something always does.

        Args:
            capacity_bytes: The most the allocator may reserve; ``None`` for no limit.
            options: The options of the allocator.
        """
        again = self.events[self.last_step :] if self.repeatable else []
        times = 1 if capacity_bytes is None else MAX_STEPS
        return replay(self.events, self.sizes, capacity_bytes, options, self.streams, again, times)

    def nearby(self, more: int) -> Trace | None:
        """The allocations of a batch with ``more`` samples more, or fewer below 0.

        Returns:
            ``None`` where they are not known, as for no more than one sample.
        """
        if not self.slopes or self.batch_size + more < 2:
            return None
        sizes = [size + more * slope for size, slope in zip(self.sizes, self.slopes, strict=True)]
        return replace(self, batch_size=self.batch_size + more, sizes=sizes)

    def check_runnable(self) -> None:
        """Refuse an answer about a batch size that no step runs at.

        Raises:
            NeedsTwoSamples: If this trace only stands in for another.
        """
        if self.stands_in:
            raise NeedsTwoSamples

    def peak_of_last_step(self) -> int:
        """Most bytes alive at once in the last step."""
        live = peak = 0
        for index, (kind, tensor) in enumerate(self.events):
            live += -self.sizes[tensor] if kind == FREE else self.sizes[tensor]
            peak = max(peak, live) if index >= self.last_step else live
        return peak

    def held_between_steps(self) -> dict[Category, int]:
        """Bytes of what is alive when the last step begins, by what it is for."""
        held = dict.fromkeys(Category, 0)
        for kind, tensor in self.events[: self.last_step]:
            size = self.sizes[tensor]
            held[self.categories[tensor]] += -size if kind == FREE else size
        return held

    def peak_by_phase(self) -> dict[str, int]:
        """Most bytes alive at once in each phase, by its name."""
        peaks: dict[str, int] = {}
        live, names = 0, dict(self.phases)
        phase = ""
        for index, (kind, tensor) in enumerate(self.events):
            phase = names.get(index, phase)
            live += -self.sizes[tensor] if kind == FREE else self.sizes[tensor]
            peaks[phase] = max(peaks.get(phase, 0), live)
        return peaks

    def peak_by_category(self) -> tuple[int, dict[str, int]]:
        """Most bytes alive at once, and which category held how much of them."""
        live = peak = 0
        peak_index = -1
        for index, (kind, tensor) in enumerate(self.events):
            live += -self.sizes[tensor] if kind == FREE else self.sizes[tensor]
            if live > peak:
                peak, peak_index = live, index
        at_peak = dict.fromkeys((category.value for category in Category), 0)
        for kind, tensor in self.events[: peak_index + 1]:
            size = self.sizes[tensor]
            at_peak[self.categories[tensor].value] += -size if kind == FREE else size
        return peak, at_peak


class NeedsTwoSamples(InvalidInput):
    """Batch norm learns nothing from a single value, so PyTorch refuses a step that has no more."""

    def __init__(self) -> None:
        super().__init__(
            {
                "current_batch_size": "batch norm needs more than one value of each channel, and "
                "one sample has no more of this size; give 2 or more"
            }
        )


def batch_norm_refuses(error: BaseException) -> bool:
    """Whether an error is the one of batch norm over a single value."""
    return isinstance(error, ValueError) and "more than 1 value per channel" in str(error)


def one_sample(trace: Callable[[int], Trace], two: Trace) -> Trace:
    """The trace of batch 1; where PyTorch refuses that, the one of batch 2 in its place.

    It takes no less memory and no less time, so that no search ends at batch 1.
    """
    try:
        return trace(1)
    except NeedsTwoSamples:
        return replace(two, batch_size=1, stands_in=True)


class NotAffine(EngineError):
    """The step does other things at other batch sizes, so two traces do not give them all."""


@dataclass(frozen=True)
class AffineTrace:
    """The trace at every batch size: each tensor takes ``base + slope · batch`` bytes.

    Attributes:
        low, high: The two traces it comes from, of unequal batch sizes and alike otherwise.
    """

    rule: ClassVar[str] = "each linear in the batch size"

    low: Trace
    high: Trace

    def __post_init__(self) -> None:
        alike = (
            self.low.events == self.high.events
            and self.low.categories == self.high.categories
            and self.low.column_sums.keys() == self.high.column_sums.keys()
            and _kinds(self.low.operations) == _kinds(self.high.operations)
        )
        if not alike:
            raise NotAffine(
                f"the step is not alike at batch {self.low.batch_size} and {self.high.batch_size}"
            )

    def at(self, batch_size: int) -> Trace:
        """The trace at a batch size; it shares everything but the sizes and the work."""
        low, high = self.low.operations, self.high.operations
        numbers = self._at(batch_size, _numbers(low), _numbers(high))
        sums = at_numbers(
            self.low.column_sums,
            self._at(batch_size, *map(numbers_of, (self.low.column_sums, self.high.column_sums))),
        )
        return replace(
            self.low,
            batch_size=batch_size,
            sizes=with_scratch(self._at(batch_size, self.low.sizes, self.high.sizes), sums),
            column_sums=sums,
            operations=_with_numbers(low, numbers),
            slopes=self._slopes,
            host_bytes=self._at(batch_size, [self.low.host_bytes], [self.high.host_bytes])[0],
        )

    @cached_property
    def _slopes(self) -> list[int]:
        apart = self.high.batch_size - self.low.batch_size
        slopes = [
            (high - low) // apart for low, high in zip(self.low.sizes, self.high.sizes, strict=True)
        ]
        for scratch in self.low.column_sums:  # grows in steps, and may be larger at fewer samples
            slopes[scratch] = 0
        return slopes

    def _at(self, batch_size: int, low: Sequence[int], high: Sequence[int]) -> list[int]:
        apart = self.high.batch_size - self.low.batch_size
        steps = batch_size - self.low.batch_size
        return [a + (b - a) * steps // apart for a, b in zip(low, high, strict=True)]


def _numbers(operations: Iterable[Operation]) -> list[int]:
    return [number for operation in operations for number in operation.numbers]


def _with_numbers(operations: Iterable[Operation], numbers: Iterable[int]) -> list[Operation]:
    """The same operations with other numbers, in one row for all of them."""
    rest = iter(numbers)
    return [
        operation.with_numbers(tuple(islice(rest, 2 + len(operation.shape))))
        for operation in operations
    ]


def _kinds(operations: Iterable[Operation]) -> list[tuple[str, str, int]]:
    """Traits that have to be alike, without the lengths that phases of generating text have."""
    return [(one.name, one.phase.partition(" ")[0], len(one.shape)) for one in operations]


@dataclass(frozen=True)
class QuadraticTrace:
    """The trace at every batch size: each tensor takes ``a + b · batch + c · batch²`` bytes.

    Attributes:
        first, second, third: Traces at three successive batch sizes, alike otherwise.
    """

    rule: ClassVar[str] = "each quadratic in the batch size"

    first: Trace
    second: Trace
    third: Trace

    def __post_init__(self) -> None:
        # Refuses traces of unlike steps.
        AffineTrace(self.first, self.second)
        AffineTrace(self.second, self.third)

    def at(self, batch_size: int) -> Trace:
        """The trace at a batch size; it shares everything but the sizes and the work."""
        traces = (self.first, self.second, self.third)
        numbers = self._at(batch_size, *(_numbers(traced.operations) for traced in traces))
        sums = at_numbers(
            self.first.column_sums,
            self._at(batch_size, *(numbers_of(traced.column_sums) for traced in traces)),
        )
        return replace(
            self.first,
            batch_size=batch_size,
            sizes=with_scratch(self._at(batch_size, *(traced.sizes for traced in traces)), sums),
            column_sums=sums,
            operations=_with_numbers(self.first.operations, numbers),
            host_bytes=self._at(batch_size, *([traced.host_bytes] for traced in traces))[0],
        )

    def _at(
        self, batch_size: int, first: Sequence[int], second: Sequence[int], third: Sequence[int]
    ) -> list[int]:
        """Newton's interpolation through three points, exact in whole numbers."""
        steps = batch_size - self.first.batch_size
        pairs = steps * (steps - 1) // 2
        return [
            a + (b - a) * steps + (c - 2 * b + a) * pairs
            for a, b, c in zip(first, second, third, strict=True)
        ]


def on_threads(trace: Trace, resident_threads: int) -> Trace:
    """The same trace on a GPU that runs ``resident_threads`` threads at once."""
    sums = {
        tensor: replace(each, resident_threads=resident_threads)
        for tensor, each in trace.column_sums.items()
    }
    return replace(trace, sizes=with_scratch(trace.sizes, sums), column_sums=sums)
