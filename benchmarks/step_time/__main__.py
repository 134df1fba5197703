"""Step times beside published ones: ``python -m benchmarks.step_time``.

Without arguments it prints the tables from the files. ``fit`` traces what was not traced yet (half
an hour on one core the first time), fits the constants and writes them for the engine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

import torch
from rich.console import Console

from benchmarks.step_time import picture, predictions
from benchmarks.step_time.fitting import fit
from benchmarks.step_time.own import own_rows, trace_missing_own
from benchmarks.step_time.report import figures, of_h100, ranges_of, tables, unseen_error
from benchmarks.step_time.rows import CHECKED, FITTED, read_rows
from benchmarks.step_time.table import Table
from benchmarks.step_time.work import is_traced, trace_missing
from benchmarks.step_time.writing import as_toml, ranges_as_toml
from engine.prediction.timing.speed_model import FILE, speed_model


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step_time", description=__doc__)
    parser.add_argument("command", nargs="?", choices=["show", "fit"], default="show")
    parser.add_argument("--json", action="store_true", help="print JSON, with every digit")
    parser.add_argument(
        "--traced-only", action="store_true", help="fit: leave out rows that are not traced yet"
    )
    options = parser.parse_args(arguments)
    if options.command == "fit":
        _fit(options.traced_only)
        picture.FILE.write_text(picture.as_svg(of_h100(predictions.read())), encoding="utf-8")
    found = figures(predictions.read())
    if options.json:
        json.dump({"source": "predicted"} | asdict(found), sys.stdout, indent=1)
    else:
        for table in tables(found):
            Console().print(table)
    return 0


def _fit(traced_only: bool) -> None:
    torch.set_num_threads(1)
    published, own, checks = read_rows(FITTED), own_rows(), read_rows(CHECKED)
    if not traced_only:
        trace_missing([*published, *checks])
        trace_missing_own(own)
    rows = [*published, *own]
    rows, checks = list(filter(is_traced, rows)), list(filter(is_traced, checks))
    table = Table(rows)
    sys.stderr.write(f"Fitting {len(rows):,} rows ...\n")
    everything = torch.ones(len(rows), dtype=torch.bool)
    fitted = fit(table, everything, predictions.weights_of(rows))
    text = as_toml(fitted, rows)
    # The engine predicts the rows with the new constants, then gets the ranges.
    FILE.write_text(text, encoding="utf-8")
    speed_model.cache_clear()
    sys.stderr.write("Fitting without each fold ...\n")
    found = predictions.predict(rows, checks)
    predictions.write(found)
    unseen = unseen_error(found)
    ranges = ranges_as_toml(ranges_of(found), unseen.median, unseen.percentile_90)
    FILE.write_text(text + ranges, encoding="utf-8")
    speed_model.cache_clear()


if __name__ == "__main__":
    sys.exit(main())
