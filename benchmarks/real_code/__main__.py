"""Predicts real training scripts, and compares: ``python -m benchmarks.real_code``.

The first time it makes an environment in ``var/real_code`` with the packages that some of the
scripts import. The status says whether every peak on the CPU was predicted to the byte.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.real_code.cases import CASES, Case
from benchmarks.real_code.comparison import (
    GPU,
    ROOT,
    Comparison,
    compare,
    peaks_on_the_cpu,
    this_python,
)
from benchmarks.torchvision_here import DECLARED
from engine.core.errors import EngineError, InvalidInput
from engine.versions.environments import create

FOLDER = ROOT / "var" / "real_code"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each script.

    Returns:
        The exit status: 1 if a peak on the CPU differs or is missing.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_code", description=__doc__)
    parser.add_argument("names", nargs="*", help="rows to make; default all")
    parser.add_argument("--json", action="store_true", help="print JSON, with every digit")
    parser.add_argument("--here", action="store_true", help="only with the packages of this Python")
    parser.add_argument("--bytes-of", metavar="NAME", help="compare one on the CPU, in this Python")
    options = parser.parse_args(arguments)
    if options.bytes_of:
        return _print_bytes(_named(options.bytes_of))
    cases = [_named(name) for name in options.names] or list(CASES)
    python = this_python() if options.here else _environment()
    found = []
    for case in cases:
        sys.stderr.write(f"{case.name} ...\n")
        found.append(compare(case, python))
    if options.json:
        rows = [asdict(one) for one in found]
        json.dump({"source": "measured", "gpu": GPU, "scripts": rows}, sys.stdout, indent=1)
    else:
        Console().print(_table(found))
    return 0 if all(one.is_equal for one in found) else 1


def _named(name: str) -> Case:
    found = next((case for case in CASES if case.name == name), None)
    if found is None:
        raise SystemExit(
            f"no script is called {name}; choose from {', '.join(c.name for c in CASES)}"
        )
    return found


def _print_bytes(case: Case) -> int:
    try:
        print(json.dumps(peaks_on_the_cpu(case)))  # noqa: T201  # a command
    except (EngineError, InvalidInput) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _environment() -> Path:
    """The interpreter of an environment with what the scripts import, made unless it was before."""
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    made_with = FOLDER / REQUIREMENTS.name
    python = FOLDER / "venv" / "bin" / "python"
    if made_with.is_file() and made_with.read_text(encoding="utf-8") == wanted:
        return python
    sys.stderr.write(f"Making {FOLDER} ...\n")
    FOLDER.mkdir(parents=True, exist_ok=True)
    # The list is complete: pip must not look for another torch.
    create(python.parents[1], "--no-deps", "--requirement", str(REQUIREMENTS))
    (packages,) = python.parents[1].glob("lib/python3*/site-packages")
    (packages / "torchvision.pth").write_text(DECLARED, encoding="utf-8")
    made_with.write_text(wanted, encoding="utf-8")
    return python


def _table(found: Sequence[Comparison]) -> Table:
    table = Table(box=box.SIMPLE, title=f"Scripts predicted for {GPU}, and compared on the CPU")
    for heading in ("script", "batch", "lines added", "seconds", f"on {GPU}", "on the CPU"):
        table.add_column(heading, justify="left" if heading == "script" else "right")
    for one in found:
        table.add_row(
            one.name,
            f"{one.batch_size:,}",
            str(one.lines),
            f"{one.seconds:.1f}",
            one.refused if one.gpu_bytes is None else f"{one.gpu_bytes / 2**20:,.1f} MiB",
            _line(one),
        )
    return table


def _line(one: Comparison) -> str:
    """Describe the trace for the CPU compared with real steps."""
    if one.failure:
        return one.failure
    if one.measured_bytes is None or one.predicted_bytes is None:
        return "not run"
    difference = one.predicted_bytes - one.measured_bytes
    return f"{difference:+,} B of {one.measured_bytes:,}" if difference else "equal"


if __name__ == "__main__":
    sys.exit(main())
