"""Output shown in a document, held against its command."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.cli.main import FAILED, OK, main


def assert_prints(
    arguments: Sequence[str],
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Run a command; each line shown is one that it prints, in this order.

    Args:
        arguments: Of ``memorymark``.
        shown: In the document; a line with ``…`` stands for any lines. One that begins with an
            error is that of a command that fails.
    """
    monkeypatch.setenv("COLUMNS", "88")
    is_refused = shown.startswith("error: ")
    assert main(arguments) == (FAILED if is_refused else OK)
    output = capsys.readouterr()
    text = output.err if is_refused else output.out
    printed = iter([line.rstrip() for line in text.splitlines()])
    for line in shown.splitlines():
        assert line in ("", "…") or line in printed, f"not printed, or in another order: {line}"
