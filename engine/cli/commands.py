"""The commands: each takes the parsed options and returns the exit status.

What loads torch or rich is imported inside, for the reason that :mod:`engine.cli.main` gives.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..client import Delivery, Lab
from ..client.outbox import training_document
from ..core.errors import InvalidInput
from ..core.fields import NONE
from ..features.length_distribution import FIELD, Lengths
from ..gpus import GPUS, HOW_TO_LIST, LOCAL
from ..gpus.checked import own_check
from ..interface.defaults import defaults_taken
from ..interface.program import ProgramRequest
from ..interface.request import FIELDS, AnalysisRequest
from ..interface.result import AnalysisResult, BatchTrials, Trial
from ..interface.texts import TextResult
from ..interface.tokens import tokens_of, tokens_per_second
from ..interface.workload import Workload
from ..models.architectures import ARCHITECTURES
from ..models.config import read_config_file
from ..models.presets import PRESETS, named
from ..records.reading import read_records
from ..script.factory import Factory
from ..script.program import SUFFIX, Program
from ..script.request import Script, ScriptRequest
from ..versions import software
from .recorded import FLAG as RECORDED
from .recorded import recorded_of
from .sample import FLAGS, size_by_sample
from .terminal import answer, progress

OK, FAILED = 0, 1
OTHER_FLAGS = {
    "factory": "--factory",
    "batch_flag": "--batch-flag",
    "batch_env": "--batch-env",
    "push": "--push",
    "name": "--name",
    "recorded": RECORDED,
    "analysis_id": "--analysis",
}
"""Flags that are not fields of a request, for messages."""

_SEND_AGAIN = "`memorymark push` sends it again"


def analyze(options: argparse.Namespace) -> int:
    from .render import render_analysis

    if (script := _script_request(options)) is not None:
        return _analyze_script(options, script)
    if options.name:
        raise InvalidInput({"name": "it names a script in the lab; a model has a name"})
    request, taken = request_and_defaults(options)
    recorded = recorded_of(options, request)
    pushing = Pushing.of(options)
    with progress() as emit:
        from ..analysis import analyze  # loads torch

        result = analyze(request, emit, recorded=recorded)
    result = replace(result, caveats=[*taken, *result.caveats])
    plain = result.to_dict() | _tokens(result.workload)
    answer(options, plain, lambda: render_analysis(result))
    return OK if pushing is None or pushing.send(request, result) else FAILED


def _analyze_script(options: argparse.Namespace, script: ScriptRequest) -> int:
    from .render import render_analysis

    if options.name and not options.push:
        raise InvalidInput({"name": "it names the script in the lab; add --push"})
    pushing = Pushing.of(options)
    name = script.lab_name(options.name or "") if pushing else ""
    with progress() as emit:
        from ..script_analysis import analyze_script  # loads torch

        result = analyze_script(script, emit, recorded_of(options, script))
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
    recorded = recorded_of(options, request)
    with progress() as emit:
        from ..prediction.analysis import predict_batch  # loads torch
        from ..prediction.correction import Experience

        gpu, trial = predict_batch(request, emit, experience=Experience.here(recorded=recorded))
    used, workload = request.workload.versions_here, request.workload
    plain = asdict(trial) | _token_speed(workload, trial) | {"software": used, "caveats": taken}
    answer(options, plain, lambda: render_trial(trial, workload, gpu, software=used, caveats=taken))
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
    with progress() as emit:
        from ..script_analysis import predict_script  # loads torch

        predicted = predict_script(script, emit, recorded=recorded_of(options, script))
    return _answer_trial(options, script, predicted)


def measure(options: argparse.Namespace) -> int:
    """Measure one batch size. The status is 0 whether it fits or not: either is an answer."""
    from .render import render_trial

    if (script := _script_request(options)) is not None:
        return _measure_script(options, script)
    request = AnalysisRequest.parse(given_fields(options) | {"gpu": LOCAL})
    with progress() as emit:
        from ..measurement.analysis import measure_batch  # loads torch

        gpu, trial, ran_on = measure_batch(request, emit)
    workload = request.workload
    plain = asdict(trial) | _token_speed(workload, trial) | {"workload": workload.to_dict()}
    plain |= {"measured_on": ran_on and asdict(ran_on)}
    answer(options, plain, lambda: render_trial(trial, workload, gpu, ran_on))
    return OK


def _measure_script(options: argparse.Namespace, script: ScriptRequest) -> int:
    with progress() as emit:
        from ..script_analysis import measure_script_batch  # loads torch

        measured = measure_script_batch(script, emit)
    return _answer_trial(options, script, measured)


def _answer_trial(options: argparse.Namespace, script: ScriptRequest, found: BatchTrials) -> int:
    from .render import render_trial

    (trial,), name = found.trials, script.script.name
    plain = asdict(trial) | {"caveats": found.caveats, "software": found.software}
    answer(
        options,
        plain,
        lambda: render_trial(
            trial, name, found.gpu, software=found.software, caveats=found.caveats
        ),
    )
    return OK


def plan(options: argparse.Namespace) -> int:
    from .plan import render_plan

    script = _script_request(options)
    with progress() as emit:
        if script is not None:
            from ..script_analysis import plan_script  # loads torch

            made = plan_script(script, emit, recorded_of(options, script))
        else:
            from ..prediction.correction import Experience
            from ..prediction.plan import plan  # loads torch

            request, taken = request_and_defaults(options)
            experience = Experience.here(recorded=recorded_of(options, request))
            made = plan(request, emit, experience)
            made = replace(made, caveats=[*taken, *made.caveats])
    answer(options, made.to_dict() | _tokens(made.workload), lambda: render_plan(made))
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
    """The request that a command's flags describe, and a caveat about the defaults it takes."""
    given = given_fields(options)
    request = AnalysisRequest.parse(given)
    if sized := size_by_sample(options, request.workload.preset, given):
        given |= sized
        request = AnalysisRequest.parse(given)
    return request, defaults_taken(given, request)


