"""The command line: ``python -m engine``.

Answers go to stdout, as tables or with ``--json`` as JSON; progress and errors go to stderr. The
exit status is 0 for an answer, 2 for bad input, 1 for any other failure (a check that did not pass
is one), 130 after Ctrl-C.

Torch and transformers take seconds to load, so whatever leads to them is imported inside the
commands that need it: lists, help and error messages come at once.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any, NoReturn

from rich.console import Console, RenderableType

from engine.errors import EngineError, InvalidInput
from engine.gpus import GPUS, LOCAL
from engine.parsing import shown
from engine.presets import PRESETS
from engine.progress import progress
from engine.render import render_analysis, render_backward, render_trial
from engine.render_lists import render_devices, render_models
from engine.request import AnalysisRequest
from engine.result import GpuFacts
from engine.workload import Mode, Optimizer, Precision

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

_PUBLISHED_GPU = "a10"
"""The GPU whose measurement of forward against backward is published."""

_SIZE = re.compile(r"(?P<number>[0-9]{1,15}(\.[0-9]{1,6})?) ?(?P<unit>[kmgt]i?b|b)", re.IGNORECASE)
_POWERS = "bkmgt"


@dataclass(frozen=True)
class Flag:
    """A flag of the command line for one field of ``AnalysisRequest``."""

    flag: str
    field: str
    metavar: str
    help: str
    required: bool = False
    default: str | None = None


_CATALOGUE_GPU = Flag("--gpu", "gpu", "NAME", "a GPU that `devices` lists", required=True)
_BATCH_SIZE = Flag("--batch-size", "current_batch_size", "N", "samples per step", required=True)
_MEMORY_LIMIT = Flag(
    "--memory-limit",
    "memory_limit_bytes",
    "SIZE",
    "use no more memory than this: 8GiB, 500MiB, 16GB or plain bytes",
)
_WORKLOAD = (
    Flag("--precision", "precision", "NAME", f"{', '.join(Precision)}; default fp32"),
    Flag("--optimizer", "optimizer", "NAME", f"{', '.join(Optimizer)}; default adamw"),
    Flag("--mode", "mode", "NAME", f"{', '.join(Mode)}; default train"),
    Flag("--sequence-length", "sequence_length", "TOKENS", "tokens per sample of a text model"),
    Flag("--image-size", "image_size", "PIXELS", "pixels per side of an image"),
)
_ANALYZE = (
    replace(
        _CATALOGUE_GPU,
        help=f"a GPU that `devices` lists; default {LOCAL}: measure here",
        required=False,
        default=LOCAL,
    ),
    Flag("--current-batch-size", "current_batch_size", "N", "what you use now; default 16"),
    *_WORKLOAD,
    Flag("--batch-multiple", "batch_multiple", "N", "only try multiples of N; default 1"),
    _MEMORY_LIMIT,
    Flag("--hours-per-run", "hours_per_run", "HOURS", "GPU-hours of one run now; default 8"),
    Flag("--runs-per-year", "runs_per_year", "N", "such runs in a year; default 100"),
    Flag("--price-per-hour", "price_per_hour_usd", "USD", "of a GPU-hour; default: catalogue's"),
)
_PREDICT = (_BATCH_SIZE, _CATALOGUE_GPU, *_WORKLOAD, _MEMORY_LIMIT)
_VALIDATE_BACKWARD = (
    replace(_BATCH_SIZE, required=False, help="samples per step; default 16"),
    replace(
        _CATALOGUE_GPU,
        help=f"a GPU that `devices` lists, or {LOCAL}; default {_PUBLISHED_GPU}",
        required=False,
        default=_PUBLISHED_GPU,
    ),
    *_WORKLOAD,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: Those of the process unless given.

    Returns:
        The exit status.

    Raises:
        SystemExit: After ``--help`` (0) and for an unknown command or flag (2).
    """
    try:
        try:
            return _run_command(_parser().parse_args(arguments))
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has enough. Python flushes stdout once more at its end, which
        # must not fail then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def bytes_of(size: str) -> int | str:
    """The bytes a person means by ``8GiB``, ``500 MiB`` or ``16GB``.

    Args:
        size: A number with a unit (powers of 1024 with an ``i``, of 1000 without), or a plain
            number, which is handed through for the engine to check.

    Raises:
        InvalidInput: It is neither.
    """
    if re.fullmatch(r"-?[0-9]*", size):
        return size
    match = _SIZE.fullmatch(size.strip())
    if match is None:
        message = f"{shown(size)} is not a size; write 8GiB, 500MiB, 16GB or bytes"
        raise InvalidInput({"memory_limit_bytes": message})
    unit = match["unit"].lower()
    base = 1024 if "i" in unit else 1000
    return int(Decimal(match["number"]) * base ** _POWERS.index(unit[0]))


def _run_command(options: argparse.Namespace) -> int:
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except InvalidInput as error:
        for field, message in error.fields.items():
            name = options.names.get(field, field)
            sys.stderr.write(f"error: {name}: {_one_line(message)}\n")
        return BAD_INPUT
    except EngineError as error:
        sys.stderr.write(f"error: {_one_line(str(error))}\n")
        return FAILED


