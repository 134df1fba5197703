"""The commands: each takes the parsed options and returns the exit status.

What loads torch or rich is imported inside, for the reason that :mod:`engine.cli.main` gives.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from ..core.fields import NONE
from ..features.length_distribution import FIELD, Lengths, read_lengths
from ..gpus import GPUS, HOW_TO_LIST, LOCAL
from ..gpus.known import own_check
from ..interface.batch_trials import BatchTrials
from ..interface.defaults import defaults_taken
from ..interface.request import FIELDS, AnalysisRequest
from ..interface.tokens import tokens_of, tokens_per_second
from ..interface.trial import Trial
from ..interface.workload import Workload
from ..models.architectures import ARCHITECTURES
from ..models.config_text import read_config_file
from ..models.presets import PRESETS, named
from ..recipes.launch import LAUNCH
from ..script.factory import Factory
from ..script.program import SUFFIX, Program
from ..script.request import Script, ScriptRequest
from ..versions import software
from .exports import FLAGS as EXPORT_FLAGS
from .exports import Exports, measured_files
from .pushing import Pushing
from .recipe import FLAGS as RECIPE_FLAGS
from .recipe import (
    launch_script,
    names_recipe,
    recipe_of,
    refuse_beside_a_model,
    request_from,
    told,
)
from .recorded import FLAG as RECORDED
from .recorded import recorded_of
from .sample import FLAGS, size_by_sample
from .terminal import FAILED, OK, answer, progress

OTHER_FLAGS = {
    "factory": "--factory",
    "batch_flag": "--batch-flag",
    "batch_env": "--batch-env",
    "push": "--push",
    "name": "--name",
    "project": "--project",
    "recorded": RECORDED,
    "analysis_id": "--analysis",
    **RECIPE_FLAGS,
    **EXPORT_FLAGS,
}
"""Flags that are not fields of a request, for messages."""


def analyze(options: argparse.Namespace) -> int:
    from .render import render_analysis

    if (script := _script_request(options)) is not None:
        return _analyze_script(options, script)
    if options.name:
        raise InvalidInput({"name": "it names a script in the lab; a model has a name"})
    request, taken = request_and_defaults(options)
    recorded = recorded_of(options, request)
    pushing = Pushing.of(options, given_fields(options))
    with progress() as emit:
        from ..analysis import analyze  # loads torch

        result = analyze(request, emit, recorded=recorded)
    result = replace(result, caveats=[*taken, *result.caveats])
    plain = result.to_dict() | _tokens(result.workload) | told(options.recipe)
    answer(options, plain, lambda: render_analysis(result))
    return OK if pushing is None or pushing.send(request, result) else FAILED


def _analyze_script(options: argparse.Namespace, script: ScriptRequest) -> int:
    from .render import render_analysis

    name = Pushing.name_of(options, script)
    pushing = Pushing.of(options, given_fields(options))
    with progress() as emit:
        from ..script_analysis import analyze_script  # loads torch

        hide_gpus_from(script)
        result = analyze_script(script, emit, recorded_of(options, script))
    result = replace(result, caveats=[*options.launch, *result.caveats])
    answer(options, result.to_dict(), lambda: render_analysis(result))
    if pushing is None:
        return OK
    return OK if pushing.send(script.for_lab(result, name), result) else FAILED


def predict(options: argparse.Namespace) -> int:
    from .render import render_trial

    if options.gpu == LOCAL:
        options.gpu = _checked_gpu()
    if (script := _script_request(options)) is not None:
        return _predict_script(options, script)
    request, taken = request_and_defaults(options)
    recorded, exports = recorded_of(options, request), Exports.of(options, request)
    with progress() as emit:
        from ..prediction.one_batch import predict_batch  # loads torch
        from ..prediction.timing.correction import Experience

        made = predict_batch(request, emit, experience=Experience.here(recorded=recorded))
        phases, caveats = made.phases, [*taken, *made.caveats]
        exports.write(made.step, made.predicted_on)
    used, workload, trial = request.workload.versions_here, request.workload, made.trial
    plain = asdict(trial) | _token_speed(workload, trial) | {"software": used, "caveats": caveats}
    plain |= {"phases": [asdict(phase) for phase in phases]} | told(options.recipe)
    answer(
        options,
        plain,
        lambda: render_trial(
            trial, workload, made.gpu, software=used, caveats=caveats, phases=phases
        ),
    )
    return OK


def _checked_gpu() -> str:
    """The catalogue's name of this machine's GPU, which a self-check has measured.

    Raises:
        InvalidInput: If none has, or the catalogue lacks the GPU.
    """
    check = own_check()
    if check is None or not check.gpu_name:
        wanted = (
            f"{LOCAL} is measured, not predicted, until `memorymark selfcheck` has measured a "
            f"catalogue GPU here; choose another; {HOW_TO_LIST}"
        )
        raise InvalidInput({"gpu": wanted})
    return check.gpu_name


def _predict_script(options: argparse.Namespace, script: ScriptRequest) -> int:
    recorded, exports = recorded_of(options, script), Exports.of(options, script)
    with progress() as emit:
        from ..script_analysis import predict_script  # loads torch

        hide_gpus_from(script)
        predicted = predict_script(script, emit, recorded=recorded, seen=exports.write)
    predicted = replace(predicted, caveats=[*options.launch, *predicted.caveats])
    return _answer_trial(options, script, predicted)


def hide_gpus_from(script: ScriptRequest) -> None:
    """Let this process see no GPU where it only predicts: factories are traced in it."""
    from ..tracing.hidden_gpus import hide_gpus  # loads torch

    if script.gpu != LOCAL:
        hide_gpus()


def measure(options: argparse.Namespace) -> int:
    """Measure one batch size. The status is 0 whether it fits or not: either is an answer."""
    from .render import render_trial

    if (script := _script_request(options)) is not None:
        return _measure_script(options, script)
    given = given_fields(options) | {"gpu": LOCAL}
    request, files = request_from(options.recipe, given), measured_files(options)
    with progress() as emit:
        from ..measurement.measured_analysis import measure_batch  # loads torch

        gpu, trial, ran_on = measure_batch(request, emit, files)
    workload = request.workload
    plain = asdict(trial) | _token_speed(workload, trial) | {"workload": workload.to_dict()}
    plain |= {"measured_on": ran_on and asdict(ran_on)} | told(options.recipe)
    answer(options, plain, lambda: render_trial(trial, workload, gpu, ran_on))
    return OK


def _measure_script(options: argparse.Namespace, script: ScriptRequest) -> int:
    files = measured_files(options)
    with progress() as emit:
        from ..measurement.measured_script import measure_script_batch  # loads torch

        measured = measure_script_batch(script, emit, files)
    return _answer_trial(options, script, measured)


def _answer_trial(options: argparse.Namespace, script: ScriptRequest, found: BatchTrials) -> int:
    from .render import render_trial

    (trial,), name = found.trials, script.script.name
    phases, used, caveats = found.phases, found.software, found.caveats
    plain = asdict(trial) | {"caveats": caveats, "software": used}
    plain |= {"phases": [asdict(phase) for phase in phases]}
    answer(
        options,
        plain,
        lambda: render_trial(trial, name, found.gpu, software=used, caveats=caveats, phases=phases),
    )
    return OK


def plan(options: argparse.Namespace) -> int:
    from .plan import render_plan

    if (script := _script_request(options)) is not None:
        return _plan_script(options, script)
    if options.push:
        raise InvalidInput({"push": "the lab plans models itself; push an analysis of this one"})
    with progress() as emit:
        from ..prediction.plans.plan import plan  # loads torch
        from ..prediction.timing.correction import Experience

        request, taken = request_and_defaults(options)
        experience = Experience.here(recorded=recorded_of(options, request))
        made = plan(request, emit, experience)
        made = replace(made, caveats=[*taken, *made.caveats])
    plain = made.to_dict() | _tokens(made.workload) | told(options.recipe)
    answer(options, plain, lambda: render_plan(made))
    return OK if made.cheapest is not None else FAILED


def _plan_script(options: argparse.Namespace, script: ScriptRequest) -> int:
    """Plan a script; pushed is its analysis on the GPU used today, with all others beside it."""
    from .plan import render_plan

    name = Pushing.name_of(options, script)
    pushing = Pushing.of(options, given_fields(options))
    if pushing and script.gpu not in GPUS:
        raise InvalidInput({"gpu": "to push the plan, name the GPU that you use today"})
    recorded = recorded_of(options, script)
    with progress() as emit:
        from ..script_analysis import analyze_script, plan_script  # loads torch

        hide_gpus_from(script)
        made = plan_script(script, emit, recorded)
        made = replace(made, caveats=[*options.launch, *made.caveats])
        result = analyze_script(script, emit, recorded) if pushing else None
    answer(options, made.to_dict() | _tokens(made.workload), lambda: render_plan(made))
    if pushing and result:
        result = replace(result, compared_gpus=made.offers)
        if not pushing.send(script.for_lab(result, name), result, made.ladder):
            return FAILED
    return OK if made.cheapest is not None else FAILED


def _tokens(workload: Workload | None) -> dict[str, int | None]:
    """Tokens of a sample, for a program to multiply speeds by."""
    counted = tokens_of(workload)
    return {"tokens_per_sample": counted.per_sample if counted else None}


def _token_speed(workload: Workload, trial: Trial) -> dict[str, float | None]:
    return {"tokens_per_second": tokens_per_second(workload, trial.samples_per_second)}


def models(options: argparse.Namespace) -> int:
    from .render_catalogue import render_architectures, render_models, render_types_named

    if options.all:
        listed = [
            {
                "model_type": name,
                "tasks": known.tasks,
                "refused": known.refused,
                "needs": known.needs,
            }
            for name, known in ARCHITECTURES.items()
        ]
        answer(options, listed, lambda: render_architectures(ARCHITECTURES))
        return OK
    found = named(options.part) if options.part else list(PRESETS.values())
    listed = [
        {name: value for name, value in asdict(one).items() if name != "given"} for one in found
    ]
    answer(
        options,
        listed,
        lambda: render_models(found) if found else render_types_named(options.part),
    )
    return OK


def devices(options: argparse.Namespace) -> int:
    from .render_catalogue import render_devices

    gpus = list(GPUS.values())
    listed = [asdict(gpu) | {"usable_bytes": gpu.usable_bytes} for gpu in gpus]
    answer(options, listed, lambda: render_devices(gpus))
    return OK


def run(options: argparse.Namespace) -> int:
    from ..run import run

    return run(sys.stdin, sys.stdout, keep_traces=options.keep_traces)


def request_of(options: argparse.Namespace) -> AnalysisRequest:
    """The request that a command's flags describe; only the engine checks their values."""
    return request_and_defaults(options)[0]


