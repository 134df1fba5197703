"""The command line: ``memorymark``.

Answers go to stdout, as tables or with ``--json`` as JSON; progress and errors go to stderr. The
exit status is 0 for an answer, 2 for bad input, 1 for any other failure (including a check that did
not pass), 130 after Ctrl-C.

Torch and transformers take seconds to load, so whatever needs them is imported inside the commands:
lists, help and error messages appear at once. So is rich, since ``push``, ``--help`` and
``--version`` work without the extra ``engine``.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from .. import __version__
from ..core.errors import EngineError, InvalidInput, needing_the_engine
from ..core.fields import Group
from ..core.process import collect_rarely
from ..gpus.checked import SECONDS
from ..recipes import InvalidRecipe, any_framework
from ..versions.releases import check_releases, described, naming_untested
from . import commands, text_commands, validate
from .check import add_check_command
from .compare import COMPARE, add_software_flag, compare
from .exports import add_export_flags, add_measured_export_flags
from .flags import (
    ANALYZE,
    BATCH_SIZE,
    MEASURE,
    MEMORY_LIMIT,
    PLAN,
    PREDICT,
    VALIDATE_BACKWARD,
    VALIDATE_COMPILE,
    Flag,
)
from .importing import add_import_command, import_jobs
from .pushing import add_name_flag, add_push_flag
from .pushing import push as push_all
from .recipe import add_recipe_flags
from .recorded import add_recorded_flag
from .sample import FLAGS, add_sample_command, add_sample_flags
from .selfcheck import ABOUT, selfcheck
from .site import site
from .terminal import FAILED, OK

BAD_INPUT, INTERRUPTED = 2, 130
_BATCH_FLAG = commands.OTHER_FLAGS["batch_flag"]
_WITHOUT_TORCH = (
    commands.models,
    commands.devices,
    push_all,
    import_jobs,
    commands.run,
    compare,
)
"""Commands that answer beside any release of torch; ``run`` refuses one in its own way."""

__all__ = ["BAD_INPUT", "FAILED", "INTERRUPTED", "OK", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The process's own unless given.

    Returns:
        The exit status.

    Raises:
        SystemExit: After ``--help`` (0) and for an unknown command or flag (2).
    """
    collect_rarely()
    try:
        try:
            return _run_command(_parsed(sys.argv[1:] if arguments is None else arguments))
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has enough. Python flushes stdout once more when it ends, and
        # that must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command; what comes after ``--`` belongs to the user's script."""
    if arguments[:1] == ["site"]:
        return argparse.Namespace(command=lambda _options: site(arguments[1:]), names={})
    ours, dashes, scripts = list(arguments), "--", []
    if dashes in ours:
        at = ours.index(dashes)
        ours, scripts = ours[:at], ours[at + 1 :]
    for index, word in enumerate(ours[:-1]):
        if word == _BATCH_FLAG and ours[index + 1].startswith("-"):  # argparse takes no such value
            ours[index : index + 2] = [f"{word}={ours[index + 1]}"]
            break
    parser = _parser()
    options = parser.parse_args(ours)
    options.script_arguments, options.words = scripts, ours[1:]
    if scripts and not hasattr(options, "batch_flag"):
        parser.error("-- and what follows belong to a SCRIPT.py, which this command does not take")
    return options


def _run_command(options: argparse.Namespace) -> int:
    # transformers gives advice (such as "loss_type=None was set") about choices that the presets
    # make. An environment variable also silences it in the processes that run measured trials.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # bitsandbytes, which peft loads, misses kernels for the CPU on which nothing of it runs here.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        if command not in _WITHOUT_TORCH:
            check_releases()
        with naming_untested(), needing_the_engine():
            return command(options)
    except InvalidInput as error:
        for name, message in _named(error, options):
            sys.stderr.write(f"error: {name}: {_one_line(message)}\n")
        return BAD_INPUT
    except EngineError as error:
        sys.stderr.write(f"error: {_one_line(str(error))}\n")
        return FAILED