def _analyze(options: argparse.Namespace) -> int:
    request = _request(options)
    with progress() as emit:
        _quieten_transformers()
        from engine.analyze import analyze  # loads torch

        result = analyze(request, emit)
    _answer(options, result.to_dict(), lambda: render_analysis(result))
    return OK


def _predict(options: argparse.Namespace) -> int:
    request = _request(options)
    if request.gpu == LOCAL:
        raise InvalidInput(
            {"gpu": f"{LOCAL} is measured, not predicted; choose one of {', '.join(GPUS)}"}
        )
    with progress() as emit:
        _quieten_transformers()
        from engine.predicted import predict_batch  # loads torch

        trial = predict_batch(request, emit)
    gpu = _facts(request)
    _answer(options, asdict(trial), lambda: render_trial(trial, request.workload, gpu))
    return OK


def _validate_backward(options: argparse.Namespace) -> int:
    request = _request(options)
    with progress():
        _quieten_transformers()
        from engine.validate import validate_backward  # loads torch

        check = validate_backward(request.workload, request.current_batch_size, request.gpu)
    where = "this machine" if request.gpu == LOCAL else GPUS[request.gpu].display_name
    _answer(options, asdict(check), lambda: render_backward(check, request.workload, where))
    return OK if check.passed else FAILED


def _models(options: argparse.Namespace) -> int:
    presets = list(PRESETS.values())
    _answer(options, [asdict(preset) for preset in presets], lambda: render_models(presets))
    return OK


def _devices(options: argparse.Namespace) -> int:
    gpus = list(GPUS.values())
    listed = [asdict(gpu) | {"usable_bytes": gpu.usable_bytes} for gpu in gpus]
    _answer(options, listed, lambda: render_devices(gpus))
    return OK


def _run(options: argparse.Namespace) -> int:
    from engine.run import run

    return run(sys.stdin, sys.stdout)


def _request(options: argparse.Namespace) -> AnalysisRequest:
    """The request that the flags of a command make; only the engine checks their values."""
    given: dict[str, object] = {name: getattr(options, name) for name in options.names}
    if limit := given.get("memory_limit_bytes"):
        given["memory_limit_bytes"] = bytes_of(str(limit))
    return AnalysisRequest.parse(given)


def _facts(request: AnalysisRequest) -> GpuFacts:
    """The GPU of a request, with less memory if the request says so."""
    gpu = GPUS[request.gpu]
    total = min(gpu.total_bytes, request.memory_limit_bytes or gpu.total_bytes)
    return GpuFacts(gpu.display_name, total, total - gpu.context_bytes)


def _quieten_transformers() -> None:
    # Its advice to users of its models (such as "loss_type=None was set") is about choices that the
    # presets make. Set by environment, it also holds in the processes that run measured trials.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def _answer(
    options: argparse.Namespace, plain: object, rendered: Callable[[], RenderableType]
) -> None:
    if options.json:
        sys.stdout.write(json.dumps(plain, indent=2) + "\n")
    else:
        Console(highlight=False, markup=False, emoji=False).print(rendered())


def _one_line(message: str) -> str:
    return " ".join(message.split())


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in the same words as the engine does, with a short usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.format_usage()}error: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m engine",
        usage="python -m engine COMMAND [options]",
        description="Finds the batch size to train a model with, and what it is worth.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, prog=parser.prog
    )
    _add(commands, "analyze", _analyze, "find the largest and the recommended batch", _ANALYZE)
    _add(commands, "predict", _predict, "predict memory and time of one batch size", _PREDICT)
    _add(commands, "models", _models, "list the models")
    _add(commands, "devices", _devices, "list the GPUs of the catalogue")
    validate = commands.add_parser("validate", help="check that what must hold does")
    validate.usage = f"{validate.prog} CHECK [options]"
    checks = validate.add_subparsers(
        title="checks", metavar="CHECK", required=True, prog=validate.prog
    )
    about = "forward and backward must take clearly more memory than forward only"
    _add(checks, "backward", _validate_backward, about, _VALIDATE_BACKWARD)
    run = commands.add_parser("run", help="answer one request by JSON lines, for programs")
    run.set_defaults(command=_run, names={})
    return parser


def _add(
    commands: Any,
    name: str,
    command: Callable[[argparse.Namespace], int],
    about: str,
    flags: Sequence[Flag] = (),
) -> None:
    """Add a command; one with flags asks a question, so it also takes a model."""
    model = " MODEL" if flags else ""
    needed = "".join(f" {flag.flag} {flag.metavar}" for flag in flags if flag.required)
    parser = commands.add_parser(
        name,
        help=about,
        description=f"{about[0].upper()}{about[1:]}.",
        allow_abbrev=False,
    )
    parser.usage = f"{parser.prog}{model}{needed} [options]"
    if flags:
        parser.add_argument("model", metavar="MODEL", help=", ".join(PRESETS))
    for flag in flags:
        parser.add_argument(
            flag.flag,
            dest=flag.field,
            metavar=flag.metavar,
            help=flag.help,
            required=flag.required,
            default=flag.default,
        )
    parser.add_argument("--json", action="store_true", help="answer in JSON")
    names = {flag.field: flag.flag for flag in flags}
    parser.set_defaults(command=command, names=names | {"model": "model"} if flags else {})
