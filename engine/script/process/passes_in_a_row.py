"""Passes without gradients that follow one another in like steps: few are run, and the largest.

A text that is generated takes a forward pass for each token, a diffusion model's sample one for
each step of noise, an evaluation one for each batch. Where three in a row of one module did the
same, with inputs of the same sizes or of sizes that change by the same amount each time, so does
the next one: it only makes its outputs. The last, longest one is run by itself before anything else
happens, and its memory is recorded where it would have been.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from ...tracing.apart import apart_from_hooks
from ...tracing.beside import runs_beside
from ...tracing.excerpts import Moment
from ...tracing.recorder import MemoryRecorder
from ...tracing.trace import Operation
from ...versions.patches import patched

RUN = 3
"""Passes of a row that are run: the last two tell how each differs from the one before."""

Numbers = tuple[int, ...]
Call = Callable[..., Any]


@dataclass(frozen=True)
class _Sizes:
    """Tensors and numbers that a module is given, or returns.

    Attributes:
        looks: All that stays the same in a row of passes.
        numbers: All that may grow: sizes, strides and whole numbers, in order.
    """

    tree: TreeSpec
    looks: tuple[Hashable, ...]
    numbers: Numbers

    @classmethod
    def of(cls, value: Any, *, strides: bool) -> _Sizes | None:
        """The sizes of a value; ``None`` if it has something else in it, or known values.

        Args:
            value: Arguments or results.
            strides: Whether these count, as of results, beside whether a tensor is contiguous.
        """
        leaves, tree = tree_flatten(value)
        looks: list[Hashable] = []
        numbers: list[int] = []
        for leaf in leaves:
            looks.append(cast(Hashable, type(leaf)))
            if isinstance(leaf, torch.Tensor):
                looks += [leaf.dtype, leaf.device, leaf.dim(), leaf.is_contiguous()]
                numbers += leaf.shape
                if strides:
                    numbers += [*leaf.stride(), int(leaf.storage_offset())]
                    numbers.append(int(leaf.untyped_storage().nbytes()))
            elif isinstance(leaf, int) and not isinstance(leaf, bool):
                numbers.append(leaf)
            elif leaf is None or isinstance(leaf, bool | str | torch.dtype | torch.device):
                looks.append(leaf)
            elif not isinstance(leaf, float):
                return None
            if getattr(leaf, "constant", None) is not None and strides:
                return None  # its values are known
        return cls(tree, tuple(looks), tuple(numbers))

    def like(self, numbers: Numbers, *, strides: bool) -> Any:
        """Values that look the same, with these numbers."""
        looks, left = iter(self.looks), iter(numbers)
        leaves = range(self.tree.num_leaves)
        return tree_unflatten([_made(looks, left, strides) for _ in leaves], self.tree)


def _made(looks: Iterator[Any], numbers: Iterator[int], strides: bool) -> Any:
    kind = next(looks)
    if issubclass(kind, torch.Tensor):
        dtype, device, dims, _ = (next(looks) for _ in range(4))
        shape = [next(numbers) for _ in range(dims)]
        if not strides:
            return torch.empty(shape, dtype=dtype, device=device)
        stride, offset = [next(numbers) for _ in range(dims)], next(numbers)
        whole = torch.empty(next(numbers) // dtype.itemsize, dtype=dtype, device=device)
        return whole.as_strided(shape, stride, offset)
    if issubclass(kind, int) and kind is not bool:
        return next(numbers)
    return 1.0 if kind is float else next(looks)


_DEVICES = ("cuda", "cpu")


@dataclass(frozen=True)
class _State:
    """The settings that decide, besides its inputs, how a pass of a module runs.

    Attributes:
        infers: Whether it runs in inference mode.
        casts: Formats that autocast casts to, by device.
    """

    infers: bool
    casts: tuple[tuple[str, torch.dtype], ...]

    @classmethod
    def now(cls) -> _State:
        return cls(
            torch.is_inference_mode_enabled(),
            tuple(
                (device, torch.get_autocast_dtype(device))
                for device in _DEVICES
                if torch.is_autocast_enabled(device)
            ),
        )

    @contextmanager
    def again(self) -> Iterator[None]:
        """The same state, in whatever state it is entered.

        Autocast keeps its casts until the outermost context ends, which may be the script's.
        """
        casts = dict(self.casts)
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode() if self.infers else torch.no_grad())
            for device in _DEVICES:
                dtype = casts.get(device)
                stack.enter_context(torch.autocast(device, dtype=dtype, enabled=dtype is not None))
            if casts:
                stack.callback(torch.clear_autocast_cache)
            yield


@contextmanager
def _modes(module: torch.nn.Module, training: list[bool]) -> Iterator[None]:
    """Let each part of a module train or not, for as long as the context lasts."""
    parts = list(module.modules())
    before = [part.training for part in parts]
    try:
        for part, trains in zip(parts, training, strict=True):
            part.training = trains
        yield
    finally:
        for part, trains in zip(parts, before, strict=True):
            part.training = trains


@dataclass
class _Skipped:
    """The last of the passes in a row that were not run.

    Attributes:
        at: Moment at which it would have begun.
        live: Bytes alive then.
        count: Number of passes that were not run, this one among them.
        first: Operations of the last pass that was run before them.
        inputs: Makes inputs like its own.
        run: Runs it on them.
    """

    at: Moment
    live: int
    count: int
    first: list[Operation]
    inputs: Callable[[], Any]
    run: Callable[[Any], object]


@dataclass
class _Row:
    """Passes of one module in a row.

    Attributes:
        module: The module, which lives as long as its row.
        given: Numbers of the inputs of the latest passes, run or not.
        returned: Numbers of the outputs of as many.
        outputs: The latest outputs.
        made: The operators that made the tensors of the latest pass that was run, and their sizes.
        operations: Its operations.
        skipped: The last pass that was not run.
    """

    module: torch.nn.Module
    given: list[Numbers] = field(default_factory=list)
    returned: list[Numbers] = field(default_factory=list)
    outputs: _Sizes | None = None
    made: tuple[list[str], list[int]] = field(default_factory=lambda: ([], []))
    operations: list[Operation] = field(default_factory=list)
    skipped: _Skipped | None = None

    def expects(self, given: Numbers) -> Numbers | None:
        """Numbers of the outputs of a pass with these inputs; ``None`` where it has to be run."""
        if len(self.given) < RUN:
            return None
        grows = _difference(self.given[-1], self.given[-2])
        one_way = min(grows, default=0) >= 0 or max(grows) <= 0
        regular = (
            one_way
            and _difference(self.given[-2], self.given[-3]) == grows
            and _difference(given, self.given[-1]) == grows
        )
        returns = _difference(self.returned[-1], self.returned[-2])
        if not regular or _difference(self.returned[-2], self.returned[-3]) != returns:
            return None
        return tuple(a + b for a, b in zip(self.returned[-1], returns, strict=True))

    def begin_anew(self) -> None:
        """Know nothing of passes before."""
        self.given, self.returned = [], []

    def ran(self, given: Numbers, outputs: _Sizes, made: tuple[list[str], list[int]]) -> None:
        """A pass was run."""
        alike = self.outputs is not None and self.outputs.looks == outputs.looks
        same_inputs = self.given[-1:] == [given]
        if not alike or made[0] != self.made[0] or (same_inputs and made[1] != self.made[1]):
            self.begin_anew()
        self.outputs, self.made = outputs, made
        self.given = [*self.given, given][-RUN:]
        self.returned = [*self.returned, outputs.numbers][-RUN:]


def _difference(one: Numbers, other: Numbers) -> Numbers:
    return tuple(a - b for a, b in zip(one, other, strict=True))


class PassesInARow:
    """Passes without gradients, in the process in which a script is traced.

    Args:
        recorder: Recorder of the trace.

    Attributes:
        skipped: Number of passes that were not run.
    """

    def __init__(self, recorder: MemoryRecorder) -> None:
        self.skipped = 0
        self._recorder = recorder
        self._rows: dict[Hashable, _Row] = {}
        self._inside = False
        self._stands_in = _Nothing()  # for hooks, which see that a pass begins

    @property
    def caveats(self) -> list[str]:
        """Caveat about passes that were not run."""
        if not self.skipped:
            return []
        return [
            f"{self.skipped:,} forward passes without gradients (generated text, samples or an "
            "evaluation) were not run: each came after others in a row that did the same, with "
            "inputs of the same sizes, or of sizes that change by the same amount. The longest of "
            "each row was run, and counts."
        ]

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Follow every call of a module."""
        call = torch.nn.Module.__call__

        def called(module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            aside = self._inside or runs_beside() or torch._C._current_graph_task_id() != -1
            if aside or module is self._stands_in:
                return call(module, *args, **kwargs)
            self._inside = True
            try:
                if torch.is_grad_enabled():
                    self.end()
                    return call(module, *args, **kwargs)
                return self._without_gradients(call, module, args, kwargs)
            finally:
                self._inside = False

        with patched(
            torch.nn.Module, "__call__", called, why="passes in a row that do the same are not run"
        ):
            try:
                yield
            finally:
                self.end()

    def end(self) -> None:
        """End all rows: what comes next is something else."""
        if torch._C._current_graph_task_id() != -1:
            return
        self._settle()
        self._rows = {}

    def _settle(self) -> None:
        """Run and record the last pass of each row that was not run, the latest first.

        What is recorded earlier would move the moments of those that come later.
        """
        left = [row.skipped for row in self._rows.values() if row.skipped is not None]
        for row in self._rows.values():
            row.skipped = None
        for skipped in sorted(left, key=lambda one: one.at.events, reverse=True):
            self._run_largest(skipped)

    def _without_gradients(
        self, call: Call, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        given = _Sizes.of((args, kwargs), strides=False)
        if given is None:
            return call(module, *args, **kwargs)
        state = _State.now()
        key = id(module), module.training, given.looks, str(given.tree), state
        row = self._rows.setdefault(key, _Row(module))
        returns = row.expects(given.numbers)
        if returns is None or row.outputs is None:
            return self._run(row, given.numbers, call, args, kwargs)
        call(self._stands_in)
        modes = [part.training for part in module.modules()]

        def run(inputs: Any) -> None:
            args, kwargs = inputs
            with apart_from_hooks(), state.again(), _modes(module, modes):
                call(module, *args, **kwargs)

        inputs = partial(given.like, given.numbers, strides=False)
        self._skip(row, given.numbers, returns, inputs, run)
        return row.outputs.like(returns, strides=True)

    def _run(
        self, row: _Row, given: Numbers, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a pass, and learn what one like it does."""
        if row.skipped is not None:
            self._settle()
            row.begin_anew()
        trace = self._recorder.trace
        begin = Moment.now(trace)
        output = call(row.module, *args, **kwargs)
        outputs = _Sizes.of(output, strides=True)
        tensors = [one for one in tree_flatten(output)[0] if isinstance(one, torch.Tensor)]
        if outputs is None or not self._recorder.left_only(tensors, begin):
            row.begin_anew()
        else:
            made = trace.makers[begin.tensors :], trace.sizes[begin.tensors :]
            row.ran(given, outputs, made)
            row.operations = trace.operations[begin.operations :]
        return output

    def _skip(
        self,
        row: _Row,
        given: Numbers,
        returns: Numbers,
        inputs: Callable[[], Any],
        run: Callable[[Any], object],
    ) -> None:
        self.skipped += 1
        live, before = self._recorder.live_bytes, row.skipped
        count = 1 + (before.count if before else 0)
        grows = given != row.given[-1]
        if before is not None and not grows and before.live >= live:
            before.count = count
        else:
            now = Moment.now(self._recorder.trace)
            row.skipped = _Skipped(now, live, count, row.operations, inputs, run)
        row.given = [*row.given, given][-RUN:]
        row.returned = [*row.returned, returns][-RUN:]

    def _run_largest(self, skipped: _Skipped) -> None:
        """Run a pass that was skipped, and record it where it would have been."""
        inside, self._inside = self._inside, True
        try:
            with self._recorder.apart() as apart:
                inputs = skipped.inputs()
                begin = Moment.now(apart)
                skipped.run(inputs)
        finally:
            self._inside = inside
        self._recorder.insert(apart, begin, skipped.at, skipped.live)
        rest = skipped.count // 2  # the others took as much on average as the first and the last
        operations = self._recorder.trace.operations
        operations += (
            apart.operations[begin.operations :] * (skipped.count - rest) + skipped.first * rest
        )


class _Nothing(torch.nn.Module):
    def forward(self) -> None:
        pass
