"""The columns of an analysis: of what it asks, and of what it is answered."""

from __future__ import annotations

from analyses import store
from analyses.lab.defaults import Settled
from analyses.savings.workload_key import workload_key
from engine.result import AnalysisResult


def asked(settled: Settled, measured_gpu: str = "") -> dict[str, object]:
    """The columns of an analysis that asks this."""
    request = settled.request
    workload, stored = request.workload, request.to_dict()
    return {
        "request": stored,
        "assumed_by": settled.assumed_by,
        "model": workload.model,
        "gpu": request.gpu,
        "precision": workload.precision,
        "optimizer": workload.optimizer,
        "current_batch_size": request.current_batch_size,
        "question": store.question_of(request),
        "measured_gpu": measured_gpu,
        "workload_key": workload_key(stored, measured_gpu),
    }


def answered(result: AnalysisResult) -> dict[str, object]:
    """The columns of an analysis that has this answer."""
    return {
        "result": result.to_dict(),
        "source": result.source,
        "largest_batch_size": result.largest_batch_size,
        "recommended_batch_size": result.recommended_batch_size,
        "speedup": result.speedup,
        "usd_per_year": result.savings and result.savings.usd_per_year,
        "gpu_hours_per_year": result.savings and result.savings.gpu_hours_per_year,
    }
