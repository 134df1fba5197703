from __future__ import annotations

import pytest

from drills.clients import main

pytestmark = [pytest.mark.slow, pytest.mark.torch]

FEW = ["--clients", "12", "--seconds", "4", "--pause", "0.2"]


def test_many_clients_lose_nothing_and_double_nothing_on_sqlite(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(FEW) == 0
    said = capsys.readouterr().out
    assert "errors: 0" in said
    assert said.count("0 lost, 0 doubled") == 2


def test_many_clients_lose_nothing_and_double_nothing_on_postgresql(postgres_url: str) -> None:
    assert main([*FEW, "--postgres", postgres_url]) == 0
