"""The command ``check``: whether a workload, or a script, fits its GPU and is fast there."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..answer.check import KEYS, Limits, check, nothing_fits, read_description
from ..core.errors import DoesNotFit, InvalidInput
from ..events import Emit
from ..interface.request import AnalysisRequest
from ..interface.result import AnalysisResult
from ..script.program import Program
from ..script.request import Script, ScriptRequest
from .check_comment import FLAGS, Comment, add_comment_flags
from .commands import add_script_flags, factory, hide_gpus_from, script_of
from .flags import BATCH_SIZE
from .recipe import FLAGS as RECIPE_FLAGS
from .recipe import add_recipe_flags, recipe_of, told
from .terminal import FAILED, OK, progress

Asked = AnalysisRequest | ScriptRequest


def add_check_command(commands: Any) -> None:
    """Add ``check --config FILE`` and ``check SCRIPT.py``."""
    about = "check that a training run fits on a GPU and uses it well"
    parser = commands.add_parser(
        "check",
        help=about,
        description=f"{about[0].upper()}{about[1:]}. Exits with status 1 if not.",
        allow_abbrev=False,
    )
    parser.usage = f"{parser.prog} [SCRIPT.py | RECIPE.yaml | --config FILE] --gpu NAME [options]"
    parser.add_argument(
        "model",
        metavar="SCRIPT.py",
        nargs="?",
        help="your own script, its arguments after --, or a RECIPE.yaml of a framework",
    )
    about = "a TOML file that describes the training run; see docs/check.md"
    parser.add_argument("--config", dest="file", metavar="FILE", help=about)
    parser.add_argument(
        "--gpu", metavar="NAME", help="a GPU that `devices` lists; default: the file's"
    )
    about = "samples per step; default: those of the script's DataLoader, or of the recipe"
    parser.add_argument(
        BATCH_SIZE.flag, dest=BATCH_SIZE.field, metavar=BATCH_SIZE.metavar, help=about
    )
    about = "least speed, as a share of that at the recommended batch"
    parser.add_argument(
        "--min-share-of-recommended-speed", dest="share", metavar="SHARE", help=about
    )
    add_script_flags(parser)
    add_recipe_flags(parser)
    parser.add_argument(
        "--optimistic",
        action="store_true",
        help="use predicted memory as it is, not the high end of its interval",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_comment_flags(parser)
    names = KEYS | {"file": "--config", "gpu": "--gpu"} | FLAGS | RECIPE_FLAGS
    parser.set_defaults(command=_check, names=names, needs_batch_size=False)


def _check(options: argparse.Namespace) -> int:
    comment = Comment.of(options)
    request, limits = _of_script(options) if options.file is None else _of_file(options)
    with progress() as emit:
        request = _told(request, emit)
        try:
            checked = check(_analysed(request, emit), limits, optimistic=options.optimistic)
        except DoesNotFit as error:
            checked = nothing_fits(error, request.known_batch_size)
    comment.write(checked)
    # Not through rich: the verdict stays one line, however narrow the log of a pipeline is.
    recipe = getattr(options, "recipe", None)
    plain = checked.to_dict() | told(recipe)
    text = json.dumps(plain, indent=2) if options.json else checked.verdict
    sys.stdout.write(f"{text}\n")
    sentences = getattr(options, "launch", []) if recipe is None else recipe.caveats()
    if not options.json:
        sys.stderr.write("".join(f"{sentence}\n" for sentence in sentences))
    return OK if checked.passed else FAILED


def _of_script(options: argparse.Namespace) -> tuple[Asked, Limits]:
    """Request about a script, a factory or a recipe, from the command line."""
    if options.model is None and options.factory is None:
        options.usage_error("pass --config FILE, a SCRIPT.py, a RECIPE.yaml or --factory")
    script = script_of(options)
    said = {"gpu": options.gpu, BATCH_SIZE.field: options.current_batch_size}
    given = {name: value for name, value in said.items() if value is not None}
    if script is None and (recipe := recipe_of(options, given)) is not None:
        options.recipe = recipe
        return recipe.request(given), Limits(options.share)
    if script is None:
        raise InvalidInput(
            {"model": "this is no SCRIPT.py or RECIPE.yaml; describe a model in --config FILE"}
        )
    return ScriptRequest.parse(script, given), Limits(options.share)


def _of_file(options: argparse.Namespace) -> tuple[Asked, Limits]:
    """Request from a file, with the GPU of the command line if that sets one."""
    others = ("model", "factory", "batch_flag", "batch_env", "share", *RECIPE_FLAGS)
    others += (BATCH_SIZE.field,)
    if any(getattr(options, name) for name in others):
        options.usage_error("write into the file what is not about --gpu, --optimistic or --json")
    described = read_description(Path(options.file))
    given = dict(described.given) | ({"gpu": options.gpu} if options.gpu else {})
    if not described.script:
        return AnalysisRequest.parse(given), described.limits
    return ScriptRequest.parse(_described_script(described.script), given), described.limits


def _described_script(keys: Mapping[str, object]) -> Script:
    """The script that a file describes by these keys."""
    if "script" not in keys:
        return factory(str(keys.get("factory")))
    if "factory" in keys:
        raise InvalidInput({"factory": "pass a script or a factory, not both"})
    arguments = keys.get("arguments", [])
    if not isinstance(arguments, list):
        raise InvalidInput({"arguments": 'write a list, such as ["--lr", "1e-4"]'})
    flag, variable = (
        str(keys[name]) if name in keys else None for name in ("batch_flag", "batch_env")
    )
    return Program.of(str(keys["script"]), [str(word) for word in arguments], flag, variable)


def _told(request: Asked, emit: Emit) -> Asked:
    """The request with the batch size that a script's loaders have."""
    if not isinstance(request, ScriptRequest):
        return request
    from ..prediction.requested_gpu import catalogue_gpu  # loads torch
    from ..script.batch_sizes import told_by_loaders
    from ..tracing.lowering import behaviour_of

    return told_by_loaders(request, behaviour_of(catalogue_gpu(request)), emit)


def _analysed(request: Asked, emit: Emit) -> AnalysisResult:
    if isinstance(request, ScriptRequest):
        from ..script_analysis import analyze_script  # loads torch

        hide_gpus_from(request)
        return analyze_script(request, emit)
    from ..analysis import analyze  # loads torch

    return analyze(request, emit)
