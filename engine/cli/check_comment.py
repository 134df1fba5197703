"""``check --markdown FILE`` and ``--base FILE``: what a change does, as a comment on it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..answer.check import Check, read_check
from ..answer.check_comment import check_comment
from ..core.errors import InvalidInput

FLAGS = {"base": "--base", "markdown": "--markdown"}
"""The flags, by what errors name."""


def add_comment_flags(parser: Any) -> None:
    parser.add_argument(
        FLAGS["markdown"],
        metavar="FILE",
        help="also write the check as Markdown, for a comment on a pull request",
    )
    parser.add_argument(
        FLAGS["base"],
        metavar="FILE",
        help="what `check --json` printed before the change, for the comment to compare with",
    )


@dataclass(frozen=True)
class Comment:
    """The comment to write.

    Attributes:
        file: Its file; ``None`` for no comment.
        base: The check before the change, if that is known.
    """

    file: Path | None
    base: Check | None

    @classmethod
    def of(cls, options: argparse.Namespace) -> Comment:
        """The comment that the flags ask for.

        Raises:
            InvalidInput: If the base cannot be read, or nothing could be written.
        """
        file = Path(options.markdown) if options.markdown else None
        if file is not None and not file.resolve().parent.is_dir():
            raise InvalidInput({"markdown": f"there is no folder {file.parent}"})
        if options.base and file is None:
            raise InvalidInput({"base": "it is for the comment, so add --markdown FILE"})
        return cls(file, read_check(Path(options.base)) if options.base else None)

    def write(self, check: Check) -> None:
        if self.file is None:
            return
        try:
            self.file.write_text(check_comment(check, self.base), encoding="utf-8")
        except OSError as error:
            message = f"cannot be written: {error.strerror}"
            raise InvalidInput({"markdown": message}) from error
