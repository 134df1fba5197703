"""Refusals name the command that helps: each of them is one that the command line has."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.core.errors import InvalidInput
from engine.gpus import canonical_name
from engine.script.factory import line_in


def test_a_gpu_that_is_not_in_the_catalogue_is_described_by_its_memory() -> None:
    with pytest.raises(InvalidInput) as refused:
        canonical_name("some-gpu-of-next-year")
    assert "--memory-limit" in str(refused.value.fields)


def test_an_error_names_the_users_line_and_not_the_launchers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def step():\n    raise ValueError('wrong')\n")
    scope: dict[str, object] = {}
    code = compile((tmp_path / "train.py").read_text(), str(tmp_path / "train.py"), "exec")
    exec(code, scope)  # noqa: S102  # as a launcher does
    with pytest.raises(ValueError, match="wrong") as failed:
        scope["step"]()  # type: ignore[operator]  # a function of the script
    assert "train.py, line 2" in line_in(tmp_path, failed.value)
