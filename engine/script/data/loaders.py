"""The ``DataLoader`` that feeds a program's steps, and data of which there is always enough."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain, count, islice
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data import BatchSampler, DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ...core.errors import InvalidInput
from ...tracing.apart import runs_apart
from ...tracing.beside import runs_beside
from ...versions.patches import patched
from ..devices.cuda_device import CUDA, on_gpu
from ..values.values import loading
from .evaluated import EvaluatedData, batches_of
from .feeding import BatchesRead
from .largest_samples import LargestSamples, own_draws, samples_alike
from .own_batches import USUAL_SIZE, OwnBatches, chooses_itself, size_name

ENOUGH_BATCHES = 64
"""Minimum number of batches in an epoch while a script is traced; it needs a few."""

_AT_HOME = {
    "num_workers": 0,
    "prefetch_factor": None,
    "persistent_workers": False,
    "pin_memory": False,
    "timeout": 0,
    "multiprocessing_context": None,
}
"""Options that a ``DataLoader`` gets instead of processes and threads of its own: a batch is made
when it is needed, by the process that needs it."""

_NAMED = tuple(inspect.signature(DataLoader.__init__).parameters)[1:]


@dataclass(frozen=True)
class Feeding:
    """The loaders that feed the steps of a program.

    Attributes:
        positions: Position of each, among all loaders that the script makes.
        batch_size: Their batch size.
    """

    positions: tuple[int, ...]
    batch_size: int


class Loaders:
    """The loaders of a script, while :meth:`followed`.

    Args:
        positions: Positions of those that get another batch size, among all that the script makes.
        batch_size: The other batch size; ``None`` leaves them as they are.

    Attributes:
        evaluated: The data that are evaluated.
        largest: The samples that decide how large batches are.
        own: Batches that samplers of the script's own choose.
        before_read: Called with an iterator before each batch that is read; it may end it.
        most_batches: Number of batches that all data say to have at most, once they end early:
            code that counts on more reads them anew for what is missing. ``None`` for all.
    """

    def __init__(self, positions: Sequence[int] = (), batch_size: int | None = None) -> None:
        self._positions = positions
        self._batch_size = batch_size
        self._made: list[DataLoader[Any]] = []
        self._data: dict[int, object] = {}  # by id, of all that was ever read
        self._read = BatchesRead()
        self.evaluated = EvaluatedData()
        self.largest = LargestSamples()
        self.own = OwnBatches()
        self.before_read: Callable[[Any], object] = _goes_on
        self.most_batches: int | None = None

    @contextmanager
    def followed(self, *, at_home: bool) -> Iterator[None]:
        """See every loader that is made and every batch that is read.

        None that feeds steps runs out of full batches before there were enough, however little data
        there is. What is evaluated ends with its data.

        Args:
            at_home: Whether they load in this process, unseen by a recorder until a batch arrives,
                and put the largest samples into each batch.
        """
        init, read = DataLoader.__init__, _BaseDataLoaderIter.__next__
        index: Any = _BaseDataLoaderIter._next_index

        def made(loader: DataLoader[Any], *args: Any, **kwargs: Any) -> None:
            named = dict(zip(_NAMED, args, strict=False)) | kwargs
            if len(self._made) in self._positions and self._batch_size is not None:
                _resize(named, self._batch_size)
            if at_home:
                named |= _AT_HOME
            self._made.append(loader)
            init(loader, **named)

        def next_batch(iterator: Any) -> Any:
            self.evaluated.before_read(iterator)
            self.before_read(iterator)
            if at_home:
                with loading(), own_draws():
                    batch = read(iterator)
                batch = arrived(batch)
            else:
                batch = read(iterator)
            data = iterator._dataset
            self._data[id(data)] = data
            self._read.read(id(data))
            return batch

        def next_index(iterator: Any) -> Any:
            chosen = self._chosen_by_script(iterator) if at_home else None
            return index(iterator) if chosen is None else chosen

        def forward(*_: object) -> None:
            if torch._C._current_graph_task_id() != -1 or runs_apart():
                return  # not what backward recomputes
            self._read.forward(learns=torch.is_grad_enabled())
            if not runs_beside():
                self.evaluated.forward(learns=torch.is_grad_enabled())

        with (
            register_module_forward_pre_hook(forward),
            patched(
                DataLoader,
                "__init__",
                made,
                why="the batch size and the samples are those of the question",
            ),
            patched(
                _BaseDataLoaderIter,
                "__next__",
                next_batch,
                why="data are read outside of the traced step",
            ),
            patched(
                _BaseDataLoaderIter,
                "_next_index",
                next_index,
                why="of batches that the script chooses itself, the largest counts",
            ),
            _endless_batches(self._how_many, self.largest if at_home else None),
            samples_alike(self.largest) if at_home else nullcontext(),
        ):
            yield

    def _chosen_by_script(self, iterator: Any) -> list[Any] | None:
        """The next batch where a sampler of the script's own chooses it."""
        sampler = iterator._index_sampler
        epoch = self.own.chosen_by(sampler, iterator._dataset)
        if epoch is None:
            return None
        ends = self.evaluated.ends_with_its_data(sampler)
        enough = epoch.count if ends else max(ENOUGH_BATCHES, epoch.count)
        return self.own.next_of(epoch, iterator, enough)

    def _how_many(self, sampler: BatchSampler) -> int:
        """Number of batches that a sampler of PyTorch's says to have."""
        batches = batches_of(sampler)
        if batches is None or not self.evaluated.ends_with_its_data(sampler):
            batches = max(ENOUGH_BATCHES, batches or 0)
        return batches if self.most_batches is None else min(batches, self.most_batches)

    def passed(self) -> None:
        """A pass with gradients is taken to have begun."""
        self._read.forward(learns=True)
        self.evaluated.forward(learns=True)

    def step_ended(self) -> None:
        """End the step: what was read until now fed it."""
        self._read.step_ended()

    @property
    def fed(self) -> set[int]:
        """The ids of the sets of data that fed the step."""
        return set(self._read.fed)

    @property
    def read_one_set(self) -> bool:
        """Whether one set of data was read until now, and fed the step."""
        return len(self._data) == 1 and self._data.keys() == self.fed

    @property
    def batches(self) -> int:
        """Number of batches that fed the step: its micro-batches; at least one.

        Of several sets of data, such as images of two kinds, each gives a part of a batch.
        """
        return max(self._read.fed.values(), default=1)

    def feeding(self) -> Feeding:
        """The loaders that fed the step.

        A library may make a loader of its own from the script's, with the same data: the first one
        with that data is the script's.

        Raises:
            InvalidInput: For ``batch_flag``, if there are none, or of several batch sizes.
        """
        firsts = self._firsts()
        sizes = {batch_size_of(self._made[position]) for position in firsts}
        size = sizes.pop() if len(sizes) == 1 else None
        if size is None:
            raise InvalidInput(
                {
                    "batch_flag": f"{self._why_no_size(firsts)}, so its batch size cannot be "
                    "found; pass the flag that sets it (--batch-flag), or an environment variable "
                    "that the script reads (--batch-env)"
                }
            )
        return Feeding(tuple(sorted(firsts)), size)

    def _why_no_size(self, firsts: set[int]) -> str:
        """Why the loaders that fed the step do not tell its batch size."""
        own = [
            type(sampler).__name__
            for sampler in (self._made[position].batch_sampler for position in firsts)
            if sampler is not None and chooses_itself(sampler)
        ]
        if own:
            return f"{own[0]} chooses the batches of this script, as by a budget of tokens"
        why = "several DataLoaders feed" if firsts else "no DataLoader feeds"
        return f"{why} the steps of this script"

    def divided_by(self, batch_size: int, processes: int) -> int:
        """Number of processes that the script divides a batch among, as its loaders show.

        Args:
            batch_size: What the script was given.
            processes: Number of processes that share the training run.
        """
        sizes = {batch_size_of(self._made[position]) for position in self._firsts()}
        part, rest = divmod(batch_size, processes)
        return processes if sizes == {part} and not rest else 1

    def _firsts(self) -> set[int]:
        """Positions of the loaders that fed the step: of several of the same data the first."""
        return {
            next(n for n, made in enumerate(self._made) if made.dataset is self._data[data])
            for data in self._read.fed
        }

    @property
    def unread(self) -> int:
        """Number of data sets whose loaders were never read: for evaluation, most likely."""
        return len({id(loader.dataset) for loader in self._made} - self._data.keys())

    @property
    def evaluates(self) -> bool:
        """Whether data were read between two steps that no pass with gradients has seen."""
        return self._read.evaluates

    @property
    def evaluates_first(self) -> bool:
        """The same, before the first step."""
        return self._read.evaluates_first


