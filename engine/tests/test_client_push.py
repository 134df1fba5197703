from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import analysis
from engine.cli.main import main
from engine.request import AnalysisRequest
from engine.result import AnalysisResult
from engine.tests.fake_lab import FakeLab

pytestmark = pytest.mark.torch

ANALYZE = ["analyze", "resnet-18", "--gpu", "a10", "--runs-per-year", "50", "--push"]


@pytest.fixture(scope="module")
def result() -> AnalysisResult:
    request = AnalysisRequest.parse({"model": "resnet-18", "gpu": "a10"})
    return analysis.analyze(request, lambda event: None)


@pytest.fixture
def lab(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, result: AnalysisResult
) -> Iterator[FakeLab]:
    monkeypatch.setattr(analysis, "analyze", lambda request, emit: result)
    monkeypatch.setattr("engine.client.connection.FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setenv("MEMORYMARK_TOKEN", "mm_token")
    monkeypatch.setenv("MEMORYMARK_OUTBOX", str(tmp_path / "outbox"))
    with FakeLab() as lab:
        monkeypatch.setenv("MEMORYMARK_URL", lab.url)
        yield lab


def test_an_answer_is_pushed(
    lab: FakeLab, result: AnalysisResult, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lab.say((201, {"id": 7}))

    assert main([*ANALYZE, "--json"]) == 0
    (asked,) = lab.asked
    assert asked.path == "/api/v1/analyses/import/"
    assert asked.body["result"] == json.loads(json.dumps(result.to_dict()))
    assert asked.body["request"]["model"] == "resnet-18"
    assert asked.body["request"]["runs_per_year"] == "50"
    assert "hours_per_run" not in asked.body["request"]  # the lab's hold where none is given
    assert asked.body["origin"]["ran"] == "python -m engine analyze"
    said = capsys.readouterr()
    assert f"pushed: {lab.url}/7/" in said.err
    assert json.loads(said.out)["verdict"] == result.verdict
    assert not list((tmp_path / "outbox").glob("*.json"))


def test_a_lab_that_is_away_gets_it_by_the_next_push(
    lab: FakeLab, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lab.say((503, b""))
    assert main(ANALYZE) == 0  # the answer is there
    assert "not pushed yet" in capsys.readouterr().err
    assert len(list((tmp_path / "outbox").glob("*.json"))) == 1
    assert main(["push"]) == 1
    assert "1 left: The lab at" in capsys.readouterr().err

    lab.say((201, {"id": 7}))
    assert main(["push"]) == 0
    assert "sent 1, refused 0, 0 left" in capsys.readouterr().err
    ids = {asked.body["id"] for asked in lab.asked}
    assert len(ids) == 1  # so that the lab keeps it once
    assert main(["push"]) == 0


def test_a_refused_push_is_told_and_kept_aside(
    lab: FakeLab, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lab.say((400, {"schema_version": ["1 is not known here, 2 is"]}))

    assert main(ANALYZE) == 1
    assert "schema_version: 1 is not known here" in capsys.readouterr().err
    assert len(list((tmp_path / "outbox" / "rejected").glob("*.json"))) == 1
    assert main(["push"]) == 0


def test_what_is_not_set_is_told_before_all_the_work(
    lab: FakeLab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MEMORYMARK_TOKEN")
    monkeypatch.setattr(analysis, "analyze", None)

    assert main(ANALYZE) == 2
    assert "MEMORYMARK_TOKEN: set it to a token" in capsys.readouterr().err
    assert main(["push"]) == 2


def test_an_outbox_that_cannot_be_written_is_told(
    lab: FakeLab,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MEMORYMARK_OUTBOX", str(tmp_path / "file" / "outbox"))

    assert main(ANALYZE) == 1
    said = capsys.readouterr()
    assert "set MEMORYMARK_OUTBOX" in said.err
    assert "Batch" in said.out  # the answer is there all the same


def test_a_script_is_not_pushed(lab: FakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "--factory", "mine:make", "--gpu", "a10", "--push"]) == 2
    assert "--push: the lab keeps models that it knows" in capsys.readouterr().err
