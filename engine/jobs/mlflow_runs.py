"""Runs of an MLflow tracking server or store, read by MLflow's own client.

Memory comes from MLflow's system metrics (``mlflow.enable_system_metrics_logging()``): megabytes in
use on each GPU of the machine, averaged over some samples. MLflow logs no name of a GPU, and not
which of them a run used: those count on which at least :data:`MIN_MEGABYTES` were in use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ..core.errors import EngineError, InvalidInput
from .logged_config import logged_speed, request_fields, slurm_job_id
from .record import JobRecord, Reporter

_MEMORY = re.compile(r"system/(?:(?P<node>[^/]+)/)?gpu_(?P<gpu>\d+)_memory_usage_megabytes")
_MEGABYTE = 1e6
MIN_MEGABYTES = 1000
"""A process with PyTorch takes more, the driver of an idle GPU less."""

_PAGE = 500
_USER, _NAME = "mlflow.user", "mlflow.runName"


def jobs_of(
    uri: str | None, experiments: Sequence[str], since: datetime | None
) -> Iterator[JobRecord]:
    """The runs with system metrics of a GPU.

    Args:
        uri: Address of the server or store; MLflow's own default if ``None``.
        experiments: Names; all experiments if empty.
        since: Only runs that started or ended since then; ``None`` for all.

    Raises:
        EngineError: MLflow is not installed, or the server does not answer.
        InvalidInput: There is no such experiment.
    """
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    except ImportError as error:
        raise EngineError("MLflow is not installed here; run: pip install mlflow") from error
    try:
        client = MlflowClient(tracking_uri=uri)
        for run in _runs(client, _experiment_ids(client, experiments), since):
            if job := _job(client, run):
                yield job
    except MlflowException as error:
        raise EngineError(f"MLflow cannot be read: {' '.join(str(error).split())[:500]}") from error


def _experiment_ids(client: Any, names: Sequence[str]) -> list[str]:
    if not names:
        found, token = [], None
        while True:
            page = client.search_experiments(page_token=token)
            found += [one.experiment_id for one in page]
            if not (token := page.token):
                return found
    by_name = {name: client.get_experiment_by_name(name) for name in names}
    if missing := [name for name, one in by_name.items() if one is None]:
        raise InvalidInput({"experiment": f"there is no experiment {missing[0]}"})
    return [one.experiment_id for one in by_name.values()]


def _runs(client: Any, experiments: list[str], since: datetime | None) -> Iterator[Any]:
    """The runs of some experiments; those that ended or, still running, started since then."""
    token: str | None = None
    while experiments:
        page = client.search_runs(
            experiments,
            max_results=_PAGE,
            page_token=token,
        )
        yield from (run for run in page if since is None or _ended_at(run.info) >= since)
        if not (token := page.token):
            return


def _job(client: Any, run: Any) -> JobRecord | None:
    """A run that has system metrics of a GPU; ``None`` for any other."""
    metrics, params, tags = run.data.metrics, run.data.params, run.data.tags
    gpus = [name for name in metrics if _MEMORY.fullmatch(name)]
    if not gpus:
        return None
    points = {name: _points(client, run, name) for name in gpus}
    fullest = max(points, key=lambda name: max(points[name].values()))
    used = [name for name in gpus if max(points[name].values()) >= MIN_MEGABYTES]
    return JobRecord(
        reporter=Reporter.MLFLOW,
        id=run.info.run_id,
        user=tags.get(_USER, ""),
        device_name="",
        gpus=len(used) or 1,
        started_at=_moment(run.info.start_time),
        ended_at=_ended_at(run.info, points[fullest]),
        is_running=run.info.status == "RUNNING",
        device_total_bytes=_total_bytes(client, run, fullest, points[fullest]),
        used_bytes=int(max(points[fullest].values()) * _MEGABYTE),
        samples_per_second=logged_speed(metrics),
        name=tags.get(_NAME, ""),
        request=request_fields(params),
        slurm_job_id=slurm_job_id({**params, **tags}),
    )


def _points(client: Any, run: Any, metric: str) -> dict[int, float]:
    """Values of a metric by their time, in milliseconds since 1970."""
    history = client.get_metric_history(run.info.run_id, metric)
    return {point.timestamp: point.value for point in history}


def _total_bytes(client: Any, run: Any, metric: str, used: Mapping[int, float]) -> int | None:
    """Memory of the GPU, from megabytes and percent in use at the same time.

    Percent have one decimal: at the most used point the quotient is right to 0.05 percent of it.
    """
    share = _points(client, run, metric.replace("_megabytes", "_percentage"))
    time = max((time for time in used if share.get(time)), key=used.__getitem__, default=None)
    return None if time is None else int(used[time] / share[time] * 100 * _MEGABYTE)


def _ended_at(info: Any, seen: Iterable[int] = ()) -> datetime:
    """The end of a run; of a running one, the last time that a metric was logged."""
    return _moment(info.end_time or max(seen, default=info.start_time))


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
