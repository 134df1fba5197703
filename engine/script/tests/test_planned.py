"""The plan of a script: the ladder on its GPU, and every other GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.answer.ladder import CHECKPOINTING, Learning, Rung
from engine.cli.main import main
from engine.gpus import GPUS
from engine.interface.result import AnalysisResult, PhaseName
from engine.script.program import Program
from engine.script.request import ScriptRequest
from engine.script_analysis import analyze_script, plan_script

TRAINS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
blocks = [nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)) for _ in range(4)]
model = nn.Sequential(*blocks).cuda()
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
data = TensorDataset(torch.zeros(4096, 512), torch.zeros(4096, 512))
for x, y in DataLoader(data, batch_size=256):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
"""


@pytest.fixture(autouse=True)
def few_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    some = {name: GPUS[name] for name in ("t4", "a10", "a6000")}
    monkeypatch.setattr("engine.script_analysis.known_gpus", lambda *_: some)
    monkeypatch.setattr("engine.prediction.plans.climbing.processes_here", lambda: 1)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "train.py"
    file.write_text(TRAINS)
    return file


def planned(script: Path, **fields: Any) -> list[Rung]:
    request = ScriptRequest.parse(Program.of(script), {"gpu": "a10"} | fields)
    return plan_script(request, lambda _: None).ladder


def with_result(rungs: list[Rung], move: str) -> tuple[Rung, AnalysisResult]:
    rung = next(rung for rung in rungs if move in rung.moves)
    assert rung.result is not None
    return rung, rung.result


@pytest.mark.longer
def test_a_script_is_told_what_to_change_besides_its_batch(script: Path) -> None:
    rungs = planned(script)

    today, *others = rungs
    assert (today.fields, today.batch_size is not None) == ({}, True)
    half, answer = with_result(others, "bf16")
    assert half.fields == {"precision": "bf16-mixed"}
    assert half.learning is Learning.NUMERICS
    assert answer.move_lines[0].startswith('with torch.autocast("cuda", dtype=torch.bfloat16)')
    assert answer.today is not None
    assert half.speedup == pytest.approx(
        (half.samples_per_second or 0) / (answer.today.samples_per_second or 1)
    )
    assert "Switch to bf16" in half.decision


@pytest.mark.slow
def test_every_rung_is_of_the_same_script(script: Path) -> None:
    request = ScriptRequest.parse(Program.of(script), {"gpu": "a10"})
    own = analyze_script(request, lambda _: None)

    results = [rung.result for rung in plan_script(request, lambda _: None).ladder if rung.result]
    assert len(results) > 1
    assert {result.program_hash for result in results} == {own.program_hash}
    assert {result.current_batch_size for result in results} == {256}
    assert results[0].recommended_batch_size == own.recommended_batch_size
    assert results[0].certificate
    assert not any(result.certificate for result in results if result.today)  # none makes moves


@pytest.mark.slow
def test_an_evaluation_decides_which_batches_fit_with_moves_too(script: Path) -> None:
    evaluates = """
with torch.no_grad():
    for x, y in DataLoader(data, batch_size=64 * loader.batch_size):
        nn.functional.mse_loss(model(x.cuda()), y.cuda())
"""
    source = TRAINS.replace("4096", "262144").replace(
        "for x, y in DataLoader", "loader = DataLoader"
    )
    source = source.replace("batch_size=256):", "batch_size=256)\nfor x, y in loader:")
    script.write_text(source + evaluates)
    own = analyze_script(ScriptRequest.parse(Program.of(script), {"gpu": "a10"}), lambda _: None)
    assert own.limiting_phase is PhaseName.EVALUATION

    today, *others = planned(script)
    assert today.result is not None
    assert today.result.largest_batch_size == own.largest_batch_size
    half, answer = with_result(others, "bf16")
    assert answer.largest_batch_size < 2 * own.largest_batch_size
    assert half.result is not None
    assert half.result.limiting_phase is PhaseName.EVALUATION


@pytest.mark.slow
def test_checkpointing_is_tried_where_memory_is_short(script: Path) -> None:
    source = TRAINS.replace("4096, 512", "4096, 64, 512").replace(
        "batch_size=256", "batch_size=512"
    )
    script.write_text(source)
    today, *others = planned(script, memory_limit_bytes=2400 * 2**20)
    assert (today.batch_size or 0) < 512
    kept = [one for one in others if CHECKPOINTING in one.moves and one.batch_size == 512]
    assert kept[0].decision.startswith("It does not fit: ")


@pytest.mark.slow
def test_a_plan_compares_gpus(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(script), "--gpu", "a10"]) == 0
    out, err = capsys.readouterr()
    assert "train.py (script)" in out
    assert all(name in out for name in ("t4", "a10", "a6000"))
    assert "Lines that make them in the script" in out
    assert [line for line in err.splitlines() if "capability 8.6" in line]


@pytest.mark.slow
def test_a_plan_is_json_too(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(script), "--gpu", "a10", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [option["gpu"] for option in plan["options"]] == ["t4", "a10", "a6000"]
    assert plan["ladder"][0]["fields"] == {}
    assert "move_lines" in plan["ladder"][0]["result"]
