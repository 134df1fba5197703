"""A lab's site, as a member's script sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from engine.client import settings
from engine.client.connection import Answer, Connection
from engine.client.documents import analysis_document, training_document
from engine.client.errors import LabError, NotFinished, Refused
from engine.client.outbox import Delivery, Entry, Outbox
from engine.client.settings import Settings
from engine.errors import InvalidInput
from engine.recording.record import TrainingRecord
from engine.request import AnalysisRequest
from engine.result import AnalysisResult

ASK_EVERY_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 20.0
"""For one answer: a proxy in between may not have more patience."""

LONGEST_PAUSE_SECONDS = 5.0
"""What takes long is asked about more rarely."""

_PATHS = {"analysis": "/analyses/import/", "training": "/trainings/"}
_FINAL = ("succeeded", "failed", "cancelled", "lost")
_CONFLICT = 409


@dataclass(frozen=True)
class Analysis:
    """An analysis of the lab.

    Attributes:
        status: ``queued``, ``running``, ``cancelling``, ``succeeded``, ``failed``, ``cancelled`` or
            ``lost``.
        source: ``measured`` or ``predicted``; empty without an answer.
        verdict: The answer in one sentence; empty without one, and in lists.
        failure: Why there is none, if it has failed.
        adopted: Whether its recommendation is followed.
        tags: A to Z.
        facts: Everything the lab says of it, as its API does.
        version: Of what was read, for :meth:`Lab.label`; empty in lists and of what is new.
    """

    id: int
    url: str
    owner: str
    status: str
    model: str
    gpu: str
    current_batch_size: int
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

    @property
    def is_final(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status in _FINAL

    @classmethod
    def of(cls, facts: Mapping[str, Any], version: str = "") -> Analysis:
        """Read what the API says, and of which version.

        Raises:
            LabError: If it is no analysis.
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
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise LabError(f"The lab answered something that is no analysis: {error!r}") from error


