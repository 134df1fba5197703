from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.client.errors import LabError, NotAllowed, Refused, Unavailable
from engine.client.outbox import Entry, Outbox

LAB, OTHER = "https://lab.example", "https://other.example"


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return Outbox(tmp_path / "state" / "outbox")


def _entry(number: int, lab: str = LAB) -> Entry:
    return Entry(lab, "analysis", {"id": f"id-{number}", "figures": [number]})


def _files(outbox: Outbox) -> list[str]:
    return sorted(path.name for path in outbox.folder.rglob("*") if path.is_file())


def test_sent_documents_are_removed(outbox: Outbox) -> None:
    outbox.put(_entry(1))
    outbox.put(_entry(2))
    sent: list[Entry] = []

    def send(entry: Entry) -> dict[str, int]:
        sent.append(entry)
        return {"id": len(sent)}

    delivery = outbox.deliver(LAB, send)
    assert sent == [_entry(1), _entry(2)]  # oldest first
    assert delivery.answers == {"id-1": {"id": 1}, "id-2": {"id": 2}}
    assert (delivery.waiting, delivery.problem) == (0, "")
    assert not _files(outbox)


def test_only_the_owner_can_read_the_outbox(outbox: Outbox) -> None:
    path = outbox.put(_entry(1))

    assert path.stat().st_mode & 0o077 == 0
    assert outbox.folder.stat().st_mode & 0o077 == 0


def test_documents_for_an_unreachable_lab_are_sent_next_time(outbox: Outbox) -> None:
    for number in range(3):
        outbox.put(_entry(number))
    tried: list[str] = []

    def away(entry: Entry) -> None:
        tried.append(entry.id)
        raise Unavailable("the lab is away")

    delivery = outbox.deliver(LAB, away)
    assert tried == ["id-0"]  # trying the others is useless
    assert (delivery.waiting, delivery.problem) == (3, "the lab is away")
    assert len(outbox.deliver(LAB, lambda entry: {}).answers) == 3


@pytest.mark.parametrize("status", [400, 409, 413, 422])
def test_a_refused_document_is_set_aside_with_the_reason(outbox: Outbox, status: int) -> None:
    wrong, good = outbox.put(_entry(1)), outbox.put(_entry(2))

    def send(entry: Entry) -> dict[str, Any]:
        if entry.id == "id-1":
            raise Refused(status, "result.speedup: it does not follow from the trials", {})
        return {}

    delivery = outbox.deliver(LAB, send)
    assert list(delivery.answers) == ["id-2"]
    aside = outbox.folder / "rejected" / wrong.name
    assert list(delivery.rejected) == [aside]
    assert json.loads(aside.read_text())["document"]["figures"] == [1]
    assert "does not follow" in aside.with_suffix(".reason.txt").read_text()
    assert not good.exists()
    assert not outbox.waiting(LAB)


@pytest.mark.parametrize(
    "error", [NotAllowed(403, "may only read", {}), Refused(404, "no such page", {}), LabError("?")]
)
def test_a_document_refused_for_another_reason_stays_queued(
    outbox: Outbox, error: LabError
) -> None:
    outbox.put(_entry(1))

    def send(_entry: Entry) -> None:
        raise error

    delivery = outbox.deliver(LAB, send)
    assert (delivery.waiting, delivery.problem) == (1, str(error))
    assert not delivery.rejected


def test_a_document_is_only_sent_to_its_own_lab(outbox: Outbox) -> None:
    outbox.put(_entry(1, OTHER))
    outbox.put(_entry(2))

    assert list(outbox.deliver(LAB, lambda entry: {}).answers) == ["id-2"]
    assert len(outbox.waiting(OTHER)) == 1


