"""The lab's site for a member's program: one method for each thing its API can do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import InvalidInput
from . import connection
from .connection import Connection, Response, Settings
from .errors import LabError, NotFinished, Refused
from .imported import ImportedJobs
from .outbox import Delivery, Entry, Outbox, analysis_document, training_document

if TYPE_CHECKING:
    from ..answer.ladder import Rung
    from ..interface.program import ProgramRequest
    from ..interface.request import AnalysisRequest
    from ..interface.result import AnalysisResult
    from ..interface.texts import TextResult
    from ..jobs.record import JobRecord
    from ..records.record import TrainingRecord

POLL_SECONDS = 0.5
MAX_WAIT_SECONDS = 20.0
"""Maximum wait for one answer; a proxy on the way may time out after that."""

MAX_PAUSE_SECONDS = 5.0
"""Polling slows down to this."""

_PATHS = {"analysis": "/analyses/import/", "training": "/trainings/"}
_FINAL = ("succeeded", "failed", "cancelled", "lost")
_WORKER = "worker"
_CONFLICT = 409
JOBS_AT_ONCE = 500
"""Training jobs in one request, as many as a lab takes."""


@dataclass(frozen=True)
class Analysis:
    """An analysis on the lab's site.

    Attributes:
        status: ``queued``, ``running``, ``cancelling``, ``succeeded``, ``failed``, ``cancelled`` or
            ``lost``.
        source: ``measured`` or ``predicted``; empty without a result.
        verdict: The result in words; empty without one, and in lists.
        failure: Reason why there is no result with its own settings, if it failed.
        adopted: Whether its decision is marked as adopted.
        moves: The changes that batches, speedup and savings are with, such as ``bf16`` and
            ``batch 200``; empty for the batch alone.
        decision: What to do, in one sentence; empty without a result, and in lists. Its numbers are
            in ``facts["decision"]``.
        decision_waits_for: What may still change the decision: ``analysis`` until that ends,
            ``plan`` until its ladder is known, or ``worker`` where none is online to work on that;
            empty once it is final, and in lists.
        tags: In alphabetical order.
        facts: All fields, as the API returns them.
        version: For :meth:`Lab.label`; empty in lists and for a new analysis.
        goal: ``batch``, ``generation`` or ``length``.
        longest_tokens: The longest text that fits; ``None`` where the goal is a batch.
    """

    id: int
    url: str
    owner: str
    status: str
    model: str
    gpu: str
    current_batch_size: int | None
    largest_batch_size: int | None
    recommended_batch_size: int | None
    speedup: float | None
    source: str
    verdict: str
    failure: str
    adopted: bool
    tags: tuple[str, ...]
    facts: Mapping[str, Any]
    version: str = ""
    goal: str = "batch"
    longest_tokens: int | None = None
    moves: tuple[str, ...] = ()
    decision: str = ""
    decision_waits_for: str = ""

    @property
    def is_final(self) -> bool:
        """Whether its status will not change any more."""
        return self.status in _FINAL

    @property
    def decision_is_final(self) -> bool:
        """Whether no plan may change the decision by itself; in lists as :attr:`is_final`."""
        return self.is_final and not self.decision_waits_for

    @classmethod
    def of(cls, facts: Mapping[str, Any], version: str = "") -> Analysis:
        """Read an analysis as the API returns it.

        Raises:
            LabError: If it is not one.
        """
        try:
            return cls(
                id=facts["id"],
                url=facts["url"],
                owner=facts["owner"],
                status=facts["status"],
                model=facts["model"],
                gpu=facts["measured_gpu"] or facts["gpu"],
                current_batch_size=facts["current_batch_size"],
                largest_batch_size=facts["largest_batch_size"],
                recommended_batch_size=facts["recommended_batch_size"],
                speedup=facts["speedup"],
                source=facts["source"],
                verdict=(facts.get("result") or {}).get("verdict", ""),
                failure=(facts["failure"] or {}).get("reason", ""),
                adopted=facts["adopted_at"] is not None,
                tags=tuple(facts["tags"]),
                facts=facts,
                version=version,
                goal=facts.get("goal", "batch"),
                longest_tokens=facts.get("longest_tokens"),
                moves=tuple(facts.get("moves") or ()),
                decision=(facts.get("decision") or {}).get("sentence", ""),
                decision_waits_for=facts.get("decision_waits_for") or "",
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise LabError(f"The lab's answer is not an analysis: {error!r}") from error


class Lab:
    """The lab's site, used as one member.

    Args:
        url: The site's address; default ``MEMORYMARK_URL``.
        token: From the page *API tokens*; default ``MEMORYMARK_TOKEN``.
        allow_http: Whether the token may be sent over a network unencrypted; default
            ``MEMORYMARK_ALLOW_HTTP``. To this machine it always may.
        timeout_seconds: For each answer.

    Raises:
        Misconfigured: If address or token cannot be right. Every method raises it too, if there is
            no MemoryMark at the address.

    Every method raises a :class:`~engine.client.errors.LabError`: ``Refused`` with the lab's
    message for each field (also as ``NotAllowed`` and ``NotFound``), or ``Unavailable`` if the lab
    is still down or busy after several tries.
    """

    def __init__(
        self,
        url: str = "",
        token: str = "",
        *,
        allow_http: bool | None = None,
        timeout_seconds: float = 30.0,
    ) -> None:
        self._connection = Connection(Settings.of(url, token, allow_http), timeout_seconds)
        self.url = self._connection.url

    def analyze(self, *, wait: float = 0.0, **fields: object) -> Analysis:
        """Submit an analysis.

        Args:
            wait: Seconds to wait for its decision, as :meth:`wait` does; 0 does not wait.
            **fields: Fields of :class:`engine.interface.request.AnalysisRequest`, such as
            ``model``, ``gpu``,
                ``current_batch_size``, ``precision``. With ``goal="generation"`` it finds how many
                texts can be generated at once, and how long; with ``goal="length"`` the longest
                sequence that fits in training.

        Raises:
            NotFinished: It takes longer than that, and goes on.
        """
        submitted = Analysis.of(self._connection.send("POST", "/analyses/", fields))
        return self.wait(submitted.id, wait) if wait else submitted

    def wait(self, number: int, seconds: float) -> Analysis:
        """Wait for an analysis to finish, and for the plan that may change its decision.

        A plan that takes longer, or that no worker is online for, is not waited for: the answer
        without it has ``decision_is_final`` false.

        Raises:
            NotFinished: It has not finished after that many seconds.
        """
        end, pause = time.monotonic() + seconds, POLL_SECONDS
        while not (found := self._when_final(number, end)).decision_is_final:
            left = end - time.monotonic()
            if found.is_final and (left <= 0 or found.decision_waits_for == _WORKER):
                break
            if left <= 0:
                raise NotFinished(f"Analysis {number} is {found.status}; see {found.url}")
            # The lab answers at once if too many are waiting there already.
            time.sleep(min(pause, left))
            pause = min(pause * 1.2, MAX_PAUSE_SECONDS)
        return found

    def _when_final(self, number: int, end: float) -> Analysis:
        """An analysis once it has finished, or after a while; the waiting is done by the lab."""
        seconds = round(max(0.0, min(end - time.monotonic(), MAX_WAIT_SECONDS)), 3)
        path, query = f"/analyses/{number:d}/", {"wait": seconds}
        return _read(
            self._connection.exchange("GET", path, query=query, timeout_seconds=30.0 + seconds)
        )

    def analysis(self, number: int) -> Analysis:
        return _read(self._connection.exchange("GET", f"/analyses/{number:d}/"))

    def analyses(self, **filters: object) -> Iterator[Analysis]:
        """The lab's analyses, newest first; pages are fetched as needed.

        Args:
            **filters: Filters of the history, such as ``member``, ``model``, ``gpu``, ``status``,
                ``tag``, ``adopted``, ``sort``.
        """
        number = 1
        while True:
            page = self._connection.get("/analyses/", {**filters, "page": number})
            yield from map(Analysis.of, page["results"])
            # The answer has the address of the next page, but the token is for our address only.
            if page["next"] is None:
                return
            number += 1

    def cancel(self, number: int) -> Analysis:
        """Cancel one of your analyses; a finished one stays as it is."""
        return self._settle(number, "cancel", lambda found: found.is_final)

    def adopt(self, number: int) -> Analysis:
        """Mark the recommendation as adopted; doing so twice changes nothing."""
        return self._settle(number, "adopt", lambda found: found.adopted)

    def label(
        self,
        number: int,
        *,
        tags: Iterable[str] | None = None,
        note: str | None = None,
        version: str | None = None,
    ) -> Analysis:
        """Set the tags or the note of any member's analysis; ``None`` leaves them as they are.

        Args:
            number: The analysis.
            tags: All tags that it will have.
            note: Empty removes it.
            version: The one that was read; without it the last write wins.

        Raises:
            Changed: Someone has changed them since then; nothing was done.
        """
        # A string would be split into letters; sent as it is, the lab refuses it.
        names = tags if tags is None or isinstance(tags, str) else list(tags)
        given = {"tags": names, "note": note}
        body = {name: value for name, value in given.items() if value is not None}
        path = f"/analyses/{number:d}/"
        return _read(self._connection.exchange("PATCH", path, body, version=version))

    def predict(self, *, wait: float = 60.0, **fields: object) -> Mapping[str, Any]:
        """Predict memory and time of the current batch on a catalogue GPU.

        Args:
            wait: Seconds to wait for the answer.
            **fields: As :meth:`analyze` takes them.

        Raises:
            NotFinished: It takes longer.
        """
        return self._look_up("/predict/", fields, wait)

    def plan(self, *, wait: float = 180.0, **fields: object) -> Mapping[str, Any]:
        """Predict the ladder of moves, and every catalogue GPU; otherwise as :meth:`predict`."""
        return self._look_up("/plan/", fields, wait)

    def compare(self, numbers: Iterable[int], base: int | None = None) -> Mapping[str, Any]:
        """Compare two to 24 analyses with ``base``, by default the first."""
        ids = ",".join(f"{number:d}" for number in numbers)
        found: Mapping[str, Any] = self._connection.get("/compare/", {"ids": ids, "base": base})
        return found

    def savings(self, **selection: object) -> Mapping[str, Any]:
        """Savings per year from the recommendations, realised and potential.

        Args:
            **selection: The same as on the page: ``by``, ``member``, ``model``, ``gpu``, ``month``,
                ``kind``.
        """
        found: Mapping[str, Any] = self._connection.get("/savings/", selection)
        return found

    def push(
        self,
        request: AnalysisRequest | ProgramRequest,
        result: AnalysisResult | TextResult,
        *,
        started_at: datetime,
        finished_at: datetime,
        ran: str = "a Python program",
        assumed: Mapping[str, object] | None = None,
        project: str = "",
        ladder: Sequence[Rung] = (),
    ) -> Delivery:
        """Add an analysis that ran here to the lab's history.

        It is written to the outbox first, so an unavailable lab gets it the next time. The
        arguments are those of :func:`engine.client.outbox.analysis_document`.
        """
        document = analysis_document(
            request,
            result,
            started_at=started_at,
            finished_at=finished_at,
            ran=ran,
            assumed=assumed,
            project=project,
            ladder=ladder,
        )
        return self.keep("analysis", document)

    def report(self, record: TrainingRecord) -> Delivery:
        """Send the lab the record of a training run, through the outbox like :meth:`push`."""
        return self.keep("training", training_document(record))

    def import_jobs(self, jobs: Sequence[JobRecord]) -> ImportedJobs:
        """Import training jobs that a scheduler or tracker reports; sent twice, stored once.

        They bypass the outbox: what reports them still has them the next time.
        """
        found = ImportedJobs()
        for first in range(0, len(jobs), JOBS_AT_ONCE):
            some = [job.to_dict() for job in jobs[first : first + JOBS_AT_ONCE]]
            found += ImportedJobs.of(
                self._connection.send(
                    "POST", "/training-jobs/", {"jobs": some}, timeout_seconds=60.0
                )
            )
        return found

    def keep(self, kind: str, document: Mapping[str, object]) -> Delivery:
        """Write a document to the outbox and send the outbox; see :class:`Outbox`."""
        document_id = self.put(kind, document)
        return replace(self.send_outbox(), document_id=document_id)

    def put(self, kind: str, document: Mapping[str, object]) -> str:
        """Write a document to the outbox, to be sent with the others; returns its id."""
        entry = Entry(self.url, kind, document)
        self._outbox.put(entry)
        return entry.id

    def send_outbox(self) -> Delivery:
        """Send the outbox of this lab. What goes wrong is in the delivery, not raised."""
        return self._outbox.deliver(self.url, self._send)

    def documents_elsewhere(self) -> Mapping[str, int]:
        """Number of documents in the outbox for other addresses than this, by address."""
        return self._outbox.elsewhere(self.url)

    def readdress(self, old: str) -> int:
        """Address the documents for a lab's former address to this one; returns how many.

        Raises:
            OSError: If the outbox cannot be written.
        """
        return self._outbox.readdress(old.rstrip("/"), self.url)

    @property
    def outbox_folder(self) -> Path:
        """The folder of documents that could not be sent yet."""
        return self._outbox.folder

    @property
    def _outbox(self) -> Outbox:
        return Outbox(connection.outbox_folder())

    def _send(self, entry: Entry) -> Any:
        if entry.kind not in _PATHS:
            raise ValueError(f"this version does not know this kind of document: {entry.kind}")
        # The document is safe on disk, so a lab that is down need not be waited for.
        return self._connection.send(
            "POST", _PATHS[entry.kind], entry.document, tries=2, timeout_seconds=10.0
        )

    def _settle(self, number: int, verb: str, holds: Callable[[Analysis], bool]) -> Analysis:
        """Do something once; on a conflict, check whether it has been done already."""
        try:
            return Analysis.of(self._connection.send("POST", f"/analyses/{number:d}/{verb}/"))
        except Refused as error:
            if error.status == _CONFLICT and holds(found := self.analysis(number)):
                return found
            raise

    def _look_up(self, path: str, fields: Mapping[str, object], wait: float) -> Mapping[str, Any]:
        end, pause = time.monotonic() + wait, POLL_SECONDS
        query = {"wait": min(wait, 10.0)}
        found = self._connection.send("POST", path, fields, query, timeout_seconds=40.0)
        while found["answer"] is None:
            _check_alive(found)
            if (left := end - time.monotonic()) <= 0:
                raise NotFinished(f"The lab did not answer within {wait:,.0f} s; try again.")
            time.sleep(min(pause, left))
            pause = min(pause * 1.2, MAX_PAUSE_SECONDS)
            found = self._connection.get(f"/lookups/{found['id']:d}/")
        answer: Mapping[str, Any] = found["answer"]
        return answer


def _read(answer: Response) -> Analysis:
    return Analysis.of(answer.body, answer.version)


def _check_alive(query: Mapping[str, Any]) -> None:
    """Raise the failure of a query that ended without an answer."""
    if query["status"] in ("waiting", "running"):
        return
    failure = query["failure"] or {}
    if wrong := failure.get("fields"):
        raise InvalidInput(wrong)
    raise LabError(failure.get("reason") or f"The lab has {query['status']} this; try again.")