_CONFIG_SUFFIX = ".json"


def given_fields(options: argparse.Namespace) -> dict[str, object]:
    """The fields of a request, as written on the command line."""
    given: dict[str, object] = {name: getattr(options, name) for name in options.names}
    for name in [name for name in given if name in FIELDS and FIELDS[name].takes_none]:
        if given[name] is None:  # the flag was left out
            del given[name]
        elif given[name] == NONE:
            given[name] = None
    if str(given.get("model")).endswith(_CONFIG_SUFFIX) and not given.get("config"):
        given |= {"model": None, "config": given["model"]}
    if path := given.get("config"):
        given["config"] = read_config_file(Path(str(path)))
    if (lengths := given.get(FIELD)) and "=" not in str(lengths):
        given[FIELD] = str(Lengths.read(Path(str(lengths))))
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
    if options.model is not None and options.model.endswith(SUFFIX):
        if options.factory is not None:
            options.usage_error("pass a script or --factory, not both")
        flags = options.batch_flag, options.batch_env
        return Program.of(options.model, options.script_arguments, *flags)
    if options.needs_batch_size and options.current_batch_size is None:
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


def add_push_flag(parser: Any) -> None:
    parser.add_argument(
        "--push",
        action="store_true",
        help="add the result to the lab's history (MEMORYMARK_URL, MEMORYMARK_TOKEN)",
    )
    parser.set_defaults(ran=parser.prog)


def add_name_flag(parser: Any) -> None:
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="name of your script in the lab's history, with --push; default: that of its file",
    )


def push(options: argparse.Namespace) -> int:
    """Send files of recorded runs, then the outbox; fails unless all was sent and accepted."""
    lab = Lab()
    records = [record for path in options.files for record in read_records(path)]
    if options.analysis is not None and not records:
        raise InvalidInput({"analysis_id": "it is for the runs in a file; name the file too"})
    records = [
        record if record.analysis_id else replace(record, analysis_id=options.analysis)
        for record in records
    ]
    if options.readdress and not lab.readdress(options.readdress):
        _say(f"nothing in the outbox is for {options.readdress}")
    for record in records:
        lab.put("training", training_document(record))
    delivery = lab.send_outbox()
    _report_refused(delivery)
    reported = {record.id: record.analysis_id for record in records if record.analysis_id}
    for number in sorted({reported[one] for one in delivery.answers.keys() & reported.keys()}):
        _say(f"reported: {lab.url}/{number}/")
    left = f"{delivery.waiting} left" + (f": {delivery.problem}" if delivery.problem else "")
    _say(f"sent {len(delivery.answers)}, refused {len(delivery.rejected)}, {left}")
    for other, count in sorted(lab.documents_elsewhere().items()):
        _say(
            f"not sent: {count} for {other}, which is not MEMORYMARK_URL ({lab.url}); if the site "
            f"has moved here: memorymark push --readdress {other}"
        )
    return FAILED if delivery.waiting or delivery.rejected else OK


@dataclass(frozen=True)
class Pushing:
    """A result on its way to a lab.

    Attributes:
        assumed: The fields of the command; the lab has defaults for those that are left out.
    """

    lab: Lab
    started_at: datetime
    ran: str
    assumed: dict[str, object]

    @classmethod
    def of(cls, options: argparse.Namespace) -> Pushing | None:
        """Begin, so that a missing token is reported before the work; ``None`` without --push."""
        if not options.push:
            return None
        return cls(Lab(), datetime.now(UTC), options.ran, given_fields(options))

    def send(
        self, request: AnalysisRequest | ProgramRequest, result: AnalysisResult | TextResult
    ) -> bool:
        """Send a result and report on stderr what happened to it.

        Returns:
            Whether the lab has it, or will get it later; false if it was refused.
        """
        lab = self.lab
        try:
            delivery = lab.push(
                request,
                result,
                started_at=self.started_at,
                finished_at=datetime.now(UTC),
                ran=self.ran,
                assumed=self.assumed,
            )
        except OSError as error:
            _say(
                f"error: not pushed, since the outbox cannot be used: {error}; set "
                "MEMORYMARK_OUTBOX"
            )
            return False
        _report_refused(delivery)
        if delivery.answer is not None:
            _say(f"pushed: {lab.url}/{delivery.answer['id']}/")
        elif delivery.waiting:
            _say(f"not pushed yet: {delivery.problem or 'another process is sending'}")
            _say(f"it is kept in {lab.outbox_folder}; {_SEND_AGAIN}")
        return not delivery.refusal


def _report_refused(delivery: Delivery) -> None:
    for path, reason in delivery.rejected.items():
        _say(f"error: the lab refused {path}: {reason}")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
