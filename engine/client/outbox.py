"""Documents on their way to a lab: each is a file until the lab has it or refuses it for good.

A document is written in full before it is sent, so it survives an unavailable lab and the end of
this process. A process locks each file while sending it, and others skip locked files. If the
answer gets lost, the document is sent again with the same id, and the lab stores it once.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..prediction.timing.speed_model import STEP_PREDICTOR, step_predictor
from ..traces.fingerprint import fingerprint
from .errors import LabError, Refused

if TYPE_CHECKING:  # callers that have one have loaded its module
    from ..answer.ladder import Rung
    from ..interface.program import ProgramRequest
    from ..interface.request import AnalysisRequest
    from ..interface.result import AnalysisResult
    from ..interface.texts import TextResult
    from ..records.record import TrainingRecord

SCHEMA_VERSION = 1
"""Version of the analysis document. A lab refuses versions that it does not know."""

_PACKAGES = ("torch", "transformers", "peft")


def analysis_document(
    request: AnalysisRequest | ProgramRequest,
    result: AnalysisResult | TextResult,
    *,
    started_at: datetime,
    finished_at: datetime,
    ran: str,
    assumed: Mapping[str, object] | None = None,
    project: str = "",
    ladder: Sequence[Rung] = (),
) -> dict[str, object]:
    """An analysis that ran here, for the lab's history.

    Args:
        request: Its settings; those of a script as ``ScriptRequest.for_lab`` gives them.
        result: Its result, with the trials; or one about texts.
        started_at: Time of its start, with a time zone.
        finished_at: Time of its end.
        ran: The program, such as ``memorymark analyze``.
        assumed: Hours, runs and price, where the user set them. For the others the lab uses its
            own defaults when it computes savings.
        project: The lab's project that it belongs to; empty for none.
        ladder: The rungs of a script's plan, in order.

    Returns:
        Plain JSON values, with an id so that the lab stores it once.
    """
    assumptions = asdict(request.assumptions).keys()
    given = {name: value for name, value in (assumed or {}).items() if value not in (None, "")}
    settings = {name: value for name, value in request.to_dict().items() if name not in assumptions}
    planned = {"ladder": [rung.to_dict() for rung in ladder]} if ladder else {}
    return (
        planned
        | {
            "schema_version": SCHEMA_VERSION,
            "id": str(uuid.uuid4()),
            "request": settings | {name: given[name] for name in assumptions & given.keys()},
            "result": result.to_dict(),
            "started_at": started_at.astimezone(UTC).isoformat(),
            "finished_at": finished_at.astimezone(UTC).isoformat(),
            "origin": {"host": socket.gethostname(), "ran": ran},
            "environment": environment(),
        }
        | ({"project": project} if project else {})
    )


def training_document(record: TrainingRecord) -> dict[str, object]:
    """The record of a training run here, with its id, so that the lab stores it once."""
    return {"id": record.id, "host": socket.gethostname(), "record": record.to_dict()}


def environment() -> dict[str, str]:
    found = {
        "engine": fingerprint(),
        STEP_PREDICTOR: step_predictor(),
        "python": platform.python_version(),
    }
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


_REJECTED = "rejected"
_THE_DOCUMENTS_FAULT = (400, 409, 413, 415, 422)
"""Statuses that will not change if the document is sent again; all others may."""


@dataclass(frozen=True)
class Entry:
    """A document in the outbox.

    Attributes:
        lab: The address of the lab that it is for; it is sent to no other.
        kind: ``analysis`` or ``training``.
    """

    lab: str
    kind: str
    document: Mapping[str, object]

    @property
    def id(self) -> str:
        """Idempotency key: the lab stores each only once."""
        return str(self.document["id"])


@dataclass(frozen=True)
class Delivery:
    """The outcome of sending an outbox.

    Attributes:
        answers: The lab's answer to each accepted document, by the document's id.
        rejected: The reason for each refused document, by its path in ``rejected``.
        waiting: Number of documents for this lab that are left for the next time.
        problem: Reason why they are left; empty if none are, or another process is sending them.
        document_id: The id of the document just added, if any.
    """

    answers: Mapping[str, Any] = field(default_factory=dict)
    rejected: Mapping[Path, str] = field(default_factory=dict)
    waiting: int = 0
    problem: str = ""
    document_id: str = ""

    @property
    def answer(self) -> Any:
        """The lab's answer to the document just added; ``None`` while it waits."""
        return self.answers.get(self.document_id)

    @property
    def refusal(self) -> str:
        """Why the lab refused the document just added; empty if it did not."""
        reasons = (why for path, why in self.rejected.items() if self._is_of_it(path))
        return next(reasons, "")

    def _is_of_it(self, path: Path) -> bool:
        return bool(self.document_id) and path.stem.endswith(self.document_id)


