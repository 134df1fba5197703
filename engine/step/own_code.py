"""Configs of models that transformers has no code for, though it has their ``model_type``.

transformers builds what its own class makes of a config, and leaves aside what it does not know. A
model with code of its own would come out as another one, and a config in another layout with the
sizes of the class.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from inspect import getfile, signature
from pathlib import Path
from typing import Any

import transformers
from transformers import PretrainedConfig

from ..interface.workload import Workload
from .transformers_versions import new_config

_SIZE = re.compile(r"(num|n)_\w+|\w+_(size|dim)s?")
_MIN_SIZE = 16
"""The least number that looks like a size by its name alone."""
_OF_INPUTS = {"n_ctx", "n_positions", "num_positions", "image_size"}
"""Sizes of what a model was trained on, which published configs have whether it depends on them."""
_DECIDING = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
)  # fmt: skip
"""Sizes that every class of texts has, under these names or as those of a part."""
_OTHER_NAMES = {
    "hidden_size": (
        "n_embd", "d_model", "dim", "embed_dim", "embed_dims", "hidden_dim", "hidden_sizes",
        "model_dim", "width",
    ),
    "intermediate_size": ("n_inner", "d_ff", "ffn_dim", "ffn_hidden_size"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers", "depth", "depths"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "vocab_size": ("padded_vocab_size", "n_vocab"),
}  # fmt: skip
"""Names of the same sizes in other layouts of configs."""
_STANDS_FOR = {
    **{name: name for name in _DECIDING},
    **{name: own for own, names in _OTHER_NAMES.items() for name in names},
}
"""Names of sizes that decide, in any layout, with those that classes have for them."""
_COUNTS_OF_FEW = re.compile(r"(num|n)_\w*expert\w*|\w*expert\w*_num")
"""Counts that matter however small they are."""
_BY_OLD_NAME = {"t5withlmheadmodel"}
"""Classes that transformers had itself, which older configs name."""
_WHAT_HELPS = (
    "enter a checkpoint that was converted for transformers, or predict your training script "
    "(memorymark predict SCRIPT.py)"
)


def why_another_model(workload: Workload) -> str:
    """Why a config would be built as another model than its own; empty if it would not."""
    config = workload.preset.config()
    if workload.preset.package:
        return ""
    named = config.get("architectures") or []
    own = [name for name in ([named] if isinstance(named, str) else named) if not _is_known(name)]
    if own:
        return (
            f"transformers has no class {' and '.join(map(str, own))}, and its own "
            f"{config['model_type']} may be another model; {_WHAT_HELPS}"
        )
    deciding = [text for name, text, decides in _unread(workload) if decides]
    if deciding:
        return f"transformers' {config['model_type']} does not read {_listed(deciding)}; " + (
            _WHAT_HELPS
        )
    return ""


def unread_caveats(workload: Workload) -> list[str]:
    """Caveat about sizes in a given config that transformers' class does not read."""
    if workload.config is None or workload.preset.package:
        return []
    unread = [text for _, text, _ in _unread(workload)]
    if not unread:
        return []
    return [
        f"transformers' {workload.preset.config()['model_type']} does not read {_listed(unread)} "
        "of the config. If your model does, it is another one than this."
    ]


@cache
def _known_classes() -> frozenset[str]:
    return frozenset(name.lower() for name in dir(transformers)) | _BY_OLD_NAME


def _is_known(name: object) -> bool:
    """Whether transformers has a class; old configs write some names in other letters."""
    return str(name).lower() in _known_classes()


def _unread(workload: Workload) -> list[tuple[str, str, bool]]:
    """Sizes of a config that nothing reads: names, what is said of them, whether they decide."""
    fields = dict(workload.preset.config())
    config = new_config(fields.pop("model_type"), **fields)
    return list(_unread_by(config, fields))


