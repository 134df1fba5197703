"""Where a record goes when a training is over.

A sink is a callable that takes the record. What it raises is told by a warning, and the record is
written into that warning, so neither the training nor the record is lost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from engine.recording.record import TrainingRecord

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
