from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine import analysis
from engine.cli.main import main
from engine.client.tests.fake_lab import FakeLab
from engine.interface.request import AnalysisRequest
from engine.interface.result import AnalysisResult
from engine.tests.shared import make_models_small

pytestmark = pytest.mark.torch

ANALYZE = ["analyze", "resnet-18", "--gpu", "a10", "--runs-per-year", "50", "--push"]


@pytest.fixture(scope="module")
def result() -> AnalysisResult:
    request = AnalysisRequest.parse({"model": "resnet-18", "gpu": "a10"})
    with pytest.MonkeyPatch.context() as patched:
        make_models_small(patched)
        return analysis.analyze(request, lambda event: None)


@pytest.fixture
def lab(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, result: AnalysisResult
) -> Iterator[FakeLab]:
    monkeypatch.setattr(analysis, "analyze", lambda request, emit, **_: result)
    monkeypatch.setattr("engine.client.connection.FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setenv("MEMORYMARK_TOKEN", "mm_token")
    monkeypatch.setenv("MEMORYMARK_OUTBOX", str(tmp_path / "outbox"))
    with FakeLab() as lab:
        monkeypatch.setenv("MEMORYMARK_URL", lab.url)
        yield lab


def test_a_result_is_pushed(
    lab: FakeLab, result: AnalysisResult, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lab.respond((201, {"id": 7}))

    assert main([*ANALYZE, "--json"]) == 0
    (received,) = lab.requests
    assert received.path == "/api/v1/analyses/import/"
    taken = "Assumed, since it was not given: fp32, adamw, 224 pixels per side."
    said_too = replace(result, caveats=[taken, *result.caveats])
    assert received.body["result"] == json.loads(json.dumps(said_too.to_dict()))
    assert received.body["request"]["model"] == "resnet-18"
    assert received.body["request"]["runs_per_year"] == "50"
    assert "hours_per_run" not in received.body["request"]  # the lab's default applies
    assert received.body["origin"]["ran"] == "memorymark analyze"
    said = capsys.readouterr()
    assert f"pushed: {lab.url}/7/" in said.err
    assert json.loads(said.out)["verdict"] == result.verdict
    assert not list((tmp_path / "outbox").glob("*.json"))


def test_a_result_is_pushed_into_a_project(
    lab: FakeLab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.respond((201, {"id": 7}))
    assert main([*ANALYZE, "--project", "Thesis"]) == 0
    assert lab.requests[0].body["project"] == "Thesis"
    assert main(["analyze", "resnet-18", "--gpu", "a10", "--project", "Thesis"]) == 2
    assert "--project: it is a lab project; add --push" in capsys.readouterr().err


def test_a_result_for_an_unreachable_lab_goes_with_the_next_push(
    lab: FakeLab, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lab.respond((503, b""))
    assert main(ANALYZE) == 0  # the result is printed
    assert "not pushed yet" in capsys.readouterr().err
    assert len(list((tmp_path / "outbox").glob("*.json"))) == 1
    assert main(["push"]) == 1
    assert "1 left: The lab at" in capsys.readouterr().err

    lab.respond((201, {"id": 7}))
    assert main(["push"]) == 0
    assert "sent 1, refused 0, 0 left" in capsys.readouterr().err
    ids = {received.body["id"] for received in lab.requests}
    assert len(ids) == 1  # so that the lab stores it once
    assert main(["push"]) == 0


def test_a_push_names_what_is_for_another_address_and_readdresses_it(
    lab: FakeLab,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = "http://127.0.0.1:9"
    monkeypatch.setenv("MEMORYMARK_URL", old)
    assert main(ANALYZE) == 0  # nobody answers there
    monkeypatch.setenv("MEMORYMARK_URL", lab.url)
    capsys.readouterr()

    assert main(["push"]) == 0
    said = capsys.readouterr().err
    assert "sent 0, refused 0, 0 left" in said
    assert f"not sent: 1 for {old}" in said
    assert f"memorymark push --readdress {old}\n" in said
    assert not lab.requests

    lab.respond((201, {"id": 7}))
    assert main(["push", "--readdress", f"{old}/"]) == 0
    assert capsys.readouterr().err == "sent 1, refused 0, 0 left\n"
    assert len(lab.requests) == 1
    assert main(["push", "--readdress", old]) == 0
    assert f"nothing in the outbox is for {old}" in capsys.readouterr().err


def test_a_refused_push_is_reported_and_set_aside(
    lab: FakeLab, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lab.respond((400, {"schema_version": ["1 is not known here, 2 is"]}))

    assert main(ANALYZE) == 1
    assert "schema_version: 1 is not known here" in capsys.readouterr().err
    assert len(list((tmp_path / "outbox" / "rejected").glob("*.json"))) == 1
    assert main(["push"]) == 0


def test_missing_settings_are_reported_before_the_analysis(
    lab: FakeLab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MEMORYMARK_TOKEN")
    monkeypatch.setattr(analysis, "analyze", None)

    assert main(ANALYZE) == 2
    assert "MEMORYMARK_TOKEN: set it to a token" in capsys.readouterr().err
    assert main(["push"]) == 2


def test_an_unwritable_outbox_is_reported(
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
    assert "Batch" in said.out  # the result is printed anyway


@pytest.mark.slow
def test_a_factory_is_pushed_by_name_and_hash(lab: FakeLab) -> None:
    lab.respond((201, {"id": 7}))
    factory = "engine.examples.my_training:make_step"

    assert main(["analyze", "--factory", factory, "--gpu", "a10", "--push", "--json"]) == 0
    (received,) = lab.requests
    sent, result = received.body["request"], received.body["result"]
    assert sent["model"] == factory
    assert sent["program"]["words"] == ["--factory", factory]
    assert sent["program"]["hash"] == result["program_hash"]
    assert result["workload"] is None
    assert "hours_per_run" not in sent  # the lab's default applies


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--name", "a/b", "--push"], "--name: 'a/b' cannot be a script's name"),
        (["--name", "mine"], "--name: it names the script in the lab; add --push"),
    ],
)
def test_a_wrong_name_is_refused_before_the_work(
    lab: FakeLab, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    factory = "engine.examples.my_training:make_step"

    assert main(["analyze", "--factory", factory, "--gpu", "a10", *words]) == 2
    assert message in capsys.readouterr().err
    assert not lab.requests


def test_a_model_takes_no_name(lab: FakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ANALYZE, "--name", "mine"]) == 2
    assert "--name: it names a script" in capsys.readouterr().err