def _goes_on(iterator: Any) -> None:
    """Let a loader go on."""


def arrived(batch: Any) -> Any:
    """A batch as it comes to a script: every tensor in it is new, made where a recorder sees it.

    Fake tensors keep the values of token ids and masks, where their mode allows it.
    """
    if isinstance(batch, torch.Tensor):
        return _arrived(batch)
    if isinstance(batch, Mapping):
        return _filled(batch, {key: arrived(value) for key, value in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(arrived, batch))
    if isinstance(batch, list | tuple):
        return type(batch)(map(arrived, batch))
    fields = getattr(batch, "__dict__", None)
    if fields and any(isinstance(value, torch.Tensor) for value in fields.values()):
        copied = copy.copy(batch)
        vars(copied).update({name: arrived(value) for name, value in fields.items()})
        return copied
    return batch


def _filled(batch: Mapping[Any, Any], content: dict[Any, Any]) -> Any:
    """A mapping of the same kind with other content; ``BatchEncoding``, for one."""
    if type(batch) is dict or not isinstance(batch, MutableMapping):
        return content
    copied = copy.copy(batch)
    copied.update(content)
    return copied


def _arrived(tensor: torch.Tensor) -> torch.Tensor:
    place, dtype = CUDA if on_gpu(tensor) else tensor.device, tensor.dtype
    new = torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device=place)
    if not isinstance(new, FakeTensor):
        return new.copy_(tensor)
    mode = new.fake_mode
    known = tensor.constant if isinstance(tensor, FakeTensor) else tensor
    if known is not None and place.type == "cpu" and mode.may_turn_const(known):
        with _disable_current_modes():
            new.constant = known.detach().clone()
        mode.fake_tensor_converter.add_constant_storage_mapping(new)
    return new