class Outbox:
    """The folder of documents to send; created when first used, readable by its owner only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, entry: Entry) -> Path:
        """Write a document in full or not at all; it is on disk when this returns.

        Raises:
            OSError: If it cannot be written.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / f"{time.time_ns():020d}-{entry.id}.json"
        self._write(path, entry)
        return path

    def _write(self, path: Path, entry: Entry) -> None:
        unfinished = path.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)  # of a process that was killed
        text = json.dumps(
            {"lab": entry.lab, "kind": entry.kind, "document": entry.document}, allow_nan=False
        )
        with os.fdopen(os.open(unfinished, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        unfinished.rename(path)
        _sync(self.folder)

    def elsewhere(self, lab: str) -> Mapping[str, int]:
        """Number of documents for other addresses than this lab's, by address."""
        labs = Counter(_lab_of(path) for path in self._paths())
        return {other: count for other, count in labs.items() if other and other != lab}

    def readdress(self, old: str, lab: str) -> int:
        """Address the documents for one lab to another, as after it has moved; returns how many.

        Raises:
            OSError: If one cannot be written; those before it are readdressed.
        """
        count = 0
        for path in self._paths():
            with _locked(path) as is_ours:
                if is_ours and _lab_of(path) == old:
                    self._write(path, replace(_read(path), lab=lab))
                    count += 1
        return count

    def waiting(self, lab: str) -> list[Path]:
        """The documents left for a lab, oldest first, including unreadable ones."""
        return [path for path in self._paths() if _lab_of(path) in (lab, None)]

    def deliver(self, lab: str, send: Callable[[Entry], Any]) -> Delivery:
        """Send the documents for a lab, oldest first, until the lab is unavailable or all are sent.

        Args:
            lab: Its address.
            send: Sends one document; raises :class:`LabError` if the lab does not accept it.
        """
        answers: dict[str, Any] = {}
        rejected: dict[Path, str] = {}
        problem = ""
        for path in self._paths():
            with _locked(path) as is_ours:
                if not is_ours:
                    continue
                try:
                    entry = _read(path)
                    if entry.lab != lab:
                        continue
                    answers[entry.id] = send(entry)
                    path.unlink()
                except (ValueError, KeyError, TypeError) as error:
                    reason = f"It cannot be read: {error!r}"
                    rejected[self._reject(path, reason)] = reason
                except Refused as error:
                    if error.status not in _THE_DOCUMENTS_FAULT:
                        problem = str(error)
                        break
                    rejected[self._reject(path, str(error))] = str(error)
                except LabError as error:
                    problem = str(error)
                    break
        return Delivery(answers, rejected, len(self.waiting(lab)), problem)

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("*.json"))

    def _reject(self, path: Path, reason: str) -> Path:
        """Move a document aside and write the reason next to it."""
        aside = self.folder / _REJECTED / path.name
        aside.parent.mkdir(mode=0o700, exist_ok=True)
        aside.with_suffix(".reason.txt").write_text(reason + "\n")
        path.rename(aside)
        return aside


def _read(path: Path) -> Entry:
    given = json.loads(path.read_text())
    return Entry(str(given["lab"]), str(given["kind"]), dict(given["document"]))


def _lab_of(path: Path) -> str | None:
    """The lab that a document is for; ``None`` if it cannot be read."""
    try:
        return _read(path).lab
    except FileNotFoundError:
        return ""  # another process has just sent it
    except (ValueError, KeyError, TypeError):
        return None


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Lock a file; false if another process has locked it or has just sent it."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        yield False
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield _is_there(path, file.fileno())


def _is_there(path: Path, descriptor: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    return False


def _sync(folder: Path) -> None:
    """Flush the folder's entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
