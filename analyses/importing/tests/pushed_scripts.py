"""Documents of scripts as ``memorymark analyze train.py --push`` sends them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import User

from analyses.importing.document import read_document
from analyses.importing.services import store_imported
from analyses.models import Analysis
from analyses.tests.factories import make_result
from engine.interface.program import ProgramRequest, TracedProgram
from engine.interface.result import AnalysisResult, OptimizerStep

HASH, EDITED = "3fa1" * 16, "77c0" * 16


def make_script_result(program_hash: str = HASH, **changes: Any) -> AnalysisResult:
    """The result of BERT base's numbers for a script, which has no workload."""
    return replace(
        make_result(**changes),
        workload=None,
        model_name="train.py",
        program_hash=program_hash,
        certificate=["memorymark predict train.py --gpu a10 --batch-size 253"],
        optimizer_step=OptimizerStep(["AdamW"], 8, 8, gpus=1),
    )


def make_document(
    name: str = "train.py", program_hash: str = HASH, **changes: Any
) -> dict[str, Any]:
    """The body of an import, as plain JSON values; ``changes`` are of the result."""
    result = make_script_result(program_hash, **changes)
    program = TracedProgram(name, program_hash, ("train.py",), ("--lr", "1e-4"))
    gpu = "h100" if "H100" in result.gpu.name else "a10"
    request = ProgramRequest(program, gpu=gpu, current_batch_size=result.current_batch_size)
    fields = request.to_dict()
    for assumed in ("hours_per_run", "runs_per_year", "price_per_hour_usd"):
        del fields[assumed]
    document = {
        "schema_version": 1,
        "id": str(uuid4()),
        "request": fields,
        "result": result.to_dict(),
        "started_at": "2026-03-01T12:00:00+00:00",
        "finished_at": "2026-03-01T12:01:30+00:00",
        "origin": {"host": "laptop-7", "ran": "memorymark analyze"},
        "environment": {"torch": "2.13.0"},
    }
    plain: dict[str, Any] = json.loads(json.dumps(document))
    return plain


def push_script(member: User, name: str = "train.py", program_hash: str = HASH) -> Analysis:
    """A member's analysis of a script, imported."""
    return store_imported(member, read_document(make_document(name, program_hash)))[0]
