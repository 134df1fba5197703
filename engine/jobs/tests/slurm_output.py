"""Output of ``sacct`` for tests, after its manual page and Slurm's ``data_parser`` plugins."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

GIB = 2**30
USED_BYTES, TOTAL_BYTES = 26 * GIB, 80 * GIB
STARTED = 1_795_000_000

HEADER = (
    "JobIDRaw|Cluster|User|JobName|Partition|State|Start|End|ElapsedRaw|AllocTRES|TRESUsageInTot|"
    "AdminComment"
)


def jobstats(nodes: dict[str, Any]) -> str:
    """A summary in the encoding of jobstats (``report_job_json`` with ``encode``)."""
    text = json.dumps({"gpus": 2, "nodes": nodes, "total_time": 7200})
    return f"JS1:{base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()}"


SUMMARY = jobstats(
    {
        "gpu-1": {
            "cpus": 16,
            "gpu_total_memory": {"0": TOTAL_BYTES, "1": TOTAL_BYTES},
            "gpu_used_memory": {"0": 25 * GIB, "1": USED_BYTES},
            "gpu_utilization": {"0": 88.1, "1": 90.2},
            "total_memory": 137_438_953_472,
            "total_time": 57_620.8,
            "used_memory": 84_683_702_272,
        }
    }
)

TABLE = "\n".join(
    [
        HEADER,
        f"100|della|ada|bert|gpu|COMPLETED|{STARTED}|{STARTED + 7200}|7200|"
        f"billing=16,cpu=16,gres/gpu:a100=2,gres/gpu=2,mem=137438953472,node=1||{SUMMARY}",
        f"100.batch|della||batch|||{STARTED}|{STARTED + 7200}|7200|cpu=16|cpu=01:00:00,mem=1G|",
        # without jobstats: the sum over four GPUs, in the step that used most
        f"101_1|della|bob|gpt|gpu|RUNNING|{STARTED}|Unknown|3600|cpu=8,gres/gpu=4,node=1||",
        f"101_1.batch|della||batch||RUNNING|{STARTED}|Unknown|3600|cpu=8|cpu=00:00:01,mem=12K|",
        f"101_1.0|della||python||RUNNING|{STARTED}|Unknown|3600|cpu=8,gres/gpu=4|"
        f"cpu=09:10:11,gres/gpumem={4 * 10 * 1024}M,gres/gpuutil=300,mem=9000000K|",
        # without a GPU, not started yet, and with the delimiter in its name
        f"102|della|bob|prepare|cpu|COMPLETED|{STARTED}|{STARTED + 60}|60|cpu=8,node=1||JS1:Short",
        "103|della|bob|later|gpu|PENDING|Unknown|Unknown|0|||",
        f"104|della|bob|a|b|gpu|COMPLETED|{STARTED}|{STARTED + 60}|60|gres/gpu=1,node=1||",
        f"105|della|bob|stopped|gpu|CANCELLED by 1000|{STARTED}|{STARTED + 60}|60|"
        "gres/gpu:h100=1,gres/gpu=1,node=1||JS1:None",
    ]
)


def _tres(**counts: int) -> list[dict[str, Any]]:
    """Trackable resources as ``TRES_LIST`` writes them; ``gpu_a100`` stands for ``gpu:a100``."""
    return [
        {
            "type": "gres" if name.startswith("gpu") else name,
            "name": name.replace("_", ":", 1) if name.startswith("gpu") else "",
            "id": 1000 + number,
            "count": count,
        }
        for number, (name, count) in enumerate(counts.items())
    ]


def json_job(wrapped: bool, comment: str = "", used: int | None = None) -> dict[str, Any]:
    """A job of ``sacct --json``; ``wrapped`` as of Slurm 23.11, where numbers may be unset."""

    def number(value: int) -> Any:
        return {"set": True, "infinite": False, "number": value} if wrapped else value

    total = _tres(gpumem=used) if used else []
    return {
        "account": "nlp",
        "association": {"account": "nlp", "cluster": "della", "partition": "", "user": "ada"},
        "cluster": "della",
        "comment": {"administrator": comment, "job": "", "system": ""},
        "job_id": 100,
        "name": "bert",
        "partition": "gpu",
        "state": {"current": ["COMPLETED"] if wrapped else "COMPLETED", "reason": "None"},
        "steps": [
            {
                "step": {"id": "100.batch", "name": "batch"},
                "tres": {
                    "allocated": _tres(cpu=16),
                    "consumed": {"max": [], "min": [], "average": [], "total": []},
                    "requested": {"max": [], "min": [], "average": [], "total": total},
                },
            }
        ],
        "time": {
            "elapsed": number(7200),
            "eligible": number(STARTED - 60),
            "end": number(STARTED + 7200),
            "start": number(STARTED),
            "submission": number(STARTED - 60),
        },
        "tres": {"allocated": _tres(cpu=16, gpu=2, gpu_a100=2), "requested": _tres(cpu=16)},
        "user": "ada",
    }
