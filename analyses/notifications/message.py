"""The message about a finished analysis: an e-mail's text and a webhook's JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.urls import reverse

from analyses.figures.chips import chips, name_of
from analyses.figures.decision import DecisionFigures, decision_figures
from analyses.formatting import duration, model_name
from analyses.models import Analysis, Concern, InboxEntry
from analyses.notifications import inbox
from engine.core.numbers import usd

VERSION = 1
"""Version of the JSON: incremented when a field changes its meaning or is removed, not when one is
added."""

ENDED, TEST = "analysis.ended", "test"
EVENTS = {
    Concern.MENTION: "analysis.mentioned",
    Concern.VERIFIED: "prediction.verified",
    Concern.MISSED: "prediction.missed",
    Concern.ADVICE: "job.advice",
}
"""The events of inbox entries; those of analyses that ended are :data:`ENDED`."""


@dataclass(frozen=True)
class Message:
    """One message to a member.

    Attributes:
        number: The same at every try.
        payload: The payload of a webhook, as JSON.
    """

    number: str
    subject: str
    text: str
    payload: dict[str, Any]

    @property
    def body(self) -> bytes:
        return json.dumps(self.payload, ensure_ascii=False).encode()


def of_ended(analysis: Analysis) -> Message:
    url = public_url("analyses:detail", analysis.pk)
    took = duration(_seconds(analysis))
    verdict, decision = (analysis.result or {}).get("verdict"), decision_figures(analysis)
    reason = analysis.failure_reason or None
    summary = (reason or "").split("\n")[0]
    if verdict and decision and analysis.does_not_fit:
        summary = f"{summary} {decision.sentence}"
    elif verdict:
        summary = verdict
    outcome = analysis.outcome_label.lower()
    ended = f"{outcome}, answered" if analysis.does_not_fit else outcome
    headline = _one_line(f"{name_of(analysis)}: {ended} after {took}")
    lines = [
        summary,
        *_worth(decision),
        "",
        url,
        "",
        f"Analysis {analysis.pk}, {outcome}",
        f"Model: {model_name(analysis.model)}",
        f"Settings: {' · '.join(chips(analysis))}",
        f"Duration: {took} from queued to ended (measured)",
    ]
    payload = {
        "version": VERSION,
        "event": ENDED,
        "text": _one_line(f"{headline}. {summary}"),
        "id": analysis.pk,
        "url": url,
        "status": analysis.status,
        "outcome": analysis.outcome,
        "model": analysis.model,
        "gpu": analysis.measured_gpu or analysis.gpu,
        "verdict": verdict if analysis.has_answer else None,
        "decision": asdict(decision) if decision else None,
        "source": analysis.source or None,
        "reason": reason,
        "queued_at": analysis.queued_at.isoformat(),
        "started_at": _moment(analysis.started_at),
        "finished_at": _moment(analysis.finished_at),
        "duration_seconds": round(_seconds(analysis), 3),
    }
    return Message(f"analysis-{analysis.pk}", f"[MemoryMark] {headline}", "\n".join(lines), payload)


def _worth(decision: DecisionFigures | None) -> list[str]:
    """A line about the savings of a decision; none without any."""
    if decision is None or not decision.usd_per_year:
        return []
    low, high = decision.usd_per_year_low or 0.0, decision.usd_per_year_high or 0.0
    ends = f"{usd(low)} to {usd(high)}"
    per_year = f"{usd(decision.usd_per_year)} less per year ({ends})"
    return [f"{per_year} at assumed hours and prices; the speedup is {decision.source}."]


def of_entry(entry: InboxEntry) -> Message:
    """The message about an inbox entry: a mention, or what a training run showed."""
    analysis, text = entry.analysis, inbox.sentence(entry)
    url = public_url("analyses:detail", analysis.pk)
    headline = _one_line(f"{entry.get_kind_display()}: {name_of(analysis)}")
    lines = [text, "", url, "", f"Settings: {' · '.join(chips(analysis))}"]
    payload = of_test().payload | {
        "event": EVENTS[Concern(entry.kind)],
        "text": _one_line(f"{headline}. {text}"),
        "id": analysis.pk,
        "url": url,
        "status": analysis.status,
        "outcome": analysis.outcome,
        "model": analysis.model,
        "gpu": analysis.measured_gpu or analysis.gpu,
    }
    return Message(f"entry-{entry.pk}", f"[MemoryMark] {headline}", "\n".join(lines), payload)


def of_test() -> Message:
    """The message of *Send a test*: all fields, but without an analysis."""
    url = public_url("analyses:notifications")
    text = "This is a test of MemoryMark's notifications."
    nothing = (
        "id", "status", "outcome", "model", "gpu", "verdict", "decision", "source", "reason",
        "queued_at", "started_at", "finished_at", "duration_seconds",
    )  # fmt: skip
    payload = {"version": VERSION, "event": TEST, "text": text, "url": url}
    return Message(
        f"test-{uuid4().hex}",
        "[MemoryMark] Test",
        f"{text} You asked for it on\n{url}",
        payload | dict.fromkeys(nothing),
    )


def public_url(view: str, *args: object) -> str:
    return f"{settings.PUBLIC_URL}{reverse(view, args=args)}"


def _seconds(analysis: Analysis) -> float:
    """Time from queued to finished, as for the setting *only when it took longer than*."""
    ended = analysis.finished_at or analysis.queued_at
    return (ended - analysis.queued_at).total_seconds()


def _moment(time: datetime | None) -> str | None:
    return time.isoformat() if time else None


def _one_line(text: str) -> str:
    return " ".join(text.split())
