"""The tables of the app, with their indexes and constraints."""

from analyses.models.analysis import (
    OF_A_PROGRAM,
    Analysis,
    Decided,
    FigureSource,
    LogLine,
    Trial,
)
from analyses.models.imports import IdempotencyKey, Push, SpentUnits, Training, pushed_from
from analyses.models.jobs import (
    AT_WORK,
    FINAL_STATUSES,
    SHARED,
    Job,
    JobKind,
    Node,
    Query,
    QueryKind,
    QueryStatus,
    Status,
)
from analyses.models.lab import AddedGpu, GpuPrice, LabSettings
from analyses.models.labels import Note, SavedView, ShareLink
from analyses.models.notifications import (
    Channel,
    Delivery,
    Mention,
    Notification,
    NotificationChoices,
)
from analyses.models.savings import CountedSavings, RunSavings, SavingsChange
from analyses.models.tags import Tag

__all__ = [
    "AT_WORK",
    "FINAL_STATUSES",
    "OF_A_PROGRAM",
    "SHARED",
    "AddedGpu",
    "Analysis",
    "Channel",
    "CountedSavings",
    "Decided",
    "Delivery",
    "FigureSource",
    "GpuPrice",
    "IdempotencyKey",
    "Job",
    "JobKind",
    "LabSettings",
    "LogLine",
    "Mention",
    "Node",
    "Note",
    "Notification",
    "NotificationChoices",
    "Push",
    "Query",
    "QueryKind",
    "QueryStatus",
    "RunSavings",
    "SavedView",
    "SavingsChange",
    "ShareLink",
    "SpentUnits",
    "Status",
    "Tag",
    "Training",
    "Trial",
    "pushed_from",
]
