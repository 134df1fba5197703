"""The versions that a workload is traced or run with, since its memory depends on them.

They are written as ``transformers=4.51.3,torch=2.6.0``. Nothing here loads these packages.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

from ..core.errors import InvalidInput
from ..core.parsing import shown

PACKAGES = (
    "transformers", "torch", "peft", "accelerate", "bitsandbytes", "lightning", "trl", "diffusers",
    "timm", "torchvision",
)  # fmt: skip
"""Packages that decide what a training step keeps in memory, the most important first."""


@dataclass(frozen=True)
class Range:
    """Releases of a package, by their first two numbers; both ends count."""

    oldest: tuple[int, int]
    newest: tuple[int, int]

    def __str__(self) -> str:
        return f"{written(self.oldest)} to {written(self.newest)}"


TESTED: Mapping[str, Range] = {
    "torch": Range((2, 6), (2, 15)),
    "transformers": Range((4, 44), (5, 23)),
}
"""Releases that ``make compat`` runs; the lower ends are also those of the extra ``engine``."""

_WHOLE_EXPERTS = 5
"""The first transformers that has a mixture's experts as whole tensors."""

_PIN = re.compile(r"\s*([A-Za-z0-9_.-]+?)\s*={1,2}\s*([0-9][A-Za-z0-9.+!-]{0,40})\s*")


@cache  # looking them up takes milliseconds, and a process keeps what it has loaded
def installed() -> Mapping[str, str]:
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


def of_packages(used: Collection[str]) -> dict[str, str]:
    """The versions here of some packages, as far as they are installed."""
    return {package: number for package, number in installed().items() if package in used}


def loaded() -> dict[str, str]:
    """The versions of packages that this process has loaded, which a script may have requested."""
    return {package: number for package, number in installed().items() if package in sys.modules}


def of_project(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The versions in the environment of a project, where that is not the one running now.

    Args:
        folder: The project's folder; its ``.venv`` or ``venv`` counts.
        environ: Variables in which an active environment has its name (``VIRTUAL_ENV``,
            ``CONDA_PREFIX``).
    """
    active = [environ[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)]
    for home in (*map(Path, active), folder / ".venv", folder / "venv"):
        if home.resolve() == Path(sys.prefix).resolve():
            return {}
        places = [os.fspath(place) for place in home.glob("lib/python3*/site-packages")]
        found = {one.name: one.version for one in distributions(path=places)} if places else {}
        if "torch" in found or "transformers" in found:
            return {package: found[package] for package in PACKAGES if package in found}
    return {}


def as_text(versions: Mapping[str, str]) -> str:
    """Versions as :func:`parse` reads them."""
    return ",".join(f"{package}={number}" for package, number in versions.items())


def format_versions(versions: Mapping[str, str]) -> str:
    """Versions as people read them: ``transformers 4.51.3, torch 2.6.0``.

    In the order of :data:`PACKAGES`: PostgreSQL's JSON keeps none of its own.
    """
    known = [package for package in PACKAGES if package in versions]
    others = [package for package in versions if package not in PACKAGES]
    return ", ".join(f"{package} {versions[package]}" for package in (*known, *others))


def minor(version: str) -> tuple[int, int]:
    """The first two numbers of a version such as ``2.11.0+cu130``."""
    major, second = re.findall(r"\d+", f"{version}.0")[:2]
    return int(major), int(second)


def written(release: tuple[int, int]) -> str:
    """A release's two numbers as people write them."""
    return ".".join(map(str, release))


def untested(here: Mapping[str, str]) -> list[str]:
    """The packages whose version is newer than all that were tested."""
    return [
        package
        for package, tested in TESTED.items()
        if package in here and minor(here[package]) > tested.newest
    ]


def caveat(wanted: str, here: Mapping[str, str], *, quantizes_experts: bool = False) -> list[str]:
    """Caveat where an answer is not for the versions wanted, or for ones nobody tested.

    The range is that of transformers 4.x against 5.x; see docs/methods.md.

    Args:
        wanted: As :func:`parse` reads them.
        here: The versions that the answer is for.
        quantizes_experts: Whether a mixture of experts has weights in 8 or 4 bits.
    """
    newer = [
        f"{package} {here[package]} is newer than {written(TESTED[package].newest)}, the newest "
        "release that MemoryMark is tested with; its memory may differ."
        for package in untested(here)
    ]
    missing = unlike(parse(wanted), here)
    if not missing:
        return newer
    other, absent = (
        {package: number for package, number in missing.items() if (package in here) is known}
        for known in (True, False)
    )
    differs = "may differ between versions"
    if "transformers" in missing:
        differs = "differs by 2% to 11% between versions, most for T5 and GPT models"
    if quantizes_experts and _of_other_experts(missing, here):
        differs = (
            "may differ several times: transformers 4 has the experts of most mixtures as linear "
            "layers, which bitsandbytes quantizes, and transformers 5 as whole tensors, which stay "
            "in 16 or 32 bits. memorymark compare traces the step with both"
        )
    used = {package: here[package] for package in other}
    said = (
        [f"These numbers are for {format_versions(used)}, not {format_versions(other)}."]
        if other
        else []
    )
    said += [f"Not traced: {format_versions(absent)}."] if absent else []
    return [*newer, " ".join((*said, f"Memory {differs}."))]


def _of_other_experts(missing: Mapping[str, str], here: Mapping[str, str]) -> bool:
    """Whether experts are other layers in the wanted transformers than in the one here."""
    if "transformers" not in missing or "transformers" not in here:
        return False
    wanted, used = (minor(versions["transformers"])[0] for versions in (missing, here))
    return min(wanted, used) < _WHOLE_EXPERTS <= max(wanted, used)


def is_offered(wanted: Mapping[str, str], available: Mapping[str, str]) -> bool:
    """Whether every version wanted is available.

    A build such as ``2.6.0+cpu`` is the version ``2.6.0``.
    """
    return all(_same(number, available.get(package, "")) for package, number in wanted.items())


def unlike(wanted: Mapping[str, str], traced: Mapping[str, str]) -> dict[str, str]:
    """Versions wanted that are not the ones traced with."""
    return {
        package: number
        for package, number in wanted.items()
        if not _same(number, traced.get(package, ""))
    }


def _same(wanted: str, available: str) -> bool:
    return available == wanted or available.partition("+")[0] == wanted
