"""Allocations, frees and work of a training step, at one batch size and at every other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from ..allocator.caching import ALLOCATE, DEFAULT_OPTIONS, FREE, ReplayResult, replay
from ..allocator.options import AllocatorOptions
from ..core.errors import InvalidInput
from .column_sums import ColumnSum, with_scratch

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
        waits: Whether the host waits first until the GPU has done all that was launched before: to
            read a value, to learn how many elements a mask selects, or for a copy from the GPU or
            to it.
    """

    name: str
    dtype: str
    flops: int
    bytes_moved: int
    phase: str
    shape: tuple[int, ...] = ()
    channels_last: bool = False
    unrolled: bool = field(default=False, compare=False)  # a batch of one needs no broadcasting
    waits: bool = field(default=False, compare=False)  # values may be read at some batch sizes only

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
            self.waits,
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
        own_batches: Whether the script chooses how many samples each of its batches has, so that
            its batch sizes do not lie on a line.
        move_lines: The lines of code that make the moves in a script with which it was traced.
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
    own_batches: bool = field(default=False, compare=False)
    move_lines: list[str] = field(default_factory=list, compare=False)
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


def on_threads(trace: Trace, resident_threads: int) -> Trace:
    """The same trace on a GPU that runs ``resident_threads`` threads at once."""
    sums = {
        tensor: replace(each, resident_threads=resident_threads)
        for tensor, each in trace.column_sums.items()
    }
    return replace(trace, sizes=with_scratch(trace.sizes, sums), column_sums=sums)