def _named(error: InvalidInput, options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """The messages of an error, each with its flag, or with the key of the recipe that is wrong."""
    recipe = getattr(options, "recipe", None)
    names = FLAGS | commands.OTHER_FLAGS | options.names
    if isinstance(error, InvalidRecipe):  # by its keys, which may have names of fields
        recipe, names = None, commands.OTHER_FLAGS
    for field, message in error.fields.items():
        at = None if recipe is None else recipe.at(field, message)
        yield at or (names.get(field, field), message)


def _one_line(message: str) -> str:
    return " ".join(message.split())


class _ShowVersions(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        sys.stdout.write(f"{described(__version__)}\n")
        parser.exit(OK)


class _Parser(argparse.ArgumentParser):
    """Formats its errors like the engine's, with a short usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.format_usage()}error: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="memorymark",
        usage="memorymark COMMAND [options]",
        description="Finds the batch size to train a model with, and how much it saves.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_ShowVersions, nargs=0, help="show what runs here")
    group = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, prog=parser.prog
    )
    about = "find the largest and the recommended batch"
    analyze = _add(group, "analyze", commands.analyze, about, ANALYZE, model="[MODEL]")
    commands.add_script_flags(analyze)
    add_recipe_flags(analyze)
    add_sample_flags(analyze)
    add_recorded_flag(analyze)
    add_push_flag(analyze)
    add_name_flag(analyze)
    about = "predict memory and time of one batch size"
    predict = _add(group, "predict", commands.predict, about, PREDICT, model="[MODEL]")
    commands.add_script_flags(predict)
    add_recipe_flags(predict)
    add_sample_flags(predict)
    add_recorded_flag(predict)
    add_export_flags(predict)
    about = "measure one batch size on this machine"
    measure = _add(group, "measure", commands.measure, about, MEASURE, model="[MODEL]")
    commands.add_script_flags(measure)
    add_recipe_flags(measure)
    add_measured_export_flags(measure)
    add_sample_command(group)
    about = "compare all GPUs for a model, and changes to it, or for your script"
    plan = _add(group, "plan", commands.plan, about, PLAN, model="[MODEL]")
    commands.add_script_flags(plan)
    add_recipe_flags(plan)
    add_recorded_flag(plan)
    add_push_flag(plan)
    add_name_flag(plan)
    about = "find what a release of transformers or torch changes in a step, part by part"
    compared = _add(group, "compare", compare, about, COMPARE, model="[MODEL]")
    commands.add_script_flags(compared)
    add_recipe_flags(compared)
    add_sample_flags(compared)
    add_software_flag(compared)
    about = "how many texts can be generated at once, and how long, and what takes the memory"
    generate = _add(group, "generate", text_commands.generate, about, text_commands.GENERATE)
    add_push_flag(generate)
    about = "find the longest sequence that fits in training"
    longest = _add(group, "longest", text_commands.longest, about, text_commands.LONGEST)
    add_push_flag(longest)
    add_check_command(group)
    listing = _add(group, "models", commands.models, "list the models")
    listing.add_argument(
        "part", metavar="PART", nargs="?", help="only those with it in their names, of timm too"
    )
    listing.add_argument(
        "--all", action="store_true", help="list the model types and tasks that a config may have"
    )
    _add(group, "devices", commands.devices, "list the catalogue GPUs")
    _add(group, "selfcheck", selfcheck, f"check this machine within {SECONDS:.0f} s: {ABOUT}")
    _add_validate(group)
    about = "send the lab recorded training runs, and what `--push` could not send"
    push = group.add_parser("push", help=about, description=f"{about}.", allow_abbrev=False)
    push.add_argument(
        "files",
        metavar="FILE",
        nargs="*",
        type=Path,
        help="training runs that memorymark.recording wrote, such as training_runs.jsonl",
    )
    push.add_argument(
        "--analysis",
        metavar="NUMBER",
        type=int,
        help="the analysis that runs in FILE belong to, if they name none",
    )
    push.add_argument(
        "--readdress",
        metavar="ADDRESS",
        help="first address what is for this former address of the site to the one it has now",
    )
    push.set_defaults(command=push_all, names={"recorded": "FILE"})
    add_import_command(group)
    group.add_parser("site", help="start the web site, or run one of its commands")
    run = group.add_parser("run", help="answer one request as JSON lines, for programs")
    run.add_argument(
        "--keep-traces",
        action="store_true",
        help="keep the traces of the last workload: faster for several GPUs in turn",
    )
    run.set_defaults(command=commands.run, names={})
    return parser


def _add_validate(group: Any) -> None:
    parser = group.add_parser("validate", help="check the engine against real steps")
    parser.usage = f"{parser.prog} CHECK [options]"
    checks = parser.add_subparsers(title="checks", metavar="CHECK", required=True, prog=parser.prog)
    about = "forward and backward must use clearly more memory than forward only"
    _add(checks, "backward", validate.backward, about, VALIDATE_BACKWARD)
    about = "cost and benefit of torch.compile, measured on this machine"
    _add(checks, "compile", validate.compiling, about, VALIDATE_COMPILE)
    about = "compare predictions with measurements, known ones or new ones"
    prediction = _add(checks, "prediction", validate.prediction, about, (MEMORY_LIMIT,), model="")
    validate.add_prediction_flags(prediction)
    prediction.usage = f"{prediction.prog} [MODEL ...] [options]"
    prediction.set_defaults(names={"gpu": "--gpu", MEMORY_LIMIT.field: MEMORY_LIMIT.flag})


def _add(
    group: Any,
    name: str,
    command: Callable[[argparse.Namespace], int],
    about: str,
    flags: Sequence[Flag] = (),
    model: str = "MODEL",
) -> argparse.ArgumentParser:
    """Add a command. One with flags describes a request, so it also takes a model.

    Args:
        group: The parser's commands, or the checks of ``validate``.
        name: The command's.
        command: Runs it.
        about: Its help.
        flags: For fields of a request.
        model: ``MODEL`` if required, ``[MODEL]`` if optional, empty if the command takes none.
    """
    words = [model] if flags and model else []
    words += [f"{flag.flag} {flag.metavar}" for flag in flags if flag.required]
    parser: argparse.ArgumentParser = group.add_parser(
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
        about = "one that `models` lists, org/name on the Hugging Face Hub, or your config.json"
        if nargs:
            about += ", your own SCRIPT.py, its arguments after --, or a RECIPE.yaml of "
            about += any_framework()
        parser.add_argument("model", metavar="MODEL", nargs=nargs, help=about)
    sections = {
        section: parser.add_argument_group(section.label)
        for section in Group
        if any(flag.group is section for flag in flags)
    }
    for flag in flags:
        sections[flag.group].add_argument(
            flag.flag,
            dest=flag.field,
            metavar=flag.metavar,
            help=flag.help.replace("%", "%%"),  # argparse fills in what follows a %
            required=flag.required and not (flag is BATCH_SIZE and model.startswith("[")),
            default=flag.default,
            nargs="?" if flag.bare else None,
            const=flag.bare,
        )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=command, names=names, needs_batch_size=BATCH_SIZE in flags)
    return parser
