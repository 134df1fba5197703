"""The recording benchmark: its statistics, and that each loop runs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks import recording
from benchmarks.recording import Alternation, overhead


def test_the_overhead_comes_from_pairs_of_neighbouring_steps() -> None:
    # The machine keeps getting slower; each recorded step takes 2% more than its neighbour.
    times: list[float] = []
    recorded: list[bool] = []
    for pair in range(100):
        order = (True, False) if pair % 3 else (False, True)
        recorded += order
        times += [(1 + pair) * (1.02 if on else 1.0) for on in order]
    found = overhead("plain", times, recorded)
    assert (found.pairs, found.step_cpu_seconds) == (100, 50.5)
    assert (found.ratio, found.low, found.high) == pytest.approx((1.02, 1.02, 1.02))
    assert not found.within_aim


def test_the_interval_is_the_sign_tests() -> None:
    ratios = [1 + rank / 1e6 for rank in range(100)]
    times = [value for ratio in ratios for value in (ratio, 1.0)]
    found = overhead("plain", times, [True, False] * 100)
    # The 40th and 61st of 100, as in tables of the binomial distribution.
    assert (found.low, found.high) == pytest.approx((ratios[39], ratios[60]))
    assert found.within_aim


def test_in_each_pair_one_step_is_recorded() -> None:
    switched: list[bool] = []
    alternation = Alternation(50, switched.append)
    for _ in range(101):
        alternation.between_steps()
    assert switched == alternation.recorded
    assert len(alternation.times) == 100
    pairs = list(zip(switched[::2], switched[1::2], strict=True))
    assert {sum(pair) for pair in pairs} == {1}
    assert len(set(pairs)) == 2  # in either order


@pytest.mark.slow
@pytest.mark.torch
def test_the_recording_benchmark_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightning")
    monkeypatch.setattr(recording, "_use_one_thread", lambda: None)  # for later tests
    assert recording.main(["--pairs", "5", "--json"]) in (0, 1)
    answer = json.loads(capsys.readouterr().out)
    assert [one["loop"] for one in answer["overheads"]] == ["plain", "trainer", "lightning"]
    assert {one["pairs"] for one in answer["overheads"]} == {5}
    assert all(one["ratio"] > 0 for one in answer["overheads"])
    assert answer["step_call_seconds"] > 0
    assert recording.main(["plain", "--pairs", "5"]) in (0, 1)
    assert "recording.step() by itself" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["keras"], ["--pairs", "0"]])
def test_a_mistake_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        recording.main(arguments)


def test_help_and_mistakes_load_no_torch() -> None:
    code = "import sys, benchmarks.recording; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