def give_batch_size(loader: DataLoader[Any], batch_size: int) -> None:
    """Let a loader that is made already load batches of another size."""
    if loader.batch_sampler is not None:
        vars(loader.batch_sampler)[size_name(loader.batch_sampler)] = batch_size
    vars(loader)[USUAL_SIZE] = batch_size


def _resize(named: dict[str, Any], batch_size: int) -> None:
    """Give a loader another batch size, before it is made."""
    sampler = named.get("batch_sampler")
    if sampler is not None:
        setattr(sampler, size_name(sampler), batch_size)
    else:
        named["batch_size"] = batch_size


def batch_size_of(loader: DataLoader[Any]) -> int | None:
    """The samples in a batch; ``None`` if the loader does not say."""
    sampler = loader.batch_sampler
    size = getattr(sampler, size_name(sampler), loader.batch_size)
    return size if isinstance(size, int) else None


def _batches(sampler: BatchSampler, largest: LargestSamples | None) -> Iterator[list[int]]:
    """Full batches, over the data again and again, each with the largest samples if known."""
    indices = chain.from_iterable(sampler.sampler for _ in count())
    if not any(True for _ in sampler.sampler):
        return  # no data, so nothing would ever come
    for _ in range(max(ENOUGH_BATCHES, batches_of(sampler) or 0)):
        batch = list(islice(indices, sampler.batch_size))
        yield largest.put_into(batch, sampler) if largest else batch


@contextmanager
def _endless_batches(
    how_many: Callable[[BatchSampler], int], largest: LargestSamples | None
) -> Iterator[None]:
    def batches(sampler: BatchSampler) -> Iterator[list[int]]:
        return _batches(sampler, largest)

    def said(sampler: BatchSampler) -> int:
        return how_many(sampler)

    with (
        patched(BatchSampler, "__iter__", batches, why="steps are traced beyond the data's end"),
        patched(BatchSampler, "__len__", said, why="as many batches as there are then"),
    ):
        yield
