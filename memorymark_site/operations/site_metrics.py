"""Metrics of the site's machine and its processes, and of the last backup."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import django
import psutil
from django.conf import settings
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine import __version__
from memorymark_site.operations.prometheus import FOLDER

PREFIX = "memorymark_"


def note_backup() -> None:
    """Record that a backup was written and read back just now, by the time of a file."""
    _backup_mark().touch()


def last_backup() -> float | None:
    """The time of the last verified backup, in seconds since 1970; ``None`` for never."""
    mark = _backup_mark()
    return mark.stat().st_mtime if mark.exists() else None


class SiteCollector(Collector):
    """Metrics read from the machine on each scrape."""

    def collect(self) -> Iterator[Metric]:
        disk = shutil.disk_usage(settings.DATA_DIR)
        yield _gauge("data_free_bytes", "Free disk below the data folder", disk.free)
        yield _gauge("data_total_bytes", "Size of that disk", disk.total)
        memory = [process.memory_info().rss for process in _processes() if process.is_running()]
        yield _gauge("site_memory_bytes", "Resident memory of the site's processes", sum(memory))
        yield _gauge("site_processes", "How many processes serve the site", len(memory))
        if (last := last_backup()) is not None:
            yield _gauge(
                "backup_last_success_timestamp_seconds",
                "When the last backup with this data folder was written and read back",
                last,
            )
        build = GaugeMetricFamily(
            f"{PREFIX}build_info",
            "Versions that serve the site",
            labels=("version", "python", "django"),
        )
        build.add_metric((__version__, platform.python_version(), django.__version__), 1)
        yield build


def _processes() -> list[psutil.Process]:
    """The processes that serve the site: this one with its siblings, where there are any."""
    here = psutil.Process()
    arbiter = here.parent() if FOLDER in os.environ else None
    return arbiter.children() if arbiter else [here]


def _backup_mark() -> Path:
    return Path(settings.DATA_DIR) / "last-backup"


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, meaning, value=value)
