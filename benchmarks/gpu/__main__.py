"""The command line of the benchmark; see :mod:`benchmarks.gpu`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import benchmarks.gpu as package
from benchmarks.gpu.calibration import calibration
from benchmarks.gpu.commands import Order, measure, predict
from benchmarks.gpu.report_text import report
from benchmarks.gpu.results import load, save
from benchmarks.gpu.run import Budget
from benchmarks.gpu.workloads import FULL, QUICK
from engine.core.errors import EngineError
from engine.prediction.timing.intervals import PUBLISHED, read_residuals

BUDGET_SECONDS = 540.0
PREDICT_SECONDS = 3600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, report, predict or calibrate.

    Returns:
        The exit status: 2 if the command line or a file cannot be used.
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
    path = measure(order, _print)
    _print(f"To read the results: python -m benchmarks.gpu report {path}")
    return 0


def _sweep(chosen: argparse.Namespace) -> int:
    # It reads settings as the tables of our measurements have them, which loads rich.
    from benchmarks.gpu.sweep import chosen as swept
    from benchmarks.gpu.sweep import sweep

    budget = Budget(chosen.budget_seconds)
    sweep(tuple(swept(chosen.only)), chosen.rows, chosen.kernels, budget, _print)
    return 0


def _predict(chosen: argparse.Namespace) -> int:
    results = load(chosen.file)
    predict(results, os.environ, PREDICT_SECONDS, _print)
    save(chosen.file, results)
    return 0


def _report(chosen: argparse.Namespace) -> int:
    sys.stdout.write(report(load(chosen.file)))
    return 0


def _calibrate(chosen: argparse.Namespace) -> int:
    results = load(chosen.file)
    if results.device.facts.kind != "cuda":
        raise EngineError(f"{chosen.file} was measured on a CPU: there is no GPU to calibrate")
    # Tracing needs PyTorch, which takes seconds to load; the report should be quick.
    from benchmarks.gpu.prediction import timed_steps

    steps = timed_steps(results, _print_error)
    sys.stdout.write(calibration(results, steps, read_residuals(PUBLISHED)))
    return 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _print_error(line: str) -> None:
    sys.stderr.write(f"{line}\n")


_COMMANDS = {
    "run": _run,
    "sweep": _sweep,
    "report": _report,
    "predict": _predict,
    "calibrate": _calibrate,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=package.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure what the file lacks (the default)")
    run.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="file of the results; default one named after the device in benchmarks/results",
    )
    _add_budget(run)
    names = ", ".join(one.name for one in (*FULL, *QUICK))
    run.add_argument("--only", nargs="+", default=[], metavar="NAME", help=f"any of {names}")
    run.add_argument("--fresh", action="store_true", help="discard the contents of the file")
    run.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    run.add_argument("--quick", action="store_true", help="small models, to try out the benchmark")
    run.add_argument("--commit", default="", help="commit of this code, if there is no git history")
    models = commands.add_parser("sweep", help="steps of many models at three batch sizes each")
    models.add_argument("--rows", type=Path, required=True, metavar="FILE", help="a row per trial")
    models.add_argument(
        "--kernels",
        type=Path,
        required=True,
        metavar="FILE",
        help="profiles of largest batches",
    )
    _add_budget(models)
    models.add_argument("--only", nargs="+", default=[], metavar="MODEL")
    for name, what in {
        "report": "tables of prediction errors",
        "predict": "predict everything in the file again, with this engine (no GPU needed)",
        "calibrate": "fit constants to one half of the workloads, and print where they belong",
    }.items():
        commands.add_parser(name, help=what).add_argument("file", type=Path, metavar="FILE")
    return parser


def _add_budget(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--budget-seconds",
        type=_seconds,
        default=BUDGET_SECONDS,
        metavar="S",
        help=f"time budget of the run; default {BUDGET_SECONDS:.0f}",
    )


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 10 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError("at least 10 seconds")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
