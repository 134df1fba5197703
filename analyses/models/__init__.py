"""The tables of the site, each file a part of it."""

from analyses.models.analysis import (
    AT_WORK,
    FINAL_STATUSES,
    SORTED_BY,
    Analysis,
    FigureSource,
    LogLine,
    Status,
    Trial,
)
from analyses.models.labels import Note, SavedView, Tag
from analyses.models.lookups import SHARED, Ask, Lookup, LookupStatus
from analyses.models.nodes import Node
from analyses.models.notifications import Channel, Delivery, Notification, NotificationChoices

__all__ = [
    "AT_WORK",
    "FINAL_STATUSES",
    "SHARED",
    "SORTED_BY",
    "Analysis",
    "Ask",
    "Channel",
    "Delivery",
    "FigureSource",
    "LogLine",
    "Lookup",
    "LookupStatus",
    "Node",
    "Note",
    "Notification",
    "NotificationChoices",
    "SavedView",
    "Status",
    "Tag",
    "Trial",
]
