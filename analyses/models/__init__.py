"""The tables of the app, with their indexes and constraints."""

from analyses.models.analysis import (
    DOES_NOT_FIT,
    OF_A_PROGRAM,
    WITH_ANSWER,
    Analysis,
    Decided,
    FigureSource,
    LogLine,
    Trial,
    outcome_of,
)
from analyses.models.imports import IdempotencyKey, Push, SpentUnits, TrainingRun, pushed_from
from analyses.models.jobs import Job, JobKind, Node, Query, QueryKind
from analyses.models.lab_settings import AddedGpu, ChannelFormat, GpuPrice, LabSettings
from analyses.models.labels import Note, SavedView, ShareLink
from analyses.models.notifications import (
    Channel,
    Concern,
    Event,
    InboxEntry,
    Mention,
    Notification,
    NotificationChoices,
)
from analyses.models.projects import Project
from analyses.models.savings import CountedSavings, RunSavings, SavingsChange
from analyses.models.states import (
    AT_WORK,
    FINAL_STATUSES,
    OF_NOTIFICATION,
    OF_QUERY,
    OF_SELF_CHECK,
    SHARED,
    CheckState,
    Delivery,
    QueryStatus,
    Status,
    StatusGroup,
)
from analyses.models.tags import Tag
from analyses.models.training_jobs import TrainingJob

__all__ = [
    "AT_WORK",
    "DOES_NOT_FIT",
    "FINAL_STATUSES",
    "OF_A_PROGRAM",
    "OF_NOTIFICATION",
    "OF_QUERY",
    "OF_SELF_CHECK",
    "SHARED",
    "WITH_ANSWER",
    "AddedGpu",
    "Analysis",
    "Channel",
    "ChannelFormat",
    "CheckState",
    "Concern",
    "CountedSavings",
    "Decided",
    "Delivery",
    "Event",
    "FigureSource",
    "GpuPrice",
    "IdempotencyKey",
    "InboxEntry",
    "Job",
    "JobKind",
    "LabSettings",
    "LogLine",
    "Mention",
    "Node",
    "Note",
    "Notification",
    "NotificationChoices",
    "Project",
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
    "StatusGroup",
    "Tag",
    "TrainingJob",
    "TrainingRun",
    "Trial",
    "outcome_of",
    "pushed_from",
]
