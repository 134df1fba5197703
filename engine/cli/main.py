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
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console, RenderableType

from engine.cli.check import add_check_command, answer_check
from engine.cli.flags import (
    ANALYZE,
    MEASURE,
    MEMORY_LIMIT,
    PLAN,
    PREDICT,
    VALIDATE_BACKWARD,
    VALIDATE_COMPILE,
    Flag,
)
from engine.cli.own import add_factory_flag, analyze_own, measure_own, predict_own
from engine.cli.progress import progress
from engine.cli.push import add_push_flag, push_analysis, push_what_waits
from engine.cli.render import render_analysis, render_trial
from engine.cli.render_lists import render_devices, render_models
from engine.cli.render_plan import render_plan
from engine.cli.sample import FLAGS, add_sample_command, add_sample_flags, size_by_sample
from engine.cli.validate import (
    add_prediction_flags,
    answer_backward,
    answer_compile,
    answer_prediction,
)
from engine.client import Lab
from engine.errors import EngineError, InvalidInput
from engine.gpus import GPUS, LOCAL
from engine.models.config import read_config_file
from engine.models.presets import PRESETS
from engine.request import AnalysisRequest

_OTHER_FLAGS = {"factory": "--factory", "push": "--push"}
OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


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


def _run_command(options: argparse.Namespace) -> int:
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except InvalidInput as error:
        for field, message in error.fields.items():
            name = (FLAGS | _OTHER_FLAGS | options.names).get(field, field)
            sys.stderr.write(f"error: {name}: {_one_line(message)}\n")
        return BAD_INPUT
    except EngineError as error:
        sys.stderr.write(f"error: {_one_line(str(error))}\n")
        return FAILED


def _analyze(options: argparse.Namespace) -> int:
    if _names_own_code(options):
        if options.push:
            raise InvalidInput({"push": "the lab keeps models that it knows, not your own code"})
        return analyze_own(options.factory, _given_to_own_code(options), partial(_answer, options))
    request = _request(options)
    lab = Lab() if options.push else None  # a token that is missing is told before all the work
    started_at = datetime.now(UTC)
    with progress() as emit:
        _quieten_transformers()
        from engine.analysis import analyze  # loads torch

        result = analyze(request, emit)
    _answer(options, result.to_dict(), lambda: render_analysis(result))
    if lab and not push_analysis(lab, request, result, _given(options), started_at):
        return FAILED
    return OK


def _push(options: argparse.Namespace) -> int:
    return OK if push_what_waits() else FAILED


def _predict(options: argparse.Namespace) -> int:
    if options.gpu == LOCAL:
        raise InvalidInput(
            {"gpu": f"{LOCAL} is measured, not predicted; choose one of {', '.join(GPUS)}"}
        )
    if _names_own_code(options):
        return predict_own(options.factory, _given_to_own_code(options), partial(_answer, options))
    request = _request(options)
    with progress() as emit:
        _quieten_transformers()
        from engine.prediction.analysis import predict_batch  # loads torch

        gpu, trial = predict_batch(request, emit)
    _answer(options, asdict(trial), lambda: render_trial(trial, request.workload, gpu))
    return OK


def _measure(options: argparse.Namespace) -> int:
    if _names_own_code(options):
        return measure_own(options.factory, _given_to_own_code(options), partial(_answer, options))
    _quieten_transformers()
    request = AnalysisRequest.parse(_given(options) | {"gpu": LOCAL})
    with progress() as emit:
        from engine.measurement.analysis import measure_batch  # loads torch

        gpu, trial, ran_on = measure_batch(request, emit)
    plain = asdict(trial) | {"measured_on": ran_on and asdict(ran_on)}
    _answer(options, plain, lambda: render_trial(trial, request.workload, gpu, ran_on))
    return OK


def _plan(options: argparse.Namespace) -> int:
    request = _request(options)
    with progress() as emit:
        _quieten_transformers()
        from engine.advice.plan import plan  # loads torch

        made = plan(request, emit)
    _answer(options, made.to_dict(), lambda: render_plan(made))
    return OK if made.cheapest is not None else FAILED


def _check(options: argparse.Namespace) -> int:
    _quieten_transformers()
    return OK if answer_check(options) else FAILED


def _validate_backward(options: argparse.Namespace) -> int:
    _quieten_transformers()
    return OK if answer_backward(_request(options), partial(_answer, options)) else FAILED


def _validate_compile(options: argparse.Namespace) -> int:
    _quieten_transformers()
    request = AnalysisRequest.parse(_given(options) | {"gpu": LOCAL})
    return OK if answer_compile(request, partial(_answer, options)) else FAILED


def _validate_prediction(options: argparse.Namespace) -> int:
    _quieten_transformers()
    show = partial(_answer, options)
    passed = answer_prediction(options.models, options.write, _given(options), show)
    return OK if passed else FAILED


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

    return run(sys.stdin, sys.stdout, keep_traces=options.keep_traces)