def test_documents_for_a_former_address_can_be_readdressed(outbox: Outbox) -> None:
    for number, lab in ((1, OTHER), (2, LAB), (3, "https://third.example")):
        outbox.put(_entry(number, lab))
    names = _files(outbox)

    assert outbox.elsewhere(LAB) == {OTHER: 1, "https://third.example": 1}
    assert (outbox.readdress(OTHER, LAB), outbox.readdress(OTHER, LAB)) == (1, 0)
    assert _files(outbox) == names
    sent: list[Entry] = []
    assert list(outbox.deliver(LAB, sent.append).answers) == ["id-1", "id-2"]
    assert sent == [_entry(1), _entry(2)]
    assert outbox.elsewhere(LAB) == {"https://third.example": 1}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"lab": 1, "kind": 2, "document": 3}'])
def test_an_unreadable_file_does_not_block_the_others(outbox: Outbox, text: str) -> None:
    outbox.put(_entry(2))
    (outbox.folder / "0-broken.json").write_text(text)

    delivery = outbox.deliver(LAB, lambda entry: {})
    assert list(delivery.answers) == ["id-2"]
    assert [path.name for path in delivery.rejected] == ["0-broken.json"]
    assert not outbox.waiting(LAB)


def test_two_senders_do_not_send_a_document_twice(outbox: Outbox) -> None:
    outbox.put(_entry(1))
    sent: list[str] = []

    def send(entry: Entry) -> None:
        meanwhile = Outbox(outbox.folder).deliver(LAB, lambda other: sent.append(other.id))
        assert (meanwhile.answers, meanwhile.waiting, meanwhile.problem) == ({}, 1, "")
        sent.append(entry.id)

    outbox.deliver(LAB, send)
    assert sent == ["id-1"]


def test_a_document_sent_by_another_process_is_no_error(outbox: Outbox) -> None:
    outbox.put(_entry(1))
    outbox.put(_entry(2))
    sent: list[str] = []

    def send(entry: Entry) -> None:
        if not sent:
            sent.append(entry.id)
            Outbox(outbox.folder).deliver(LAB, lambda other: sent.append(other.id))
        else:
            sent.append(f"again {entry.id}")

    outbox.deliver(LAB, send)
    assert sent == ["id-1", "id-2"]


def test_a_killed_process_loses_nothing_and_leaves_no_lock(outbox: Outbox) -> None:
    outbox.put(_entry(1))
    program = """
import os, signal, sys
from pathlib import Path
from engine.client.outbox import Outbox
Outbox(Path(sys.argv[1])).deliver(sys.argv[2], lambda entry: os.kill(os.getpid(), signal.SIGKILL))
"""
    died = subprocess.run([sys.executable, "-c", program, str(outbox.folder), LAB])

    assert died.returncode == -9
    assert list(outbox.deliver(LAB, lambda entry: {}).answers) == ["id-1"]


def test_several_processes_send_each_document_once(outbox: Outbox, tmp_path: Path) -> None:
    for number in range(30):
        outbox.put(_entry(number))
    program = """
import os, sys
from pathlib import Path
from engine.client.outbox import Outbox
def send(entry):
    with open(sys.argv[3], "a") as log:
        log.write(entry.id + "\\n")
Outbox(Path(sys.argv[1])).deliver(sys.argv[2], send)
"""
    log = tmp_path / "sent"
    words = [sys.executable, "-c", program, str(outbox.folder), LAB, str(log)]
    for process in [subprocess.Popen(words) for _ in range(3)]:
        assert process.wait(60) == 0

    assert sorted(log.read_text().split()) == sorted(f"id-{number}" for number in range(30))


def test_a_half_written_document_is_ignored(outbox: Outbox) -> None:
    outbox.put(_entry(1))
    (outbox.folder / "1-x.unfinished").write_text("{")

    assert list(outbox.deliver(LAB, lambda entry: {}).answers) == ["id-1"]


def test_a_missing_outbox_is_empty(outbox: Outbox) -> None:
    delivery = outbox.deliver(LAB, lambda entry: {})

    assert (delivery.answers, delivery.waiting) == ({}, 0)
    assert not outbox.folder.exists()


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(OSError, match="file"):
        Outbox(tmp_path / "file" / "outbox").put(_entry(1))
    assert os.listdir(tmp_path) == ["file"]  # noqa: PTH208  # names alone, hidden ones too
