"""The command line of the benchmark; see :mod:`engine.benchmarks.gpu`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import engine.benchmarks.gpu as package
from engine.benchmarks.gpu.calibrate_text import calibration
from engine.benchmarks.gpu.commands import Order, measure, predict
from engine.benchmarks.gpu.report_text import report
from engine.benchmarks.gpu.results import load, save
from engine.benchmarks.gpu.workloads import FULL, QUICK
from engine.errors import EngineError
from engine.prediction.intervals import PUBLISHED, read_residuals

BUDGET_SECONDS = 540.0
PREDICT_SECONDS = 3600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, report, predict or calibrate.

    Returns:
        The exit status: 2 where the command line or a file cannot be used.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] not in (*_COMMANDS, "-h", "--help"):
        given = ["run", *given]
    chosen = _parser().parse_args(given)
    try:
        return int(_COMMANDS[chosen.command](chosen))
    except EngineError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _run(chosen: argparse.Namespace) -> int:
    order = Order(
        kind=chosen.device,
        quick=chosen.quick,
        budget_seconds=chosen.budget_seconds,
        only=tuple(chosen.only),
        fresh=chosen.fresh,
        out=chosen.out,
        commit=chosen.commit,
    )
    path = measure(order, _say)
    _say(f"To read them: python -m engine.benchmarks.gpu report {path}")
    return 0


def _predict(chosen: argparse.Namespace) -> int:
    results = load(chosen.file)
    predict(results, os.environ, PREDICT_SECONDS, _say)
    save(chosen.file, results)
    return 0


def _report(chosen: argparse.Namespace) -> int:
    sys.stdout.write(report(load(chosen.file)))
    return 0


def _calibrate(chosen: argparse.Namespace) -> int:
    results = load(chosen.file)
    if results.device.facts.kind != "cuda":
        raise EngineError(f"{chosen.file} was measured on a CPU: there is no GPU to calibrate")
    # The steps are traced, which takes PyTorch: seconds to load, and the report is to be quick.
    from engine.benchmarks.gpu.foresight import timed_steps

    steps = timed_steps(results, _say_aside)
    sys.stdout.write(calibration(results, steps, read_residuals(PUBLISHED)))
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _say_aside(line: str) -> None:
    sys.stderr.write(f"{line}\n")


_COMMANDS = {"run": _run, "report": _report, "predict": _predict, "calibrate": _calibrate}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m engine.benchmarks.gpu",
        description=package.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure what the file lacks (the default)")
    run.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="where the results are; default "
        "one named after the device in engine/benchmarks/results",
    )
    run.add_argument(
        "--budget-seconds",
        type=_seconds,
        default=BUDGET_SECONDS,
        metavar="S",
        help=f"what all of it may take; default {BUDGET_SECONDS:.0f}",
    )
    names = ", ".join(one.name for one in (*FULL, *QUICK))
    run.add_argument("--only", nargs="+", default=[], metavar="NAME", help=f"of {names}")
    run.add_argument("--fresh", action="store_true", help="throw away what the file has")
    run.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    run.add_argument("--quick", action="store_true", help="small models, to try the flow")
    run.add_argument("--commit", default="", help="of this code, where there is no git to ask")
    for name, what in {
        "report": "how far predictions are from measurements, in tables",
        "predict": "predict anew, with this engine, all that the file has measured (no GPU needed)",
        "calibrate": "fit constants to one half of the workloads, and say where to put them",
    }.items():
        commands.add_parser(name, help=what).add_argument("file", type=Path, metavar="FILE")
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 10 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError("10 seconds at least")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