def _unread_by(config: Any, fields: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    parts = [part for part in vars(config).values() if isinstance(part, PretrainedConfig)]
    for name, value in fields.items():
        part = vars(config).get(name)
        if isinstance(value, dict) and isinstance(part, PretrainedConfig):
            yield from _unread_by(part, value)
            continue
        said = _sizes_in(name, value)
        passed_on = any(vars(one).get(name) == value for one in parts)
        read = passed_on or not said or _reads(type(config), name)
        if not read and not _computes(config, fields, name):
            yield name, said, _decides(config, fields, name)


def _sizes_in(name: str, value: object) -> str:
    """A field that looks like a size, or the sizes in a part of the config; empty for neither."""
    if isinstance(value, dict):
        inner = [_written(key, size) for key, size in value.items() if _is_size(key, size)]
        return f"{name} ({_listed(inner)})" if inner else ""
    return _written(name, value) if _is_size(name, value) else ""


def _written(name: str, size: Any) -> str:
    return f"{name} {size}" if isinstance(size, list) else f"{name} {size:,}"


def _decides(config: Any, fields: Mapping[str, Any], name: str) -> bool:
    """Whether what a class does not read makes another model of it."""
    value = fields[name]
    if isinstance(value, dict):
        return _is_another_part(config, fields, value)
    known = _STANDS_FOR.get(name)
    return name in _DECIDING or (known is not None and getattr(config, known, value) != value)


def _is_another_part(config: Any, fields: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    """Whether a part has deciding sizes that the class takes from what the config leaves out."""
    sizes = {_STANDS_FOR[name]: size for name, size in part.items() if name in _STANDS_FOR}
    own = {name: one for name, one in vars(config).items() if isinstance(one, PretrainedConfig)}
    if own:
        left_out = [one for name, one in own.items() if name not in fields]
    else:
        given = {_STANDS_FOR[name] for name in fields if name in _STANDS_FOR}
        left_out = [] if sizes.keys() <= given else [config]
    unlike = [
        any(getattr(one, name, size) != size for name, size in sizes.items()) for one in left_out
    ]
    return bool(unlike) and all(unlike)


def _is_size(name: str, value: object) -> bool:
    """Whether a field looks like a size of the model, or sizes of its stages."""
    sizes = value if isinstance(value, list) else [value]
    if not sizes or not all(type(size) is int and size > 0 for size in sizes):
        return False
    largest: int = max(sizes)
    if _COUNTS_OF_FEW.fullmatch(name):
        return largest > 1
    if name in _STANDS_FOR:
        return True
    return largest >= _MIN_SIZE and name not in _OF_INPUTS and _SIZE.fullmatch(name) is not None


def _reads(config_class: Any, name: str) -> bool:
    """Whether a class of configs knows a field, or the code of its models asks for it."""
    if hasattr(config_class, name) or name in config_class.attribute_map:
        return True
    if any(name in signature(vars(kind)["__init__"]).parameters for kind in _made_by(config_class)):
        return True
    if name in _DECIDING and getattr(config_class, "sub_configs", None):
        return False  # the code below is of its parts too, which have sizes of their own
    return re.search(rf"(?<!_)config\.{name}\b|[\"']{name}[\"']", _code(config_class)) is not None


def _computes(config: Any, fields: Mapping[str, Any], name: str) -> bool:
    """Whether a class computes a field from others, to the value that a config has for it."""
    others = {other: value for other, value in fields.items() if other != name}
    return bool(vars(type(config)(**others)).get(name) == fields[name])


def _made_by(config_class: type) -> list[type]:
    return [kind for kind in config_class.__mro__ if "__init__" in vars(kind)]


@cache
def _code(config_class: type) -> str:
    """The code of a class of configs and of its models."""
    file = Path(getfile(config_class))
    models = file.with_name(file.name.replace("configuration_", "modeling_", 1))
    return "".join(path.read_text(encoding="utf-8") for path in {file, models} if path.is_file())


def _listed(names: list[str]) -> str:
    return ", ".join(names)
