"""GPU memory that the lab's workloads use now, by kind of GPU."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from django.db.models import QuerySet

from analyses.models import CountedSavings, FigureSource, Node, Trial
from engine.gpus import GPUS, catalogue_name

COUNTED_WORKLOADS = 200
"""Number of the lab's most recently analyzed workloads that count."""

SHOWN_GPUS = 8


@dataclass(frozen=True)
class GpuUse:
    """The workloads on one kind of GPU.

    Attributes:
        total_bytes: The memory that it has.
        now: Median share of it in use at the batch that is trained with: the recommended one
            where it is adopted, else the current one.
        recommended: The same, if all trained with the recommended batch.
        sources: Sources of the figures.
    """

    name: str
    total_bytes: int
    workloads: int
    now: float
    recommended: float
    sources: tuple[str, ...]


@dataclass(frozen=True)
class _Used:
    gpu: str
    now: int
    recommended: int
    sources: tuple[str, ...]


def gpu_use(counted: QuerySet[CountedSavings]) -> list[GpuUse]:
    """The kinds of GPU with most workloads first; three queries."""
    used = list(_used(counted))
    totals = _totals({one.gpu for one in used})
    by_gpu: dict[str, list[_Used]] = {}
    for one in used:
        if one.gpu in totals:
            by_gpu.setdefault(one.gpu, []).append(one)
    kinds = sorted(by_gpu.items(), key=lambda kind: (-len(kind[1]), kind[0]))
    return [_use(gpu, totals[gpu], of_gpu) for gpu, of_gpu in kinds[:SHOWN_GPUS]]


def _use(gpu: str, total: int, used: Sequence[_Used]) -> GpuUse:
    return GpuUse(
        name=GPUS[gpu].display_name if gpu in GPUS else gpu,
        total_bytes=total,
        workloads=len(used),
        now=median(one.now for one in used) / total,
        recommended=median(one.recommended for one in used) / total,
        sources=tuple(sorted({source for one in used for source in one.sources})),
    )


def _used(counted: QuerySet[CountedSavings]) -> Iterator[_Used]:
    """Yield the memory each workload uses; those with a memory limit, a part, are left out."""
    columns = (
        "pk", "is_realised", "gpu", "measured_gpu", "analysis__current_batch_size",
        "analysis__recommended_batch_size", "analysis__request__memory_limit_bytes",
        "analysis__decided__used_bytes",
    )  # fmt: skip
    rows = list(counted.order_by("-pk").values_list(*columns)[:COUNTED_WORKLOADS])
    tried = _tried([row[0] for row in rows], {size for row in rows for size in row[4:6]})
    for pk, is_realised, gpu, measured_gpu, current, recommended, limit, decided in rows:
        # With other moves than the batch, the analysis has not tried the batch itself.
        with_moves = None if decided is None else (str(FigureSource.PREDICTED), decided)
        then = with_moves or tried.get((pk, recommended))
        now = then if is_realised else tried.get((pk, current))
        if limit is None and now and then:
            kind = (catalogue_name(measured_gpu) or measured_gpu) if measured_gpu else gpu
            yield _Used(kind, now[1], then[1], (now[0], then[0]))


def _tried(
    analyses: Collection[int], batch_sizes: Collection[int]
) -> Mapping[tuple[int, int], tuple[str, int]]:
    """Source and bytes by analysis and batch size; measured ones rather than predicted."""
    columns = (
        "analysis_id", "batch_size", "source",
        "device_used_bytes", "peak_reserved_bytes", "peak_allocated_bytes",
    )  # fmt: skip
    trials = Trial.objects.filter(analysis__in=analyses, batch_size__in=batch_sizes, fits=True)
    found: dict[tuple[int, int], tuple[str, int]] = {}
    for analysis, batch_size, source, *figures in trials.order_by().values_list(*columns):
        used = next((figure for figure in figures if figure is not None), None)
        key = (analysis, batch_size)
        if used is not None and (source == FigureSource.MEASURED or key not in found):
            found[key] = (source, used)
    return found


def _totals(gpus: Collection[str]) -> dict[str, int]:
    """The memory of each kind, from the catalogue, or else from a node that has one."""
    nodes = Node.objects.filter(gpu_name__in=gpus, gpu_total_bytes__isnull=False)
    of_nodes = nodes.values_list("gpu_name", "gpu_total_bytes")
    return {name: total for name, total in of_nodes if total} | {
        gpu: GPUS[gpu].total_bytes for gpu in gpus if gpu in GPUS
    }
