"""Load: it stays on this machine by default, and its percentiles are right."""

from __future__ import annotations

import shutil

import pytest

from drills.commands import answer, new_lab
from drills.load.__main__ import classes_for, main
from drills.load.locusts import LOCUST, latencies, percentile

CREDENTIALS = ("LOAD_TOKEN", "LOAD_MEMBER", "LOAD_PASSWORD")


def _entry(name: str, times: dict[str, int], failures: int = 0) -> dict[str, object]:
    return {
        "name": name,
        "num_requests": sum(times.values()),
        "num_failures": failures,
        "response_times": times,
        "start_time": 100.0,
        "last_request_timestamp": 110.0,
    }


@pytest.mark.parametrize(("share", "ms"), [(0.5, 10), (0.95, 20), (0.96, 300), (1.0, 300)])
def test_a_percentile_is_the_time_within_which_that_share_was_answered(
    share: float, ms: int
) -> None:
    assert percentile({300: 5, 10: 50, 20: 45}, share) == ms


def test_all_requests_together_are_counted_but_for_parts_of_others() -> None:
    entries = [
        _entry("list", {"10": 50}),
        _entry("compare six", {"300": 50}, failures=2),
        _entry("(each of six)", {"5": 300}),
    ]
    found = {one.name: one for one in latencies(entries)}
    assert set(found) == {"list", "compare six", "all"}
    everything = found["all"]
    assert (everything.requests, everything.errors, everything.per_second) == (100, 2, 10.0)
    assert (everything.p50_ms, everything.p99_ms) == (10, 300)
    assert latencies([]) == []


def test_another_machine_is_not_loaded_by_mistake(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOAD_TOKEN", "a token")
    with pytest.raises(SystemExit):
        main(["https://memorymark.lab.example", "--locust", "none"])
    assert "--elsewhere" in capsys.readouterr().err


def test_without_credentials_it_says_which_are_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit):
        main(["http://127.0.0.1:9"])
    assert "LOAD_TOKEN" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "who"),
    [
        (CREDENTIALS, ["Reader", "Script"]),
        (["LOAD_TOKEN"], ["Script"]),
        (["LOAD_MEMBER"], []),
    ],
)
def test_who_loads_the_site_follows_from_the_credentials(given: list[str], who: list[str]) -> None:
    assert classes_for(dict.fromkeys(given, "given")) == who


@pytest.mark.slow
@pytest.mark.torch
def test_members_load_a_site_without_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    locust = LOCUST if LOCUST.exists() else shutil.which("locust")
    if locust is None:
        pytest.skip("locust is not installed (make load does it)")
    with new_lab("", result=answer()) as lab:
        lab.call("years.fill", 50, f"{lab.folder}/result.json")
        token = lab.call("load.inside.make_reader", "member-0", "a compiler of 1952")
        for name, value in zip(CREDENTIALS, (token, "member-0", "a compiler of 1952"), strict=True):
            monkeypatch.setenv(name, value)
        arguments = [lab.start_site(), "--users", "4", "--seconds", "10", "--locust", f"{locust}"]
        assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "API: compare six" in said
    assert "fragment: search" in said
