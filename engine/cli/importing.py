"""``memorymark import``: sends the lab the training jobs that a scheduler or tracker has seen."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ..client import Lab
from ..core.errors import InvalidInput
from ..jobs import dstack, kubernetes, mlflow_runs, slurm, wandb_runs
from ..jobs.record import JobRecord, Reporter
from .terminal import FAILED, OK

_USUAL_DAYS = 2.0
"""A timer that runs each hour may fail for a day and miss nothing."""

_MAX_DAYS = 3660.0
_MAX_REFUSALS = 10
_STDIN = "-"


def add_import_command(group: Any) -> None:
    """Add the command, with a subcommand for each reporter."""
    about = "send the lab the training jobs that Slurm, Kubernetes, dstack, W&B or MLflow has seen"
    parser = group.add_parser("import", help=about, description=f"{about}.", allow_abbrev=False)
    reporters = parser.add_subparsers(
        title="sources", metavar="SOURCE", required=True, prog=parser.prog
    )
    for reporter, about, source, add in (
        (Reporter.SLURM, "jobs of Slurm's accounting, by sacct", "FILE", _add_slurm),
        (Reporter.WANDB, "runs of W&B, in offline folders or by its API", "WHERE", _add_wandb),
        (Reporter.MLFLOW, "runs of an MLflow server or store", "URI", _add_mlflow),
        (Reporter.KUBERNETES, "pods with GPUs, by kubectl", "FILE", _add_kubernetes),
        (Reporter.DSTACK, "jobs with GPUs of a dstack server", "URL", _add_dstack),
    ):
        of_one = reporters.add_parser(
            reporter, help=about, description=f"Import {about}.", allow_abbrev=False
        )
        add(of_one)
        _add_common(of_one)
        flags = {name: f"--{name}" for name in ("since", "gpu", "experiment", "project")}
        of_one.set_defaults(command=import_jobs, names={"source": source, **flags})


def _add_slurm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="FILE",
        nargs="?",
        help="output of sacct --json or --parsable2 (- is stdin); without it, sacct is run here",
    )
    parser.add_argument(
        "--all-users", action="store_true", help="everybody's jobs, for a lab admin's token"
    )
    parser.set_defaults(read=_slurm_jobs)


def _add_wandb(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="WHERE",
        help="a folder with offline runs (wandb/offline-run-…), or ENTITY/PROJECT for W&B's API",
    )
    parser.set_defaults(read=_wandb_jobs)


def _add_mlflow(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="URI",
        nargs="?",
        help="a tracking server or store, such as http://mlflow:5000 or sqlite:///mlflow.db; "
        "default MLFLOW_TRACKING_URI",
    )
    parser.add_argument(
        "--experiment",
        metavar="NAME",
        action="append",
        default=[],
        help="only of this experiment; may be repeated",
    )
    parser.set_defaults(read=_mlflow_jobs)


def _add_kubernetes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="FILE",
        nargs="?",
        help=f"output of {' '.join(kubernetes.COMMAND)} (- is stdin); without it, kubectl is run",
    )
    parser.add_argument(
        "--user-label",
        metavar="LABEL",
        default="",
        help="label of a pod that names its user; default: its namespace",
    )
    parser.set_defaults(read=_pods)


def _add_dstack(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="URL",
        nargs="?",
        help=f"address of the server; default {dstack.URL}. {dstack.TOKEN} has the token of a user",
    )
    parser.add_argument("--project", metavar="NAME", help="only of this project")
    parser.set_defaults(read=_dstack_jobs)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since",
        metavar="DAYS",
        help="only jobs that ran in the last DAYS days; default all, and "
        f"{_USUAL_DAYS:.0f} where sacct is run",
    )
    parser.add_argument(
        "--gpu",
        metavar="[NAME=]GPU",
        action="append",
        default=[],
        help="the GPU that `devices` lists for jobs that call theirs NAME, or do not name it; may "
        "be repeated: --gpu a100=a100-80gb",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the jobs as JSON and send nothing"
    )


def import_jobs(options: argparse.Namespace) -> int:
    """Read, send and report; fails unless the lab took all of them."""
    lab = None if options.dry_run else Lab()
    since, gpus = _since(options.since), _gpu_names(options.gpu)
    read: Callable[[argparse.Namespace, datetime | None], Iterable[JobRecord]] = options.read
    found = [_with_gpu(job, gpus) for job in read(options, since)]
    jobs = [job for job in found if since is None or job.ended_at >= since]
    if lab is None:
        sys.stdout.write(json.dumps([job.to_dict() for job in jobs], indent=2) + "\n")
        return OK
    imported = lab.import_jobs(jobs)
    for name, reason in imported.refused[:_MAX_REFUSALS]:
        _say(f"error: the lab refused {name}: {reason}")
    _say(
        f"imported {len(jobs) - len(imported.refused):,} jobs with GPUs: {imported.new:,} new, "
        f"{imported.updated:,} updated, {imported.unchanged:,} as before; refused "
        f"{len(imported.refused):,}"
    )
    return FAILED if imported.refused else OK


def _slurm_jobs(options: argparse.Namespace, since: datetime | None) -> Sequence[JobRecord]:
    if options.source is not None:
        return slurm.jobs_of(_text(options.source))
    usual = datetime.now(UTC) - timedelta(days=_USUAL_DAYS)
    return slurm.jobs_of(slurm.run_sacct(since or usual, all_users=options.all_users))


def _wandb_jobs(options: argparse.Namespace, since: datetime | None) -> Iterable[JobRecord]:
    if Path(options.source).exists():
        return wandb_runs.offline_jobs(Path(options.source))
    return wandb_runs.online_jobs(options.source, since)


def _mlflow_jobs(options: argparse.Namespace, since: datetime | None) -> Iterable[JobRecord]:
    return mlflow_runs.jobs_of(options.source, options.experiment, since)


def _pods(options: argparse.Namespace, _since: datetime | None) -> Sequence[JobRecord]:
    text = kubernetes.run_kubectl() if options.source is None else _text(options.source)
    return kubernetes.jobs_of(text, options.user_label)


def _dstack_jobs(options: argparse.Namespace, since: datetime | None) -> Iterable[JobRecord]:
    return dstack.jobs_of(options.source, options.project, since)


def _text(source: str) -> str:
    try:
        return sys.stdin.read() if source == _STDIN else Path(source).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput({"source": f"{source} cannot be read: {error}"}) from error


def _since(days: str | None) -> datetime | None:
    if days is None:
        return None
    try:
        number = float(days)
    except ValueError:
        number = 0.0
    if not 0 < number <= _MAX_DAYS:
        raise InvalidInput({"since": f"enter days, more than 0 and at most {_MAX_DAYS:,.0f}"})
    return datetime.now(UTC) - timedelta(days=number)


def _gpu_names(given: Iterable[str]) -> dict[str, str]:
    """GPUs by the name that jobs call them, in small letters; that of no name is empty."""
    found = {}
    for one in given:
        name, _, gpu = one.rpartition("=")
        if not gpu:
            raise InvalidInput({"gpu": f"{one!r} names no GPU; write NAME=GPU, or GPU"})
        found[name.casefold()] = gpu
    return found


def _with_gpu(job: JobRecord, gpus: Mapping[str, str]) -> JobRecord:
    gpu = gpus.get(job.device_name.casefold())
    return job if gpu is None else replace(job, device_name=gpu)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
