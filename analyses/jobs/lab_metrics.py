"""Metrics of the lab, read from the database on each scrape, so that all processes agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from analyses.jobs.lab_state import LabState, lab_state

PREFIX = "memorymark_"


class LabCollector(Collector):
    """Exports :func:`analyses.jobs.lab_state.lab_state` as metrics."""

    def collect(self) -> Iterator[Metric]:
        """Read the lab's state and yield its metrics."""
        return metrics_of(lab_state())


def metrics_of(state: LabState) -> Iterator[Metric]:
    """A state of the lab as metrics; times in seconds."""
    yield _by("analyses", "Analyses, by status", "status", state.analyses)
    yield _one(
        "queue_oldest_wait_seconds",
        "How long the oldest queued analysis has waited; 0 where none is queued",
        state.oldest_wait_seconds,
    )
    yield _by(
        "lane_oldest_wait_seconds",
        "How long the oldest job that is due has waited, by lane; none where none waits",
        "lane",
        state.lane_wait_seconds,
    )
    ended = state.ended
    yield _by(
        "last_hour_ended", "Analyses ended in the last hour, by status", "status", ended.by_status
    )
    yield _by(
        "last_hour_failures",
        "Analyses that failed or were lost in the last hour, by reason",
        "reason",
        ended.failures,
    )
    yield _one("last_hour_worked_on", "Those of them that a worker has worked on", ended.worked_on)
    yield _one(
        "last_hour_wait_seconds",
        "Sum of what those worked on waited, queued until the last worker took it",
        ended.wait_seconds,
    )
    yield _one(
        "last_hour_run_seconds",
        "Sum of what those worked on took, from then until the end",
        ended.run_seconds,
    )
    yield _by("nodes", "Nodes that the lab has had, by state", "state", state.nodes)
    gpus = {"busy": state.gpus_busy, "free": state.gpus - state.gpus_busy}
    yield _by("gpus", "GPUs of nodes that are alive, by whether one is measured on", "state", gpus)
    yield _by("notifications", "Notifications not sent, by status", "status", state.notifications)
    yield _by("lookups", "Stored queries, by status", "status", state.lookups)


def _one(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, meaning, value=value)


def _by(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, meaning, labels=[label])
    for word, value in values.items():
        family.add_metric([word], value)
    return family
