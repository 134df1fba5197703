"""YAML of bounded size, as plain values.

Before PyYAML's safe loader makes values, its events and nodes are looked at: how deep they are
nested, which costs its scanner the square of the depth, how many they are with aliases written out,
and whether a key is written twice, of which the loader would drop one without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from .errors import InvalidRecipe, wrong

_MAX_NODES = 20_000  # with aliases written out
_MAX_DEPTH = 32
_MAX_ALIASES = 1_000
_TOO_MANY = f"it has more than {_MAX_NODES:,} values, with aliases written out"
_TOO_DEEP = "it is nested too deep, or an alias refers to itself"


def read_yaml(text: str) -> tuple[dict[Any, Any], dict[str, int]]:
    """The values of a YAML mapping, and the line of each of its keys.

    Raises:
        InvalidRecipe: If it is no mapping, too large, or has a key twice.
        ValueError: If it is not YAML.
    """
    try:
        _check_events(text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(node, yaml.MappingNode):
            raise wrong("it has no keys; a recipe is a YAML mapping, such as `model: org/name`")
        _count(node, {}, depth=1)
        lines = {str(key.value): key.start_mark.line + 1 for key, _ in node.value}
        _check_twins(node)
        values = yaml.safe_load(text)
    except (yaml.YAMLError, OverflowError) as error:
        raise ValueError(str(error)) from error
    return values, lines


def _check_events(text: str) -> None:
    nodes = aliases = depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        nodes += isinstance(event, yaml.NodeEvent)
        aliases += isinstance(event, yaml.AliasEvent)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if aliases > _MAX_ALIASES:
            raise wrong("it has too many aliases; write the values out")
        if depth > _MAX_DEPTH:
            raise wrong(_TOO_DEEP)
        if nodes > _MAX_NODES:
            raise wrong(_TOO_MANY)


def _count(node: yaml.Node, known: dict[int, int], depth: int) -> int:
    """Number of nodes below one, with those that aliases repeat.

    Raises:
        InvalidRecipe: If they are too many or too deep, as where an alias refers to what it is in.
    """
    if depth > _MAX_DEPTH:
        raise wrong(_TOO_DEEP)
    if id(node) not in known:
        total = 1 + sum(_count(child, known, depth + 1) for child in _children(node))
        known[id(node)] = total
    if known[id(node)] > _MAX_NODES:
        raise wrong(_TOO_MANY)
    return known[id(node)]


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key
            yield value
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _check_twins(node: yaml.Node) -> None:
    """Refuse a key that stands twice in a mapping, at any depth."""
    if isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for key, _ in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in first and name != "<<":
                where = f"lines {first[name]} and {line}"
                raise InvalidRecipe({name: f"{where}: it is written twice; keep one"})
            first.setdefault(name, line)
    for child in _children(node):
        _check_twins(child)
