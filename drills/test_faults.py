"""The table of faults: nothing is lost or doubled, and what it says is what happened."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.console import Console

from drills.__main__ import main, show
from drills.faults import FAULTS, Outcome
from drills.proxy import CONFIGURATION, NoProxy, configured, installed
from drills.two_sites import Seen, outcome

WELL = Outcome("engine killed", "engine", "SQLite", submitted=6, recovery_seconds=1.5)


@pytest.mark.parametrize(
    "found",
    [
        {"lost": 1},
        {"doubled": 1},
        {"recovery_seconds": None},
        {"failed_pages": 1},
    ],
)
def test_a_fault_that_costs_something_is_not_well(found: dict[str, int | None]) -> None:
    assert WELL.is_well
    assert not replace(WELL, **found).is_well  # type: ignore[arg-type]


def test_a_fault_that_cannot_be_tried_is_no_failure_and_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    left_out = Outcome("disk full 10 s", "data folder", "SQLite", not_run="only root may")
    assert left_out.is_well
    show([WELL, left_out], 3.0, Console(width=120))
    said = capsys.readouterr().out
    assert "not run, only root may" in said
    assert "1.5" in said


def _seen(pages: list[tuple[float, float]], submitted: int) -> Seen:
    return Seen(submitted={f"{n}": n for n in range(submitted)}, answered=pages)


def test_members_go_on_once_each_has_had_a_page() -> None:
    seen = [_seen([(1.0, 2.0), (10.5, 11.0)], 2), _seen([(9.9, 12.5), (12.6, 13.0)], 1)]
    found = outcome(seen, 10.0, {"sent": 3, "succeeded": 3})
    assert (found.submitted, found.lost, found.doubled) == (3, 0, 0)
    assert found.recovery_seconds == 3.0  # the page in hand at 10.0 may be the other site's

    seen[1].answered.pop()
    assert not outcome(seen, 10.0, {"sent": 3, "succeeded": 3}).is_well


def test_what_members_sent_is_compared_with_what_the_lab_has() -> None:
    seen = [_seen([(10.5, 11.0)], 3)]
    assert outcome(seen, 10.0, {"sent": 3, "succeeded": 2}).lost == 1
    assert outcome(seen, 10.0, {"sent": 4, "succeeded": 4}).doubled == 1


def test_the_documented_configuration_is_refused_once_it_lacks_a_place() -> None:
    text = CONFIGURATION.read_text()
    assert "127.0.0.1:9;" in configured(text, {"server 127.0.0.1:8000;": "server 127.0.0.1:9;"})
    with pytest.raises(ValueError, match="listen 8443"):
        configured(text, {"listen 8443 ssl;": "listen 1 ssl;"})


@pytest.mark.slow
@pytest.mark.torch
def test_faults_lose_nothing_and_double_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--heartbeat", "1", "--analyses", "2", "--seconds", "0.5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["faults"]
    assert len(found) == len(FAULTS) + 1
    assert {(one["lost"], one["doubled"]) for one in found} == {(0, 0)}
    assert found[-1]["not_run"]  # two sites need PostgreSQL


@pytest.mark.slow
@pytest.mark.torch
def test_a_server_that_restarts_costs_nothing(
    postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--only", "restarted, away", "--postgres", postgres_url, "--json"]
    assert main([*arguments, "--heartbeat", "1", "--analyses", "2", "--seconds", "0.5"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["faults"]
    if found["not_run"]:
        pytest.skip(found["not_run"])
    assert (found["submitted"], found["lost"], found["doubled"]) == (2, 0, 0)


@pytest.mark.slow
@pytest.mark.torch
def test_members_behind_a_proxy_notice_no_dying_site(
    postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        installed()
    except NoProxy as reason:
        pytest.skip(str(reason))
    arguments = ["--only", "behind nginx", "--postgres", postgres_url, "--json"]
    assert main(arguments) == 0
    (found,) = json.loads(capsys.readouterr().out)["faults"]
    assert found["submitted"] >= 8
    assert (found["lost"], found["doubled"], found["failed_pages"]) == (0, 0, 0)
