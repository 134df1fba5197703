"""What a document shows of a command's output, held against the command."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.cli.main import main


def assert_prints(
    arguments: Sequence[str],
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Run a command; each line shown is one that it prints, in this order.

    Args:
        arguments: Of ``memorymark``.
        shown: In the document; a line with ``…`` stands for any lines.
    """
    monkeypatch.setenv("COLUMNS", "88")
    assert main(arguments) == 0
    printed = iter([line.rstrip() for line in capsys.readouterr().out.splitlines()])
    for line in shown.splitlines():
        assert line in ("", "…") or line in printed, f"not printed, or in another order: {line}"
