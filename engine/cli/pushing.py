"""Pushing to the lab: results with ``--push``, and with ``push`` recorded runs and the outbox."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..client import Delivery, Lab
from ..client.outbox import training_document
from ..core.errors import InvalidInput
from ..interface.program import ProgramRequest
from ..interface.request import AnalysisRequest
from ..interface.result import AnalysisResult
from ..interface.texts import TextResult
from ..records.reading import read_records
from ..script.request import ScriptRequest
from .terminal import FAILED, OK

if TYPE_CHECKING:
    from ..answer.ladder import Rung

_SEND_AGAIN = "`memorymark push` sends it again"


def add_push_flag(parser: Any) -> None:
    parser.add_argument(
        "--push",
        action="store_true",
        help="add the result to the lab's history (MEMORYMARK_URL, MEMORYMARK_TOKEN)",
    )
    parser.add_argument(
        "--project",
        metavar="NAME",
        help="the lab's project that the result belongs to, with --push; made if it is new",
    )
    parser.set_defaults(ran=parser.prog)


def add_name_flag(parser: Any) -> None:
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="name of your script in the lab's history, with --push; default: that of its file",
    )


def push(options: argparse.Namespace) -> int:
    """Send files of recorded runs, then the outbox; fails unless all was sent and accepted."""
    lab = Lab()
    records = [record for path in options.files for record in read_records(path)]
    if options.analysis is not None and not records:
        raise InvalidInput({"analysis_id": "it is for the runs in a file; name the file too"})
    records = [
        record if record.analysis_id else replace(record, analysis_id=options.analysis)
        for record in records
    ]
    if options.readdress and not lab.readdress(options.readdress):
        _say(f"nothing in the outbox is for {options.readdress}")
    for record in records:
        lab.put("training", training_document(record))
    delivery = lab.send_outbox()
    _report_refused(delivery)
    reported = {record.id: record.analysis_id for record in records if record.analysis_id}
    for number in sorted({reported[one] for one in delivery.answers.keys() & reported.keys()}):
        _say(f"reported: {lab.url}/{number}/")
    left = f"{delivery.waiting} left" + (f": {delivery.problem}" if delivery.problem else "")
    _say(f"sent {len(delivery.answers)}, refused {len(delivery.rejected)}, {left}")
    for other, count in sorted(lab.documents_elsewhere().items()):
        _say(
            f"not sent: {count} for {other}, which is not MEMORYMARK_URL ({lab.url}); if the site "
            f"has moved here: memorymark push --readdress {other}"
        )
    return FAILED if delivery.waiting or delivery.rejected else OK


@dataclass(frozen=True)
class Pushing:
    """A result on its way to a lab.

    Attributes:
        assumed: The fields of the command; the lab has defaults for those that are left out.
        project: The lab's project that it belongs to; empty for none.
    """

    lab: Lab
    started_at: datetime
    ran: str
    assumed: dict[str, object]
    project: str

    @classmethod
    def of(cls, options: argparse.Namespace, given: dict[str, object]) -> Pushing | None:
        """Begin, so that a missing token is reported before the work; ``None`` without --push.

        Raises:
            InvalidInput: For ``project``, without --push.
        """
        if options.project and not options.push:
            raise InvalidInput({"project": "it is a lab project; add --push"})
        if not options.push:
            return None
        return cls(Lab(), datetime.now(UTC), options.ran, given, options.project or "")

    @staticmethod
    def name_of(options: argparse.Namespace, script: ScriptRequest) -> str:
        """The name under which a script is pushed, checked before the work; empty without --push.

        Raises:
            InvalidInput: For ``name``.
        """
        if options.name and not options.push:
            raise InvalidInput({"name": "it names the script in the lab; add --push"})
        return script.lab_name(options.name or "") if options.push else ""

    def send(
        self,
        request: AnalysisRequest | ProgramRequest,
        result: AnalysisResult | TextResult,
        ladder: Sequence[Rung] = (),
    ) -> bool:
        """Send a result, with the ladder of a script's plan, and report on stderr what happened.

        Returns:
            Whether the lab has it, or will get it later; false if it was refused.
        """
        lab = self.lab
        try:
            delivery = lab.push(
                request,
                result,
                started_at=self.started_at,
                finished_at=datetime.now(UTC),
                ran=self.ran,
                assumed=self.assumed,
                project=self.project,
                ladder=ladder,
            )
        except OSError as error:
            _say(
                f"error: not pushed, since the outbox cannot be used: {error}; set "
                "MEMORYMARK_OUTBOX"
            )
            return False
        _report_refused(delivery)
        if delivery.answer is not None:
            _say(f"pushed: {lab.url}/{delivery.answer['id']}/")
        elif delivery.waiting:
            _say(f"not pushed yet: {delivery.problem or 'another process is sending'}")
            _say(f"it is kept in {lab.outbox_folder}; {_SEND_AGAIN}")
        return not delivery.refusal


def _report_refused(delivery: Delivery) -> None:
    for path, reason in delivery.rejected.items():
        _say(f"error: the lab refused {path}: {reason}")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
