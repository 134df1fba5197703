"""The tables of the site, each file a part of it."""

from analyses.models.analysis import (
    AT_WORK,
    FINAL_STATUSES,
    Analysis,
    FigureSource,
    LogLine,
    Status,
    Trial,
)
from analyses.models.api import IdempotencyKey
from analyses.models.lab import GpuPrice, LabSettings
from analyses.models.labels import Note, SavedView, Tag
from analyses.models.lookups import SHARED, Ask, Lookup, LookupStatus
from analyses.models.nodes import Node
from analyses.models.notifications import Channel, Delivery, Notification, NotificationChoices
from analyses.models.pushes import Push, pushed_from
from analyses.models.savings import CountedSavings
from analyses.models.sharing import ShareLink
from analyses.models.trainings import Training

__all__ = [
    "AT_WORK",
    "FINAL_STATUSES",
    "SHARED",
    "Analysis",
    "Ask",
    "Channel",
    "CountedSavings",
    "Delivery",
    "FigureSource",
    "GpuPrice",
    "IdempotencyKey",
    "LabSettings",
    "LogLine",
    "Lookup",
    "LookupStatus",
    "Node",
    "Note",
    "Notification",
    "NotificationChoices",
    "Push",
    "SavedView",
    "ShareLink",
    "Status",
    "Tag",
    "Training",
    "Trial",
    "pushed_from",
]