def request_and_defaults(options: argparse.Namespace) -> tuple[AnalysisRequest, list[str]]:
    """The request that a command's flags describe, and caveats about the defaults it takes."""
    given = given_fields(options)
    recipe = options.recipe
    request = request_from(recipe, given)
    sized, noted = size_by_sample(options, request.workload.preset, given)
    if sized:
        given |= sized
        request = request_from(recipe, given)
    read = recipe.caveats() if recipe is not None else []
    return request, [*noted, *read, *defaults_taken(given, request)]


_CONFIG_SUFFIX = ".json"


def given_fields(options: argparse.Namespace) -> dict[str, object]:
    """The fields of a request, as written on the command line and in the recipe that it names.

    The recipe itself is kept with the options, for the answer.
    """
    given = _written_fields(options)
    recipe = options.recipe = recipe_of(options, given)
    return given if recipe is None else recipe.under(given | {"model": None})


def _written_fields(options: argparse.Namespace) -> dict[str, object]:
    given: dict[str, object] = {name: getattr(options, name) for name in options.names}
    for name in [name for name in given if name in FIELDS and FIELDS[name].takes_none]:
        if given[name] is None:  # the flag was left out
            del given[name]
        elif given[name] == NONE:
            given[name] = None
    is_config = str(given.get("model")).endswith(_CONFIG_SUFFIX) and not names_recipe(options)
    if is_config and not given.get("config"):
        given |= {"model": None, "config": given["model"]}
    if path := given.get("config"):
        given["config"] = read_config_file(Path(str(path)))
    if (lengths := given.get(FIELD)) and "=" not in str(lengths):
        given[FIELD] = str(Lengths.of(read_lengths(Path(str(lengths)))))
    if "software" in given and given["software"] is None:
        project = software.of_project(Path.cwd(), os.environ)
        given["software"] = software.as_text(software.unlike(project, software.installed()))
    return given


