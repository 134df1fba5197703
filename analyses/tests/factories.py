"""Realistic members, analyses and results for all tests of the site."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from django.apps import apps
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.utils import timezone

from analyses.jobs import lease, queue
from analyses.jobs.lease import Lease
from analyses.models import (
    Analysis,
    Channel,
    Delivery,
    Job,
    LogLine,
    Notification,
    Query,
    Status,
    TrainingRun,
    Trial,
)
from analyses.results.stored import result_columns
from analyses.savings.aggregation import recounting, workload_key
from analyses.training_runs.services import step_gpu_hours
from engine.answer import economics
from engine.answer.energy import power_in
from engine.answer.worth import is_worth_it
from engine.core.sizes import GIB
from engine.gpus import GPUS
from engine.interface import trial as engine_trial
from engine.interface.assumptions import Assumptions
from engine.interface.request import AnalysisRequest
from engine.interface.result import (
    AnalysisResult,
    BatchLengths,
    GlobalBatch,
    LargeTensor,
    Phase,
    PhaseName,
    Savings,
    TimelinePoint,
)
from engine.interface.trial import GpuFacts, Source
from engine.interface.workload import Workload
from engine.recording import Loop, TrainingRecord
from memorymark_site.accounts.models import Viewer

PARAMETER_BYTES = 437_935_104
"""BERT base in fp32."""

_ACTIVATION_BYTES_PER_SAMPLE = 86_000_000
_INPUT_BYTES_PER_SAMPLE = 3_080
_WORKSPACE_BYTES = 2 * 8_519_680
_FIXED_SECONDS = 0.021
_SECONDS_PER_SAMPLE = 0.0026
_RANGE = 0.06


def make_user(username: str = "ada", **fields: Any) -> User:
    return User.objects.create_user(username=username, password="correct horse battery", **fields)


def make_viewer(username: str = "vera") -> User:
    user = make_user(username)
    Viewer.objects.create(user=user)
    return user


def make_request(**fields: object) -> dict[str, object]:
    given: dict[str, object] = {"model": "bert", "gpu": "a10"} | fields
    return AnalysisRequest.parse(given).to_dict()


def make_trial(
    batch_size: int, gpu: str = "a10", source: Source = Source.PREDICTED
) -> engine_trial.Trial:
    """A trial of BERT base, fp32, sequence length 128, AdamW."""
    breakdown = {
        "parameters": PARAMETER_BYTES,
        "gradients": PARAMETER_BYTES,
        "optimizer_state": 2 * PARAMETER_BYTES,
        "activations": batch_size * _ACTIVATION_BYTES_PER_SAMPLE,
        "inputs": batch_size * _INPUT_BYTES_PER_SAMPLE,
        "workspaces": _WORKSPACE_BYTES,
    }
    allocated = sum(breakdown.values())
    reserved = -(-allocated * 102 // 100 // 2**21) * 2**21
    used = reserved + GPUS[gpu].context_bytes
    seconds = _FIXED_SECONDS + _SECONDS_PER_SAMPLE * batch_size
    fits = used <= GPUS[gpu].total_bytes
    ranges: dict[str, Any] = {}
    if source is Source.PREDICTED:
        ranges = {
            "device_used_low_bytes": round(used * (1 - _RANGE)),
            "device_used_high_bytes": round(used * (1 + _RANGE)),
            "step_seconds_low": seconds * 0.7 if fits else None,
            "step_seconds_high": seconds * 1.5 if fits else None,
        }
    return engine_trial.Trial(
        batch_size=batch_size,
        fits=fits,
        source=source,
        peak_allocated_bytes=allocated,
        peak_reserved_bytes=reserved,
        device_used_bytes=used,
        step_seconds=seconds if fits else None,
        samples_per_second=batch_size / seconds if fits else None,
        operations_seconds=seconds if fits else None,
        **ranges,
        breakdown=breakdown,
        failure="" if fits else f"out of memory: it needs {used / GIB:.2f} GiB",
    )


def make_result(
    *,
    current: int | None = 16,
    recommended: int = 128,
    gpu: str = "a10",
    source: Source = Source.PREDICTED,
    **changes: Any,
) -> AnalysisResult:
    """A complete result whose numbers all follow from :func:`make_trial`.

    Without a current batch, nothing is faster or saved.
    """
    total = GPUS[gpu].total_bytes
    largest = bisect_left(range(1, 4097), True, key=lambda size: not make_trial(size, gpu).fits)
    end = max(int(largest * 1.1), (current or 0) + 1)
    at_current = None if current is None else make_trial(current, gpu, source)
    at_recommended = make_trial(recommended, gpu, source)
    speedup = savings = headroom = None
    if at_current is not None and at_current.fits:
        headroom = total - (at_current.device_used_bytes or 0)
        speedup = (at_recommended.samples_per_second or 0) / (at_current.samples_per_second or 1)
        savings = _savings(speedup, source, GPUS[gpu].price_per_hour_usd or 0.0)
    verdict = f"Batch {largest} fits, {largest + 1} does not; {recommended} is recommended"
    result = AnalysisResult(
        model_name="BERT base",
        workload=Workload(model="bert"),
        gpu=GpuFacts(GPUS[gpu].display_name, total, GPUS[gpu].usable_bytes),
        source=source,
        largest_batch_size=largest,
        next_batch_size=largest + 1,
        next_batch_size_fails=True,
        recommended_batch_size=recommended,
        current_batch_size=current,
        current_headroom_bytes=headroom,
        largest_headroom_bytes=total - (make_trial(largest, gpu).device_used_bytes or 0),
        speedup=speedup,
        savings=savings,
        verdict=f"{verdict} ({source}).",
        decision=(
            f"Start with batch {recommended}: it runs within 5% of this GPU's top speed."
            if current is None
            else f"Switch to batch {recommended}: it is faster."
        ),
        fastest_batch_size=largest - 16,
        curve=[make_trial(size, gpu) for size in range(1, end, 8)],
        trials=[
            *([] if at_current is None else [at_current]),
            make_trial(largest, gpu, source),
            make_trial(largest + 1, gpu, source),
            make_trial(largest - 16, gpu, source),
            *([at_recommended] if recommended != current else []),
        ],
        caveats=[
            "The step time is predicted from the data sheet; a measurement may differ by 20 %.",
            "CUDA context and libraries are taken as 0.42 GiB on this GPU.",
        ],
        timeline=make_timeline(recommended),
        phases=[
            Phase(
                PhaseName.LOADING,
                PARAMETER_BYTES,
                PARAMETER_BYTES,
                1,
                Source.COMPUTED,
                "All are read.",
            ),
            Phase(PhaseName.STEP, 3 * PARAMETER_BYTES, 0, 1, Source.PREDICTED, "Nothing stays."),
        ],
        largest_tensors=[
            LargeTensor(93_763_584, "parameters", "bert.embeddings.word_embeddings", ""),
            LargeTensor(50_331_648, "activations", "bert.encoder.layer.0.output", "aten.addmm"),
        ],
        safe_batch_size=largest - 16 if source is Source.PREDICTED else None,
        speedup_low=None if speedup is None else speedup * 0.98,
        speedup_high=None if speedup is None else speedup * 1.02,
    )
    result = replace(result, **changes)
    if savings and "savings" not in changes:
        result = replace(result, savings=_with_energy(result, savings))
    return result


def _with_energy(result: AnalysisResult, savings: Savings) -> Savings:
    """With the energy that follows from its trials, speedup and the usual assumptions."""
    ratio, low, high = result.speedup, result.speedup_low, result.speedup_high
    if ratio is None or low is None or high is None:
        return savings
    gained, price = economics.Speedup(ratio, low, high), savings.price_per_hour_usd
    power, taken = power_in(result), is_worth_it(gained, savings.source)
    counted = economics.savings(Assumptions(), price, gained, savings.source, power, taken=taken)
    return replace(savings, energy=counted.energy)


def make_timeline(batch_size: int) -> list[TimelinePoint]:
    """Memory that rises in the forward pass and falls in the backward pass."""
    phases = [(0.0, "inputs"), (0.1, "forward"), (0.5, "backward"), (0.9, "optimizer")]
    fixed = {"parameters": PARAMETER_BYTES, "optimizer_state": 2 * PARAMETER_BYTES}
    kept = batch_size * _ACTIVATION_BYTES_PER_SAMPLE
    return [
        TimelinePoint(at, phase, fixed | {"activations": size, "casts": 0})
        for (at, phase), size in zip(phases, (0, kept // 2, kept, 0), strict=True)
    ]


def make_lengths(padding: float = 0.35) -> BatchLengths:
    return BatchLengths(128, 512, 0.99, 10_000, 401.5, padding)


def make_global_batch(size: int = 512, accumulation: int = 4, kept: int = 512) -> GlobalBatch:
    return GlobalBatch(size, accumulation, kept, "Without it the learning rate is to be tuned.")


def make_analysis(
    owner: User, status: Status = Status.QUEUED, result: AnalysisResult | None = None, **fields: Any
) -> Analysis:
    """A stored analysis with its job; if succeeded, with a result and its trials as rows."""
    now = timezone.now()
    request = fields.pop("request", None) or make_request(
        current_batch_size=result.current_batch_size if result else 16
    )
    if status == Status.SUCCEEDED and result is None:
        result = make_result()
    if status != Status.QUEUED:
        fields = {"started_at": now - timedelta(seconds=3)} | fields
    if status in (Status.SUCCEEDED, Status.FAILED):
        fields = {"finished_at": now} | fields
    if result:
        fields = result_columns(result) | fields
    columns = ("model", "gpu", "precision", "optimizer", "current_batch_size")
    fields = {"workload_key": workload_key(request, fields.get("measured_gpu", ""))} | fields
    columns_from_request = {name: request[name] for name in columns}
    of_job = {name: fields.pop(name) for name in _OF_THE_JOB if name in fields}
    analysis = Analysis.objects.create(
        owner=owner, status=status, request=request, **columns_from_request | fields
    )
    of_job |= {"attempts": analysis.attempt, "node": analysis.node}
    _set_job(queue.enqueue(analysis), state=status, **of_job)
    for trial in result.trials if result else []:
        add_trial(analysis, trial)
    recount(Analysis.objects.filter(pk=analysis.pk))
    return analysis


_OF_THE_JOB = ("token", "heartbeat_at", "losses", "device")


def make_notification(
    analysis: Analysis,
    channel: Channel = Channel.EMAIL,
    status: Delivery = Delivery.WAITING,
    job: Mapping[str, object] = MappingProxyType({}),
    **fields: Any,
) -> Notification:
    """A notification with its job, whose fields ``job`` sets."""
    notification = Notification.objects.create(
        analysis=analysis, channel=channel, status=status, **fields
    )
    state = {
        Delivery.WAITING: Status.QUEUED,
        Delivery.SENDING: Status.RUNNING,
        Delivery.SENT: Status.SUCCEEDED,
        Delivery.GIVEN_UP: Status.FAILED,
    }[status]
    _set_job(queue.enqueue(notification), state=state, **job)
    return notification


def _set_job(job: Job, **columns: Any) -> None:
    Job.objects.filter(pk=job.pk).update(**columns)


def lease_on(subject: Analysis | Query, node: str = "node-1", device: str = "") -> Lease:
    """A worker's lease on a queued analysis, query or notification."""
    taken = lease.claim(subject.job.pk, node, device)
    assert taken is not None
    return taken


