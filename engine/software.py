"""The versions that a workload is traced or run with, since its memory depends on them.

They are written as ``transformers=4.51.3,torch=2.6.0``. Nothing here loads these packages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from .errors import InvalidInput
from .parsing import shown

PACKAGES = ("transformers", "torch", "peft", "accelerate", "bitsandbytes")
"""Those that decide what a training step keeps in memory, the most important first."""

_PIN = re.compile(r"\s*([A-Za-z0-9_.-]+?)\s*={1,2}\s*([0-9][A-Za-z0-9.+!-]{0,40})\s*")


def installed() -> dict[str, str]:
    """The versions installed here, by package; what is missing is left out."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def parse(text: str) -> dict[str, str]:
    """Versions by package, in the order of :data:`PACKAGES`.

    Raises:
        InvalidInput: For ``software``.
    """
    given = {}
    for pin in filter(str.strip, text.split(",")):
        match = _PIN.fullmatch(pin)
        if match is None or match[1] not in PACKAGES:
            raise InvalidInput(
                {
                    "software": f"{shown(pin.strip())} is not a version of "
                    f"{', '.join(PACKAGES)}; write it as transformers=4.51.3"
                }
            )
        given[match[1]] = match[2]
    return {package: given[package] for package in PACKAGES if package in given}


def as_text(versions: Mapping[str, str]) -> str:
    """Versions as :func:`parse` reads them."""
    return ",".join(f"{package}={number}" for package, number in versions.items())


def in_words(versions: Mapping[str, str]) -> str:
    """Versions as people read them: ``transformers 4.51.3, torch 2.6.0``."""
    return ", ".join(f"{package} {number}" for package, number in versions.items())


def is_offered(wanted: Mapping[str, str], available: Mapping[str, str]) -> bool:
    """Whether every version wanted is available.

    A build such as ``2.6.0+cpu`` is the version ``2.6.0``.
    """
    return all(_same(number, available.get(package, "")) for package, number in wanted.items())


def unlike(wanted: Mapping[str, str], traced: Mapping[str, str]) -> dict[str, str]:
    """Those of the versions wanted that are not the ones traced with."""
    return {
        package: number
        for package, number in wanted.items()
        if not _same(number, traced.get(package, ""))
    }


def _same(wanted: str, available: str) -> bool:
    return available == wanted or available.partition("+")[0] == wanted
