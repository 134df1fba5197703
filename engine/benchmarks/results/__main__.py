"""Makes the results again: ``python -m engine.benchmarks.results``, or ``make results``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from engine.benchmarks.results.commands import COMMANDS, NoResult, run
from engine.benchmarks.results.documents import fill_all
from engine.benchmarks.results.file import write


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the commands one after the other, and fill the tables of README and docs.

    Returns:
        The exit status: 1 if a command gave no result or ended with another status than 0, or if
        the tables could not be filled.
    """
    parser = argparse.ArgumentParser(
        prog="python -m engine.benchmarks.results",
        description="Run the commands behind the figures of README and docs, write what each found "
        "into a file beside this module, and fill the tables from those files.",
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(COMMANDS)}; default all of them")
    parser.add_argument("--tables", action="store_true", help="run nothing, only fill the tables")
    chosen = parser.parse_args(arguments)
    if unknown := [name for name in chosen.names if name not in COMMANDS]:
        parser.error(f"no result is called {', '.join(unknown)}; choose of {', '.join(COMMANDS)}")
    names = [] if chosen.tables else chosen.names or list(COMMANDS)
    all_well = True
    for name in names:
        try:
            result = run(COMMANDS[name])
        except NoResult as error:
            all_well = False
            sys.stderr.write(f"{name}: {error}; its file stays as it was\n")
            continue
        all_well &= result.exit_status == 0
        file = write(name, result)
        sys.stderr.write(f"{file.name}: {result.seconds:,.0f} s, status {result.exit_status}\n")
    try:
        for changed in fill_all():
            sys.stderr.write(f"{changed.name}: tables filled anew\n")
    except (OSError, ValueError) as error:
        all_well = False
        sys.stderr.write(f"the tables are not filled: {error}\n")
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