def _request(options: argparse.Namespace) -> AnalysisRequest:
    """The request that the flags of a command make; only the engine checks their values."""
    given = _given(options)
    request = AnalysisRequest.parse(given)
    sized = size_by_sample(options, request.workload.preset, given)
    return AnalysisRequest.parse(given | sized) if sized else request


def _given(options: argparse.Namespace) -> dict[str, object]:
    given: dict[str, object] = {name: getattr(options, name) for name in options.names}
    if path := given.get("config"):
        given["config"] = read_config_file(Path(str(path)))
    return given


def _names_own_code(options: argparse.Namespace) -> bool:
    """Whether a person's own code is asked about; nothing to ask about is a usage error."""
    if options.model is None and options.factory is None:
        options.usage_error("the following arguments are required: MODEL or --factory")
    return options.factory is not None


def _given_to_own_code(options: argparse.Namespace) -> dict[str, object]:
    """Every flag, so that those which a factory's code answers for itself can be refused."""
    _quieten_transformers()
    return _given(options) | {name: getattr(options, name, None) for name in FLAGS}


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
    about = "find the largest and the recommended batch"
    analyze = _add(commands, "analyze", _analyze, about, ANALYZE, model="[MODEL]")
    add_factory_flag(analyze)
    add_sample_flags(analyze)
    add_push_flag(analyze)
    about = "predict memory and time of one batch size"
    predict = _add(commands, "predict", _predict, about, PREDICT, model="[MODEL]")
    add_factory_flag(predict)
    add_sample_flags(predict)
    about = "measure one batch size on this machine"
    measure = _add(commands, "measure", _measure, about, MEASURE, model="[MODEL]")
    add_factory_flag(measure)
    add_sample_command(commands, _answer)
    _add(commands, "plan", _plan, "compare all GPUs for a model, and changes to it", PLAN)
    add_check_command(commands, _check)
    _add(commands, "models", _models, "list the models")
    _add(commands, "devices", _devices, "list the GPUs of the catalogue")
    _add_checks(commands)
    about = "send to the lab what `analyze --push` could not"
    push = commands.add_parser("push", help=about, description=f"{about}.", allow_abbrev=False)
    push.set_defaults(command=_push, names={})
    run = commands.add_parser("run", help="answer one request by JSON lines, for programs")
    run.add_argument(
        "--keep-traces",
        action="store_true",
        help="keep the traces of the last workload: quicker where several GPUs are asked in turn",
    )
    run.set_defaults(command=_run, names={})
    return parser


def _add_checks(commands: Any) -> None:
    """Add ``validate`` with a command for each check."""
    validate = commands.add_parser("validate", help="check that what must hold does")
    validate.usage = f"{validate.prog} CHECK [options]"
    checks = validate.add_subparsers(
        title="checks", metavar="CHECK", required=True, prog=validate.prog
    )
    about = "forward and backward must take clearly more memory than forward only"
    _add(checks, "backward", _validate_backward, about, VALIDATE_BACKWARD)
    about = "what torch.compile costs and gives, measured on this machine"
    _add(checks, "compile", _validate_compile, about, VALIDATE_COMPILE)
    about = "hold predictions against measurements, known ones or new ones"
    prediction = _add(checks, "prediction", _validate_prediction, about, (MEMORY_LIMIT,), model="")
    add_prediction_flags(prediction)
    prediction.usage = f"{prediction.prog} [MODEL ...] [options]"
    prediction.set_defaults(names={"gpu": "--gpu", MEMORY_LIMIT.field: MEMORY_LIMIT.flag})


def _add(
    commands: Any,
    name: str,
    command: Callable[[argparse.Namespace], int],
    about: str,
    flags: Sequence[Flag] = (),
    model: str = "MODEL",
) -> argparse.ArgumentParser:
    """Add a command; one with flags asks a question, so it also takes a model.

    Args:
        commands: Of the parser, or of one of its commands.
        name: Of the command.
        command: What it does.
        about: The same in words.
        flags: Those for fields of a request.
        model: ``MODEL`` if one must be named, ``[MODEL]`` if it may, empty if it cannot.
    """
    words = [model] if flags and model else []
    words += [f"{flag.flag} {flag.metavar}" for flag in flags if flag.required]
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=f"{about[0].upper()}{about[1:]}.",
        allow_abbrev=False,
    )
    parser.usage = " ".join([parser.prog, *words, "[options]"])
    names = {flag.field: flag.flag for flag in flags}
    if flags and model:
        names["model"] = "model"
        nargs = "?" if model.startswith("[") else None
        parser.add_argument(
            "model",
            metavar="MODEL",
            nargs=nargs,
            help=f"{', '.join(PRESETS)}, or org/name of the hub",
        )
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
    parser.set_defaults(command=command, names=names)
    return parser
