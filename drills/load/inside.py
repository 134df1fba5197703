"""Functions that the load's comparison calls inside its lab."""

from __future__ import annotations

import json
from pathlib import Path

from django.contrib.auth.models import User

from analyses.models import Analysis, Status
from memorymark_site.accounts import tokens
from memorymark_site.accounts.models import Scope

_PARAMS = ("model", "gpu", "precision", "optimizer", "current_batch_size", "node", "workload_key")
_METRICS = (
    "largest_batch_size",
    "recommended_batch_size",
    "speedup",
    "usd_per_year",
    "gpu_hours_per_year",
)


def write_runs(file: str) -> int:
    """Write all analyses as runs of MLflow, with their columns; returns how many."""
    columns = ["pk", "owner__username", "status", "started_at", "finished_at", *_PARAMS, *_METRICS]
    runs = [
        {
            "name": f"analysis {row['pk']}",
            "member": row["owner__username"],
            "status": "FINISHED" if row["status"] == Status.SUCCEEDED else "FAILED",
            "started_ms": int(1e3 * row["started_at"].timestamp()),
            "finished_ms": int(1e3 * row["finished_at"].timestamp()),
            "params": {name: f"{row[name]}" for name in _PARAMS},
            "metrics": {name: float(row[name]) for name in _METRICS if row[name] is not None},
        }
        for row in Analysis.objects.order_by("pk").values(*columns)
    ]
    Path(file).write_text(json.dumps(runs))
    return len(runs)


def make_reader(name: str, password: str) -> str:
    """Let a member sign in with a password; returns a token that reads."""
    member = User.objects.get(username=name)
    member.set_password(password)
    member.save()
    return tokens.create(member, "load", Scope.READ, 1)[1]
