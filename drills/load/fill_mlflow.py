"""Store runs in MLflow's database: ``PYTHON fill_mlflow.py RUNS DATABASE``, with MLflow's Python.

RUNS is a JSON list of runs, as :func:`drills.load.inside.write_runs` writes it. Through MLflow's
client, 10,000 runs take half an hour; so the rows are stored as its store does it, many at a time.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

from mlflow.store.tracking.dbmodels import models
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from sqlalchemy.orm import Session


def main(runs: Path, database: str) -> None:
    """Store all runs in one experiment, with the times that they had."""
    store = SqlAlchemyStore(database, default_artifact_root=f"{runs.parent}/artifacts")
    experiment = int(store.create_experiment("lab"))
    with Session(store.engine) as session, session.begin():
        for run in json.loads(runs.read_text()):
            session.add_all(_rows(run, experiment))


def _rows(run: dict[str, Any], experiment: int) -> list[Any]:
    key, ended = uuid.uuid4().hex, run["finished_ms"]
    tags = {"mlflow.user": run["member"], "mlflow.runName": run["name"]}
    measured = [
        {"key": name, "value": value, "timestamp": ended, "run_uuid": key, "is_nan": False}
        for name, value in run["metrics"].items()
    ]
    return [
        models.SqlRun(
            run_uuid=key,
            name=run["name"],
            user_id=run["member"],
            status=run["status"],
            start_time=run["started_ms"],
            end_time=ended,
            lifecycle_stage="active",
            source_type="LOCAL",
            experiment_id=experiment,
        ),
        *(models.SqlParam(key=k, value=v, run_uuid=key) for k, v in run["params"].items()),
        *(models.SqlTag(key=k, value=v, run_uuid=key) for k, v in tags.items()),
        *(models.SqlMetric(step=0, **one) for one in measured),
        *(models.SqlLatestMetric(step=0, **one) for one in measured),
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
