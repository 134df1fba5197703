"""Predicts public training scripts as they are: ``python -m benchmarks.public --checkouts FOLDER``.

The list is ``scripts.toml`` in this folder. The scripts are in other people's repositories, and
nothing of them is in ours: FOLDER has them in ``owner/name``, and ``--clone`` gets what is missing,
at the listed commit. Their data and models are small stand-ins, made on the first run. The status
says whether none was refused wrongly and none was wrong. What the scripts import is in
``requirements.txt`` there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.public.outcome import GPU, LIMIT_SECONDS, ROOT, Outcome, Verdict, judge, summary
from benchmarks.public.scripts import PublicScript, public_scripts
from benchmarks.public.stand_ins import make_stand_ins

FOLDER = ROOT / "var" / "public"
_HEADINGS = (
    "script", "repository", "outcome", "seconds", "CPU s", f"on {GPU}", "on the CPU",
)  # fmt: skip
_NUMBERS = ("seconds", "CPU s")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each script.

    Returns:
        The exit status: 1 if one was refused wrongly or was wrong.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.public", description=__doc__)
    parser.add_argument("names", nargs="*", help="scripts to predict, by name; default all")
    parser.add_argument("--checkouts", type=Path, default=FOLDER / "checkouts")
    parser.add_argument("--data", type=Path, default=FOLDER / "data", help="for the stand-ins")
    parser.add_argument("--clone", action="store_true", help="clone what is not in the checkouts")
    parser.add_argument("--real-steps", action="store_true", help="compare with steps on the CPU")
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, help="seconds for an answer")
    parser.add_argument("--json", action="store_true", help="print JSON, with every digit")
    parser.add_argument("--bytes-of", metavar="NAME", help="compare one on the CPU, in this Python")
    options = parser.parse_args(arguments)
    checkouts, data = options.checkouts.absolute(), options.data.absolute()
    if options.bytes_of:
        return _print_bytes(_named([options.bytes_of])[0], checkouts, data)
    scripts = _named(options.names)
    if options.clone:
        _clone(scripts, checkouts)
    make_stand_ins(data)
    found = []
    for script in scripts:
        one = judge(script, checkouts, data, compares=options.real_steps, limit=options.limit)
        sys.stderr.write(f"{one.name}: {one.verdict} ({one.cpu_seconds} CPU s) {one.refused}\n")
        found.append(one)
    if options.json:
        rows = [asdict(one) for one in found]
        json.dump({"source": "measured", "gpu": GPU, "scripts": rows}, sys.stdout, indent=1)
    else:
        Console().print(table(found))
    counts = summary(found)
    return int(bool(counts[Verdict.REFUSED_WRONGLY] or counts[Verdict.WRONG]))


def _named(names: Sequence[str]) -> list[PublicScript]:
    scripts = public_scripts()
    known = {script.name: script for script in scripts}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"no script is called {unknown[0]}; choose from {', '.join(known)}")
    return [known[name] for name in names] or scripts


def _clone(scripts: Sequence[PublicScript], checkouts: Path) -> None:
    for repository, commit in {(one.repository, one.commit) for one in scripts}:
        folder = checkouts / repository
        if folder.exists():
            continue
        folder.mkdir(parents=True)
        origin = f"https://github.com/{repository}"
        for words in (
            ["init", "--quiet"],
            ["fetch", "--quiet", "--depth=1", origin, commit],
            ["checkout", "--quiet", "FETCH_HEAD"],
        ):
            subprocess.run(["git", *words], cwd=folder, check=True)  # noqa: S607  # the user's git


def _print_bytes(script: PublicScript, checkouts: Path, data: Path) -> int:
    from benchmarks.real_code.comparison import peaks_of
    from engine.core.errors import EngineError, InvalidInput
    from engine.script.program import Program

    program = Program.of(
        script.file(checkouts), script.words(data), script.batch_flag, script.batch_env
    )
    try:
        print(json.dumps(peaks_of(program, script.batch_size)))  # noqa: T201  # a command
    except (EngineError, InvalidInput) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def table(found: Sequence[Outcome]) -> Table:
    """A row for each script, and a footer with the counts."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in summary(found).items())
    rows = Table(box=box.SIMPLE, title=f"Public scripts, for {GPU}", caption=counts)
    for heading in _HEADINGS:
        rows.add_column(heading, justify="right" if heading in _NUMBERS else "left")
    for one in found:
        peak = "" if one.gpu_bytes is None else f"{one.gpu_bytes / 2**20:,.0f} MiB"
        rows.add_row(
            one.name, one.repository, one.verdict, f"{one.seconds:.1f}",
            f"{one.cpu_seconds:.1f}", peak, _compared(one),
        )  # fmt: skip
    return rows


def _compared(one: Outcome) -> str:
    if one.predicted_bytes is None or one.measured_bytes is None:
        return one.not_compared or "not run"
    difference = one.predicted_bytes - one.measured_bytes
    return f"{difference / one.measured_bytes:+.2%}" if difference else "equal"


if __name__ == "__main__":
    sys.exit(main())
