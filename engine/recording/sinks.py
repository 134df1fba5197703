"""Where a record goes when a training is over.

A sink is a callable that takes the record. What it raises is told by a warning, and the record is
written into that warning, so neither the training nor the record is lost.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import EngineError
from engine.recording.record import TrainingRecord

if TYPE_CHECKING:
    from engine.client import Lab

logger = logging.getLogger(__name__)

Sink = Callable[[TrainingRecord], None]


def to_file(path: str | Path) -> Sink:
    """A sink that appends each record to a file as one line of JSON.

    The folder is made, and the file opened, at once: a wrong path is told before hours of training.

    Args:
        path: Of the file; several trainings at once may share it on a local disk.

    Raises:
        OSError: If it cannot be written.
    """
    file = Path(path).absolute()  # a training may change the working directory
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab"):
        pass
    return partial(_append, file)


def to_lab(lab: Lab | None = None) -> Sink:
    """A sink that reports each record to the lab's site.

    The address and the token are looked at at once: what is missing is told before hours of
    training. A lab that is away gets the record later: see :mod:`engine.client.outbox`.

    Args:
        lab: Which one, and as whom; that of the environment unless given.

    Raises:
        Misconfigured: If it is not known which lab, or as whom.
    """
    from engine.client import Lab  # which knows what a record is

    return partial(_report, lab or Lab())


def _report(lab: Lab, record: TrainingRecord) -> None:
    delivery = lab.report(record)
    if delivery.refusal:
        folder = lab.outbox_folder / "rejected"
        raise EngineError(f"the lab refused the record, now in {folder}: {delivery.refusal}")
    if delivery.answer is None:
        why = delivery.problem or "another process is sending"
        logger.warning("the record waits in %s to be sent: %s", lab.outbox_folder, why)


def _append(path: Path, record: TrainingRecord) -> None:
    line = json.dumps(record.to_dict()).encode() + b"\n"
    # One write to a file opened for appending: lines of several processes do not mix.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        written = os.write(descriptor, line)
        if written != len(line):
            raise OSError(f"only {written:,} of {len(line):,} bytes of the record were written")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
