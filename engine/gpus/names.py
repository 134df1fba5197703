"""Names that people and drivers have for a GPU."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import lru_cache

from ..core.errors import InvalidInput
from ..core.parsing import shown
from ..core.sizes import GIB
from .catalogue import GPUS
from .gpu import Gpu

LOCAL = "local"
"""Instead of a catalogue name: the device of the machine that runs the analysis."""

ANY = "any"
"""Instead of a catalogue name: the catalogue GPU that gives the most for its price."""

HOW_TO_LIST = (
    "`memorymark devices` and the GPUs page list all; for another, choose a larger one like it and "
    "its memory (--memory-limit)"
)

_PREFIXES = ("nvidia", "amd", "geforce", "instinct", "radeon", "tesla", "rtx")
_LAPTOP = ("laptop", "mobile")
_MEMORY = re.compile(r"(?<![a-z\d])(\d+) ?gi?b?(?![a-z\d])")
_MODULE = re.compile(r"(?<![a-z\d])(sxm\d?|hbm\d?e?|gddr\dx?|gpu|tensor core)(?![a-z\d])")
_REPORTED = (0.9, 1.02)
"""GiB that a driver reports for each GB that is advertised, at least and at most."""
_MAX_NAMED = 8
"""Maximum number of GPUs that a message names."""

_MAX_BARE = 4096
"""Names whose bare form is kept: the form for a new analysis compares all of the catalogue's
with one another, 10,000 comparisons of some 200 names. Members enter any others."""


def short_name(display_name: str) -> str:
    """A GPU's name without its vendor's."""
    return display_name.removeprefix("NVIDIA ").removeprefix("GeForce ")


def canonical_name(text: object) -> str:
    """The catalogue name (or ``local``, or ``any``) for user input.

    Case, blanks, underscores and hyphens do not matter (``A100-80GB``, ``RTX 4090``, ``rtx4090``),
    nor do vendor prefixes (``NVIDIA GeForce``, ``Tesla``) or a missing ``rtx-``. A driver's name
    will do too, and the name with its memory or module (``H100 SXM5 80GB``).

    Raises:
        InvalidInput: If no GPU or several match; the message lists them.
    """
    wanted = _bare(str(text))
    for name in (*GPUS, LOCAL, ANY):
        if wanted == _bare(name):
            return name
    if str(text) in GPUS:  # removed from the catalogue, and stored in an analysis
        return str(text)
    called = [name for name, gpu in GPUS.items() if wanted in map(_bare, _names_of(gpu))]
    if len(called) == 1:
        return called[0]
    described = _described(str(text))
    if not called and len(described) == 1:
        return described[0]
    similar = called or described
    similar = similar or [name for name in GPUS if wanted and _bare(name).startswith(wanted)]
    if similar:
        message = f"{shown(text)} is not exact enough; choose one of {', '.join(similar)}"
    else:
        message = f"unknown gpu {shown(text)}; {_instead(str(text), wanted)}"
    raise InvalidInput({"gpu": message})


def _described(text: str) -> list[str]:
    """The GPUs of that name, and of the memory that it gives with it; none for a name alone."""
    plain = re.sub(r"[\s_-]+", " ", text.lower())
    advertised = [int(number) for number in _MEMORY.findall(plain)]
    if not advertised and not _MODULE.search(plain):
        return []
    low, high = _REPORTED
    return [
        name
        for name in _without_memory(text)
        if all(low <= GPUS[name].total_bytes / GIB / number <= high for number in advertised)
    ]


def _without_memory(text: str) -> list[str]:
    """The GPUs of that name, whatever memory and module it gives."""
    wanted = _name_alone(text)
    return [name for name in GPUS if wanted and _name_alone(name) == wanted]


def _name_alone(text: str) -> str:
    plain = re.sub(r"[\s_-]+", " ", text.lower())
    return _bare(_MODULE.sub("", _MEMORY.sub("", plain)))


def _instead(text: str, wanted: str) -> str:
    """Advice on what to enter instead of an unknown name."""
    if any(word in wanted for word in _LAPTOP):
        return (
            "GPUs of laptops are other chips than cards of the same name, and not in the "
            f"catalogue. Measure on it ({LOCAL}), or choose a card; {HOW_TO_LIST}"
        )
    close = get_close_matches(wanted, map(_bare, GPUS), n=_MAX_NAMED, cutoff=0.6)
    nearest = _without_memory(text) or [name for name in GPUS if _bare(name) in close]
    if nearest:
        return f"did you mean {' or '.join(nearest)}? {HOW_TO_LIST}"
    return f"choose a catalogue GPU, {LOCAL} or {ANY}; {HOW_TO_LIST}"


def catalogue_name(device_name: str, total_bytes: int | None = None) -> str | None:
    """The catalogue name for a driver's device name; ``None`` if it is not in the catalogue.

    Args:
        device_name: Name that the driver reports.
        total_bytes: Memory that it reports, where that is known: some GPUs with less and more
            memory have one name. Without it, they are not in the catalogue.
    """
    reported = _bare(device_name)
    own = [gpu for gpu in GPUS.values() if reported in (_bare(gpu.name), _bare(gpu.display_name))]
    others = [gpu for gpu in GPUS.values() if reported in map(_bare, gpu.driver_names)]
    if total_bytes is not None and (own or others):
        return min([*own, *others], key=lambda gpu: abs(gpu.total_bytes - total_bytes)).name
    if own:
        return own[0].name
    return others[0].name if len(others) == 1 else None


def _names_of(gpu: Gpu) -> tuple[str, ...]:
    return (gpu.display_name, *gpu.driver_names)


@lru_cache(maxsize=_MAX_BARE)
def _bare(text: str) -> str:
    bare = "".join(character for character in text.lower() if character.isalnum())
    for word in _PREFIXES:
        bare = bare.removeprefix(word)
    return bare
