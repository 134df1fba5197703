"""The blocks that a model repeats: where they stand, and the same model with fewer of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

MIN_REPEATS = 6
"""Repeats that make a shorter model worth tracing."""

_MAX_PERIOD = 8
"""Blocks after which a model may repeat, such as five with a sliding window and one without."""

_COUNT = "num_hidden_layers"
"""Present in every config of transformers, under this name or another."""

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Run:
    """Blocks in a row that repeat.

    Attributes:
        name: The list that holds them, as ``model.named_modules()`` names it.
        length: Number of blocks in the list, with those that do not repeat.
        start: Index of the first that does.
        period: Number of blocks after which they repeat.
        repeats: Number of repeats.
        counted: The settings of blocks that go up by one from block to block, such as its own
            number, by their path in it.
    """

    name: str
    length: int
    start: int
    period: int
    repeats: int
    counted: tuple[str, ...] = ()

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self.period * self.repeats

    def shallowest(self, margin: int) -> int:
        """Number of repeats in the shallowest model.

        Args:
            margin: Number of repeats on either side of the gap. The first and the last may differ
                from others.
        """
        return 2 * margin

    def gap(self, margin: int) -> int:
        """The number of the block before which the shallowest model lacks others."""
        return self.start + self.period * margin

    def kept(self, items: Sequence[_Item], margin: int, repeats: int) -> list[_Item]:
        """The items left of a list with one item for each block.

        Args:
            items: The list.
            margin: As in :meth:`shallowest`; repeats more than that stand in the gap.
            repeats: Number of repeats left.
        """
        gap = self.gap(margin) + self.period * (repeats - self.shallowest(margin))
        return [*items[:gap], *items[gap + self.period * (self.repeats - repeats) :]]


def runs_of(model: nn.Module) -> list[Run]:
    """The runs of a model that are worth shortening, at most one in each list."""
    runs: list[Run] = []
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{run.name}.") for run in runs)
        if isinstance(module, nn.ModuleList | nn.Sequential) and len(module) >= MIN_REPEATS:
            run = None if inside else _run(model, name, list(module.children()))
            if run is not None:
                runs.append(run)
    return runs


def _run(model: nn.Module, name: str, blocks: Sequence[nn.Module]) -> Run | None:
    """The run of a list that saves the most blocks."""
    facts = [dict(_facts(block)) for block in blocks]
    names = dict.fromkeys(name for each in facts for name in each)
    counted = tuple(one for one in names if _counts([each.get(one) for each in facts]))
    said = _listed_in_configs(model, len(blocks))
    for listed in _lists_of_numbers(model, name, len(blocks)):
        said[listed.name] = [number in listed.numbers for number in range(len(blocks))]
    for configured, values in said.items():
        for each, value in zip(facts, values, strict=True):
            each[f"config.{configured}"] = value
    told = [{**each, **dict.fromkeys(each.keys() & {*counted})} for each in facts]
    best: Run | None = None
    for period in range(1, min(_MAX_PERIOD, len(blocks) // MIN_REPEATS) + 1):
        for start, end in _repeated(told, period):
            run = Run(name, len(blocks), start, period, (end - start) // period, counted)
            if run.repeats >= MIN_REPEATS and (best is None or _saved(run) > _saved(best)):
                best = run
    return best


def _saved(run: Run) -> int:
    return run.period * (run.repeats - run.shallowest(1))


def _repeated(blocks: Sequence[object], period: int) -> Iterator[tuple[int, int]]:
    """The stretches in which each block is like that a period before."""
    start = 0
    for index in range(period, len(blocks) + 1):
        if index == len(blocks) or blocks[index] != blocks[index - period]:
            yield start, index
            start = index - period + 1


def _facts(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Each module of a block, its tensors, and its settings."""
    for path, part in module.named_modules():
        yield path, type(part)
        held: tuple[dict[str, torch.Tensor | None], ...] = (part._parameters, part._buffers)
        for tensors in held:
            for name, tensor in tensors.items():
                if tensor is not None:
                    yield f"{path}.{name}", (tensor.shape, tensor.dtype, tensor.requires_grad)
        for name, value in vars(part).items():
            if isinstance(value, float):  # such as a rate of dropping, which differs by depth
                yield f"{path}.{name}", value == 0
            elif value is None or isinstance(value, bool | int | str):
                yield f"{path}.{name}", value


