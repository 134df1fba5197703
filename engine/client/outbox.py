"""Documents on their way to a lab: each is a file until the lab has it, or refuses it for good.

A document is written whole before it is sent, so neither a lab that is away nor the end of this
process loses it. While one process sends a file it holds a lock on it, which ends with the process;
another skips that file. Should the answer get lost, the document is sent again with the same id,
and the lab keeps it once.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.client.errors import LabError, Refused

_REJECTED = "rejected"
_THE_DOCUMENTS_FAULT = (400, 409, 413, 415, 422)
"""Sent again, such a document would be refused again; anything else may change."""


@dataclass(frozen=True)
class Entry:
    """A document in the outbox.

    Attributes:
        lab: The address of the lab it is for: no other gets it.
        kind: ``analysis`` or ``training``.
    """

    lab: str
    kind: str
    document: Mapping[str, object]

    @property
    def id(self) -> str:
        """By which the lab keeps it once."""
        return str(self.document["id"])


@dataclass(frozen=True)
class Delivery:
    """What became of an outbox.

    Attributes:
        answers: The lab's answer for each document that it has now, by the document's id.
        rejected: Why the lab does not take a document, by its path in ``rejected``.
        waiting: How many documents for this lab stay for the next time.
        problem: Why they do; empty if none does, or another process is sending them.
        document_id: Of the document just put there, if one was.
    """

    answers: Mapping[str, Any] = field(default_factory=dict)
    rejected: Mapping[Path, str] = field(default_factory=dict)
    waiting: int = 0
    problem: str = ""
    document_id: str = ""

    @property
    def answer(self) -> Any:
        """The lab's answer to the document just put there; ``None`` while it waits."""
        return self.answers.get(self.document_id)

    @property
    def refusal(self) -> str:
        """Why the lab does not take the document just put there; empty if it does, or waits."""
        reasons = (why for path, why in self.rejected.items() if self._is_of_it(path))
        return next(reasons, "")

    def _is_of_it(self, path: Path) -> bool:
        return bool(self.document_id) and path.stem.endswith(self.document_id)


class Outbox:
    """The folder; made when something is put into it, readable by its owner alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, entry: Entry) -> Path:
        """Write a document down, whole or not at all; it is on the disk when this returns.

        Raises:
            OSError: If it cannot be written.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / f"{time.time_ns():020d}-{entry.id}.json"
        unfinished = path.with_suffix(".unfinished")
        text = json.dumps(
            {"lab": entry.lab, "kind": entry.kind, "document": entry.document}, allow_nan=False
        )
        with os.fdopen(os.open(unfinished, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        unfinished.rename(path)
        _sync(self.folder)
        return path

    def waiting(self, lab: str) -> list[Path]:
        """The documents for a lab that are still here, oldest first; unreadable ones too."""
        return [path for path in self._paths() if _lab_of(path) in (lab, None)]

    def deliver(self, lab: str, send: Callable[[Entry], Any]) -> Delivery:
        """Send what waits for a lab, oldest first, until the lab is away or all is sent.

        Args:
            lab: Its address.
            send: Sends one document, and raises a :class:`LabError` where the lab does not take it.
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
        """Put a document aside, with the reason beside it."""
        aside = self.folder / _REJECTED / path.name
        aside.parent.mkdir(mode=0o700, exist_ok=True)
        aside.with_suffix(".reason.txt").write_text(reason + "\n")
        path.rename(aside)
        return aside


def _read(path: Path) -> Entry:
    given = json.loads(path.read_text())
    return Entry(str(given["lab"]), str(given["kind"]), dict(given["document"]))


def _lab_of(path: Path) -> str | None:
    """The lab that a document is for; ``None`` where that cannot be read."""
    try:
        return _read(path).lab
    except FileNotFoundError:
        return ""  # another process has sent it meanwhile
    except (ValueError, KeyError, TypeError):
        return None


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold a file; false where another process holds it, or has sent it meanwhile."""
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
    """Have the folder's entries on the disk too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