class Lab:
    """What a member can ask of the lab's site.

    Args:
        url: The site's address; else ``MEMORYMARK_URL``.
        token: Of the page *API tokens*; else ``MEMORYMARK_TOKEN``.
        allow_http: Whether the token may go over a network unencrypted; else
            ``MEMORYMARK_ALLOW_HTTP``. To this machine it always may.
        timeout_seconds: For each answer.

    Raises:
        Misconfigured: By every method too, if what answers at the address is no lab.

    Every method raises a :class:`~engine.client.errors.LabError`: ``Refused`` with the lab's words
    for each field, ``NotAllowed`` and ``NotFound`` among them, or ``Unavailable`` if the lab is
    away or busy after several tries.
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
        """Ask for an analysis.

        Args:
            wait: So many seconds at most for its end; not at all with 0.
            **fields: Those of :class:`engine.request.AnalysisRequest`, such as ``model``, ``gpu``,
                ``current_batch_size``, ``precision``.

        Raises:
            NotFinished: It goes on, longer than one wanted to wait.
        """
        asked = Analysis.of(self._connection.send("POST", "/analyses/", fields))
        return self.wait(asked.id, wait) if wait else asked

    def wait(self, number: int, seconds: float) -> Analysis:
        """An analysis when it has ended.

        Raises:
            NotFinished: After so many seconds it has not.
        """
        end, pause = time.monotonic() + seconds, ASK_EVERY_SECONDS
        while not (found := self._when_final(number, end)).is_final:
            if (left := end - time.monotonic()) <= 0:
                raise NotFinished(f"Analysis {number} is {found.status}; see {found.url}")
            # The lab answers at once if too many wait there already.
            time.sleep(min(pause, left))
            pause = min(pause * 1.2, LONGEST_PAUSE_SECONDS)
        return found

    def _when_final(self, number: int, end: float) -> Analysis:
        """An analysis as soon as it has ended, or after a while: the lab waits, not we."""
        seconds = round(max(0.0, min(end - time.monotonic(), LONGEST_WAIT_SECONDS)), 3)
        path, query = f"/analyses/{number:d}/", {"wait": seconds}
        return _read(
            self._connection.exchange("GET", path, query=query, timeout_seconds=30.0 + seconds)
        )

    def analysis(self, number: int) -> Analysis:
        """One analysis, whole."""
        return _read(self._connection.exchange("GET", f"/analyses/{number:d}/"))

    def analyses(self, **filters: object) -> Iterator[Analysis]:
        """The lab's analyses, newest first; page after page as one goes on.

        Args:
            **filters: Those of the history, such as ``member``, ``model``, ``gpu``, ``status``,
                ``tag``, ``adopted``, ``sort``.
        """
        number = 1
        while True:
            page = self._connection.get("/analyses/", {**filters, "page": number})
            yield from map(Analysis.of, page["results"])
            # The address of the next page stands in the answer, but the token is for ours only.
            if page["next"] is None:
                return
            number += 1

    def cancel(self, number: int) -> Analysis:
        """End an analysis of one's own; one that has ended stays as it is."""
        return self._settle(number, "cancel", lambda found: found.is_final)

    def adopt(self, number: int) -> Analysis:
        """Say that the recommended batch is trained with; saying it twice changes nothing."""
        return self._settle(number, "adopt", lambda found: found.adopted)

    def label(
        self,
        number: int,
        *,
        tags: Iterable[str] | None = None,
        note: str | None = None,
        version: str | None = None,
    ) -> Analysis:
        """Write the tags or the note of an analysis, of anybody's; ``None`` leaves them.

        Args:
            number: Of the analysis.
            tags: All that it is to have.
            note: Empty removes it.
            version: As it was read; without it the last writer wins.

        Raises:
            Changed: Somebody has written them since; nothing was done.
        """
        # A text would be taken for its letters; the lab says what is wrong with it.
        names = tags if tags is None or isinstance(tags, str) else list(tags)
        given = {"tags": names, "note": note}
        body = {name: value for name, value in given.items() if value is not None}
        path = f"/analyses/{number:d}/"
        return _read(self._connection.exchange("PATCH", path, body, version=version))

    def predict(self, *, wait: float = 60.0, **fields: object) -> Mapping[str, Any]:
        """Memory and time of the current batch on a GPU of the catalogue, predicted.

        Args:
            wait: Seconds.
            **fields: As :meth:`analyze` takes them.

        Raises:
            NotFinished: It takes longer.
        """
        return self._look_up("/predict/", fields, wait)

    def plan(self, *, wait: float = 180.0, **fields: object) -> Mapping[str, Any]:
        """Every GPU of the catalogue, and what changes would buy, predicted; as :meth:`predict`."""
        return self._look_up("/plan/", fields, wait)

    def compare(self, numbers: Iterable[int], base: int | None = None) -> Mapping[str, Any]:
        """Two to ten analyses side by side; differences are from ``base``, else the first."""
        ids = ",".join(f"{number:d}" for number in numbers)
        found: Mapping[str, Any] = self._connection.get("/compare/", {"ids": ids, "base": base})
        return found

    def savings(self, **selection: object) -> Mapping[str, Any]:
        """What the recommendations save per year, realised and potential.

        Args:
            **selection: As on the page: ``by``, ``member``, ``model``, ``gpu``, ``month``,
                ``kind``.
        """
        found: Mapping[str, Any] = self._connection.get("/savings/", selection)
        return found

    def push(
        self,
        request: AnalysisRequest,
        result: AnalysisResult,
        *,
        started_at: datetime,
        finished_at: datetime,
        ran: str = "a Python program",
        assumed: Mapping[str, object] | None = None,
    ) -> Delivery:
        """Put an analysis that ran here into the lab's history.

        It is written into the outbox first, so a lab that is away gets it the next time. The
        arguments are those of :func:`engine.client.documents.analysis_document`.
        """
        document = analysis_document(
            request,
            result,
            started_at=started_at,
            finished_at=finished_at,
            ran=ran,
            assumed=assumed,
        )
        return self.keep("analysis", document)

    def report(self, record: TrainingRecord) -> Delivery:
        """Tell the lab what a training used; by way of the outbox, as :meth:`push`."""
        return self.keep("training", training_document(record))

    def keep(self, kind: str, document: Mapping[str, object]) -> Delivery:
        """Write a document into the outbox and send what is there; see :class:`Outbox`."""
        entry = Entry(self.url, kind, document)
        self._outbox.put(entry)
        return replace(self.send_outbox(), document_id=entry.id)

    def send_outbox(self) -> Delivery:
        """Send what waits for this lab; raises nothing that the delivery can say."""
        return self._outbox.deliver(self.url, self._send)

    @property
    def outbox_folder(self) -> Path:
        """Where documents wait that could not be sent yet."""
        return self._outbox.folder

    @property
    def _outbox(self) -> Outbox:
        return Outbox(settings.outbox_folder())

    def _send(self, entry: Entry) -> Any:
        if entry.kind not in _PATHS:
            raise ValueError(f"a kind of document that this version does not know: {entry.kind}")
        # It is safe on the disk, so somebody who waits is not kept waiting for a lab that is away.
        return self._connection.send(
            "POST", _PATHS[entry.kind], entry.document, tries=2, timeout_seconds=10.0
        )

    def _settle(self, number: int, verb: str, holds: Callable[[Analysis], bool]) -> Analysis:
        """Have something done; a lab that says "done already" is asked whether that is so."""
        try:
            return Analysis.of(self._connection.send("POST", f"/analyses/{number:d}/{verb}/"))
        except Refused as error:
            if error.status == _CONFLICT and holds(found := self.analysis(number)):
                return found
            raise

    def _look_up(self, path: str, fields: Mapping[str, object], wait: float) -> Mapping[str, Any]:
        end, pause = time.monotonic() + wait, ASK_EVERY_SECONDS
        query = {"wait": min(wait, 10.0)}
        found = self._connection.send("POST", path, fields, query, timeout_seconds=40.0)
        while found["answer"] is None:
            _check_alive(found)
            if (left := end - time.monotonic()) <= 0:
                raise NotFinished(f"The lab has not answered within {wait:,.0f} s; ask again.")
            time.sleep(min(pause, left))
            pause = min(pause * 1.2, LONGEST_PAUSE_SECONDS)
            found = self._connection.get(f"/lookups/{found['id']:d}/")
        answer: Mapping[str, Any] = found["answer"]
        return answer


def _read(answer: Answer) -> Analysis:
    return Analysis.of(answer.body, answer.version)


def _check_alive(lookup: Mapping[str, Any]) -> None:
    """Raise what a lookup has ended with that has no answer."""
    if lookup["status"] in ("waiting", "running"):
        return
    failure = lookup["failure"] or {}
    if wrong := failure.get("fields"):
        raise InvalidInput(wrong)
    raise LabError(failure.get("reason") or f"The lab has {lookup['status']} this; ask again.")