def add_script_flags(parser: Any) -> None:
    """Add what names a script, which stands for a MODEL. Giving neither is a usage error."""
    about = "module:function that creates your own training steps, instead of a MODEL"
    parser.add_argument("--factory", metavar="NAME", help=about)
    about = "the flag of your script that sets its batch size; default: its DataLoader is found"
    parser.add_argument("--batch-flag", metavar="NAME", help=about)
    about = "the environment variable of your script that sets its batch size"
    parser.add_argument("--batch-env", metavar="NAME", help=about)
    parser.set_defaults(usage_error=parser.error)


def _script_request(options: argparse.Namespace) -> ScriptRequest | None:
    """The request for a script; ``None`` for one for a model.

    It gets every flag, to refuse those that the code decides.
    """
    script = script_of(options)
    if script is None:
        return None
    given = given_fields(options) | {name: getattr(options, name, None) for name in FLAGS}
    if given.get("current_batch_size", 1) is None:
        wanted = "a script has one; enter it, or leave this out"
        raise InvalidInput({"current_batch_size": wanted})
    if isinstance(script, Program):
        given["model"] = None
    return ScriptRequest.parse(script, given)


def script_of(options: argparse.Namespace) -> Script | None:
    """The script that a command names; ``None`` if it names a model."""
    if options.model is None and options.factory is None:
        options.usage_error("the following arguments are required: MODEL, SCRIPT.py or --factory")
    if options.factory is not None or options.model.endswith(SUFFIX):
        options.launch = launch_script(options)
    else:
        refuse_beside_a_model(options)
    if options.model is not None and options.model.endswith(SUFFIX):
        if options.factory is not None:
            options.usage_error("pass a script or --factory, not both")
        flags = options.batch_flag, options.batch_env, getattr(options, LAUNCH)
        return Program.of(options.model, options.script_arguments, *flags)
    says_batch = options.current_batch_size is not None or names_recipe(options)
    if options.needs_batch_size and not says_batch:
        options.usage_error("the following arguments are required: --batch-size")
    for name in ("batch_flag", "batch_env", "script_arguments"):
        if getattr(options, name):
            options.usage_error("--batch-flag, --batch-env and -- belong to a SCRIPT.py")
    return None if options.factory is None else factory(options.factory)


def factory(name: str) -> Factory:
    """The factory, looked for in this folder first, as ``python -m`` does."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    return Factory.of(name)
