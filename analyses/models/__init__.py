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
from analyses.models.labels import Note, SavedView, Tag
from analyses.models.nodes import Node
from analyses.models.notifications import Channel, Delivery, Notification, NotificationChoices
from analyses.models.savings import CountedSavings

__all__ = [
    "AT_WORK",
    "FINAL_STATUSES",
    "Analysis",
    "Channel",
    "CountedSavings",
    "Delivery",
    "FigureSource",
    "LogLine",
    "Node",
    "Note",
    "Notification",
    "NotificationChoices",
    "SavedView",
    "Status",
    "Tag",
    "Trial",
]
