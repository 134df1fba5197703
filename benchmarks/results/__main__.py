"""Reproduces the results: ``python -m benchmarks.results``, or ``make results``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.results.documents import fill_all
from benchmarks.results.files import COMMANDS, NoResult, read, run, write
from benchmarks.results.new_rows import renewed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the commands one after another, and fill the tables in README and docs.

    Returns:
        The exit status: 1 if a command failed or gave no result, or the tables could not be filled.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.results",
        description="Run the commands behind the numbers in README and docs, write each result to "
        "a file beside this module, and fill the tables from those files.",
    )
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(COMMANDS)}; default all")
    parser.add_argument("--tables", action="store_true", help="run nothing, only fill the tables")
    parser.add_argument(
        "--new-rows",
        nargs="*",
        metavar="WORDS",
        help="of accuracy, predict only published measurements that are new or have changed, and "
        "those with these words in their name",
    )
    chosen = parser.parse_args(arguments)
    if chosen.new_rows is not None:
        for result in renewed(read("accuracy"), chosen.new_rows):
            write("accuracy", result)  # each time, so that an interruption loses one row
        chosen.tables = True
    if unknown := [name for name in chosen.names if name not in COMMANDS]:
        parser.error(f"no result is called {', '.join(unknown)}; choose from {', '.join(COMMANDS)}")
    names = [] if chosen.tables else chosen.names or list(COMMANDS)
    succeeded = True
    for name in names:
        try:
            result = run(COMMANDS[name])
        except NoResult as error:
            succeeded = False
            sys.stderr.write(f"{name}: {error}; its file is unchanged\n")
            continue
        succeeded &= result.exit_status == 0
        file = write(name, result)
        sys.stderr.write(f"{file.name}: {result.seconds:,.0f} s, status {result.exit_status}\n")
    try:
        for changed in fill_all():
            sys.stderr.write(f"{changed.name}: tables updated\n")
    except (OSError, ValueError) as error:
        succeeded = False
        sys.stderr.write(f"the tables were not filled: {error}\n")
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
