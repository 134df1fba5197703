"""The command ``check``: a training's file against a GPU, for a pipeline that must fail in time."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.advice.check import KEYS, Check, Description, check, nothing_fits, read_description
from engine.cli.progress import progress
from engine.errors import DoesNotFit
from engine.own.factory import Factory
from engine.own.request import OwnCodeRequest
from engine.request import AnalysisRequest
from engine.result import AnalysisResult

_ABOUT = "check that a training, described by a file, fits on a GPU and uses it well"


def add_check_command(commands: Any, command: Callable[[argparse.Namespace], int]) -> None:
    """Add ``check --config FILE``."""
    parser = commands.add_parser(
        "check",
        help=_ABOUT,
        description=f"{_ABOUT[0].upper()}{_ABOUT[1:]}. Ends with status 1 if it does not.",
        allow_abbrev=False,
    )
    parser.usage = f"{parser.prog} --config FILE --gpu NAME [options]"
    parser.add_argument(
        "--config", dest="file", metavar="FILE", required=True, help="TOML; see docs/check.md"
    )
    parser.add_argument(
        "--gpu", metavar="NAME", help="a GPU that `devices` lists; default: the file's"
    )
    parser.add_argument(
        "--optimistic",
        action="store_true",
        help="take predicted memory as it is, instead of the high end of its interval",
    )
    parser.add_argument("--json", action="store_true", help="answer in JSON")
    parser.set_defaults(command=command, names=KEYS | {"file": "--config", "gpu": "--gpu"})


def answer_check(options: argparse.Namespace) -> bool:
    """Answer ``check``; whether the training passes.

    Raises:
        InvalidInput: With a message for each wrong key of the file.
    """
    described = read_description(Path(options.file))
    given = dict(described.given) | ({"gpu": options.gpu} if options.gpu else {})
    try:
        result = _analysed(described, given)
    except DoesNotFit as error:
        checked = nothing_fits(error, int(str(given["current_batch_size"])))
    else:
        checked = check(result, described.limits, optimistic=options.optimistic)
    _print(checked, options.json)
    return checked.passed


def _analysed(described: Description, given: dict[str, object]) -> AnalysisResult:
    if described.factory is not None:
        own = OwnCodeRequest.parse(Factory.of(described.factory), given)
        with progress() as emit:
            from engine.own.analysis import analyze_own_code  # loads torch

            return analyze_own_code(own, emit)
    request = AnalysisRequest.parse(given)
    with progress() as emit:
        from engine.analysis import analyze  # loads torch

        return analyze(request, emit)


def _print(checked: Check, as_json: bool) -> None:
    """One sentence is one line, however wide a pipeline's log is."""
    text = json.dumps(checked.to_dict(), indent=2) if as_json else checked.verdict
    sys.stdout.write(f"{text}\n")
