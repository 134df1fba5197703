"""``--recorded FILE``: a training run that shows how fast the machine's host is."""

from __future__ import annotations

import argparse
from typing import Any

from ..interface.request import Request
from ..records.comparison import RecordedFile
from ..records.reading import FIELD, recorded_for

FLAG = "--recorded"


def add_recorded_flag(parser: Any) -> None:
    """Add the flag to a command that predicts."""
    parser.add_argument(
        FLAG,
        dest=FIELD,
        metavar="FILE",
        help="what memorymark.recording or `measure --json` wrote on that GPU: its steps tell the "
        "launch time, instead of --launch-microseconds",
    )


def recorded_of(options: argparse.Namespace, request: Request) -> RecordedFile | None:
    """The file that the flag names; ``None`` without it.

    Raises:
        InvalidInput: As :func:`~engine.records.reading.recorded_for` says.
    """
    return recorded_for(request, options.recorded)