def recount(analyses: QuerySet[Analysis]) -> None:
    """Count the savings of analyses that no service has stored."""
    with recounting(analyses):
        pass


def make_training(analysis: Analysis, hours: float = 2.0, **fields: Any) -> TrainingRun:
    """A recorded training run of so many GPU-hours that verifies its analysis, reported now."""
    now = timezone.now()
    record = TrainingRecord(
        batch_size=128,
        steps=100,
        samples=round(hours * 3600 * 100),
        warm_up_steps=5,
        timed_steps=95,
        device="cuda",
        device_name="NVIDIA A10",
        device_total_bytes=GPUS["a10"].total_bytes,
        started_at=(now - timedelta(hours=hours + 1)).isoformat(),
        ended_at=now.isoformat(),
        loop=Loop.TRAINER,
        step_seconds=1.28,
        step_seconds_low=1.2,
        step_seconds_high=1.3,
        samples_per_second=100.0,
        analysis_id=analysis.pk,
    )
    columns = {
        "document_id": uuid4(),
        "digest": "",
        "host": "node-1",
        "record": record.to_dict(),
        "batch_size": 128,
        "samples_per_second": record.samples_per_second,
        "device_name": record.device_name,
        "gpu_hours": step_gpu_hours(record),
        "recorded_at": now,
        "verifies": True,
    }
    training = TrainingRun.objects.create(
        owner=analysis.owner, analysis=analysis, **columns | fields
    )
    recount(Analysis.objects.filter(pk=analysis.pk))
    return training


def add_trial(analysis: Analysis, trial: engine_trial.Trial) -> Trial:
    return Trial.objects.create(analysis=analysis, **vars(trial))


def add_log(analysis: Analysis, *messages: str, level: str = "info") -> None:
    LogLine.objects.bulk_create(
        LogLine(analysis=analysis, level=level, message=message) for message in messages
    )


def _savings(speedup: float, source: Source, price: float) -> Savings:
    assumed = Assumptions()
    saved_share = max(0.0, 1 - 1 / speedup) if speedup > 1.02 else 0.0
    hours = assumed.hours_per_run * assumed.runs_per_year * saved_share
    per_run = assumed.hours_per_run * price
    return Savings(
        source=source,
        gpu_hours_per_year=hours,
        usd_per_year=hours * price,
        current_usd_per_run=per_run,
        recommended_usd_per_run=per_run * (1 - saved_share),
        hours_per_run=assumed.hours_per_run,
        runs_per_year=assumed.runs_per_year,
        price_per_hour_usd=price,
    )


class EarlierApps:
    """The models as migrations before ``0057`` name them."""

    @staticmethod
    def get_model(app: str, name: str) -> Any:
        return apps.get_model(app, {"Training": "TrainingRun"}.get(name, name))