def _counts(values: Sequence[Any]) -> bool:
    """Whether these go up by one from block to block, in those blocks that have such a setting."""
    given = [(number, value) for number, value in enumerate(values) if value is not None]
    if not all(isinstance(value, int) and not isinstance(value, bool) for _, value in given):
        return False
    return len(given) > 1 and len({value - number for number, value in given}) == 1


def _listed_in_configs(model: nn.Module, length: int) -> dict[str, list[Any]]:
    """Settings of configs that list a value for each of ``length`` blocks."""
    return {
        name: value
        for config in _configs(model)
        for name, value in vars(config).items()
        if isinstance(value, list) and len(value) == length
    }


class _NumberList(NamedTuple):
    """A list of blocks by their numbers, such as of those that attend to the whole image.

    Attributes:
        holder: A module around the blocks, or its config.
        name: Name of the attribute.
        numbers: Its value.
    """

    holder: Any
    name: str
    numbers: list[int]


def _lists_of_numbers(model: nn.Module, blocks: str, length: int) -> Iterator[_NumberList]:
    """Lists of block numbers in modules around a list of blocks, and in their configs."""
    for holder in _around(model, blocks):
        for name, value in vars(holder).items():
            if _names_blocks(value, length):
                yield _NumberList(holder, name, value)


def _names_blocks(value: Any, length: int) -> bool:
    """Whether these are numbers of blocks; one more than the last names what that gives."""
    if not isinstance(value, list) or not value or not all(type(one) is int for one in value):
        return False
    return len({*value}) == len(value) and min(value) >= 0 and max(value) <= length


def _around(model: nn.Module, name: str) -> Iterator[Any]:
    """The modules around a list, from the innermost to the first with a config, and that."""
    while name:
        name = name.rpartition(".")[0]
        module = model.get_submodule(name)
        yield module
        config = vars(module).get("config")
        if hasattr(config, "__dict__"):
            yield config
            return


def _configs(model: nn.Module) -> list[Any]:
    configs = [vars(module).get("config") for module in model.modules()]
    return list({id(one): one for one in configs if hasattr(one, "__dict__")}.values())


def with_fewer(
    model: nn.Module, runs: Sequence[Run], margin: int, repeats: Sequence[int]
) -> nn.Module:
    """A copy of a model whose runs have fewer repeats; the model itself stays as it is.

    Args:
        model: The model, on the meta device.
        runs: Its runs.
        margin: As in :meth:`Run.shallowest`.
        repeats: Number of repeats of each run in the copy.
    """
    wanted = list(zip(runs, repeats, strict=True))
    lists = [model.get_submodule(run.name) for run in runs]
    whole = [held._modules for held in lists]
    try:
        for held, (run, count) in zip(lists, wanted, strict=True):
            left = run.kept(list(held._modules.values()), margin, count)
            held._modules = {str(number): block for number, block in enumerate(left)}
        copied = copy.deepcopy(model)
    finally:
        for held, blocks in zip(lists, whole, strict=True):
            held._modules = blocks
    for run, count in wanted:
        before = run.kept(range(run.length), margin, count)
        _number_anew(copied.get_submodule(run.name), before, run.counted)
        _list_anew(copied, run, before)
    for config in _configs(copied):
        for run, count in wanted:
            for name, value in vars(config).items():
                if isinstance(value, list) and len(value) == run.length:
                    setattr(config, name, run.kept(value, margin, count))
    for run in runs:
        _count_anew(copied, run)
    return copied


def _count_anew(model: nn.Module, run: Run) -> None:
    """Give the config around a run its number of blocks, from the last of which some count."""
    for holder in _around(model, run.name):
        if getattr(holder, _COUNT, None) == run.length:
            setattr(holder, _COUNT, len([*model.get_submodule(run.name).children()]))


def _list_anew(model: nn.Module, run: Run, before: Sequence[int]) -> None:
    """Name blocks by their numbers without the gap, where they are named by these."""
    now = {was: number for number, was in enumerate([*before, run.length])}
    for holder, name, numbers in list(_lists_of_numbers(model, run.name, run.length)):
        setattr(holder, name, [now[number] for number in numbers if number in now])


def _number_anew(blocks: nn.Module, before: Sequence[int], counted: Sequence[str]) -> None:
    """Number blocks without the gap: what is kept for each block, such as a cache, has none."""
    for number, (was, block) in enumerate(zip(before, blocks.children(), strict=True)):
        parts = dict(block.named_modules())
        for name in counted:
            path, _, setting = name.rpartition(".")
            if hasattr(part := parts.get(path), setting):
                setattr(part, setting, getattr(part, setting) - was + number)
