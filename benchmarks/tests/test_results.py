"""Result files: README and docs match them, and one command creates them."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.published import PUBLISHED, Comparison, Measurement, read_measurements
from benchmarks.results import __main__ as results
from benchmarks.results import accuracy_tables, documents, model_tables, new_rows, past_errors
from benchmarks.results.documents import BLOCKS, ROOT, filled
from benchmarks.results.files import (
    COMMANDS,
    FOLDER,
    POSTGRES,
    Machine,
    NoResult,
    Result,
    as_text,
    read,
    run,
    write,
)
from engine.prediction.timing.past_errors import FILE as PAST_ERRORS
from engine.prediction.timing.past_errors import PredictedQuantity

RESULT = Result(
    command="python -m benchmarks.none --json",
    made_on="2026-11-20",
    seconds=1.5,
    exit_status=0,
    machine=Machine("Linux x86_64", 2, 2**34, 0.5),
    versions={"python": "3.11"},
    figures={"source": "measured"},
)


@pytest.mark.parametrize("document", documents.documents(), ids=lambda path: path.name)
def test_the_tables_of_a_document_match_the_files(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert filled(text) == text, "run python -m benchmarks.results --tables"


def test_every_table_is_in_a_document() -> None:
    text = "".join(document.read_text(encoding="utf-8") for document in documents.documents())
    assert set(re.findall(r"<!-- results (\S+) -->", text)) == set(BLOCKS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_file_of_its_results(name: str) -> None:
    result = read(name)
    assert result.command == f"python -m {COMMANDS[name]} --json"
    assert result.exit_status == 0
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", result.made_on)
    assert result.figures
    assert find_spec(COMMANDS[name].split()[0])


def test_no_file_identifies_its_machine() -> None:
    private = [str(ROOT), str(Path.home()), "/tmp/", "postgres://"]  # noqa: S108  # words to look for
    if len(socket.gethostname()) > 3:
        private.append(socket.gethostname())
    for file in FOLDER.glob("*.json"):
        text = file.read_text(encoding="utf-8")
        assert [word for word in private if word in text] == [], file.name


def test_a_file_has_a_line_for_each_row() -> None:
    rows = [{"name": "BERT", "bytes": [1, 2]}, {"name": "GPT-2 “small”", "bytes": []}]
    document = {"rows": rows, "machine": {"cores": 2}, "none": {}, "empty": []}
    text = as_text(document)
    assert json.loads(text) == document
    assert ' {"name": "BERT", "bytes": [1, 2]},' in text.splitlines()[2]
    assert len(text.splitlines()) == 11


def test_a_file_returns_what_was_written(tmp_path: Path) -> None:
    write("one", RESULT, tmp_path)
    assert read("one", tmp_path) == RESULT


@pytest.mark.parametrize("text", ['{"command": "one"}', "{}", "no JSON"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "one.json").write_text(text)
    with pytest.raises(ValueError, match=r"one\.json is not a result file|Expecting value"):
        read("one", tmp_path)


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(ValueError, match="no table is called other; choose from accuracy, "):
        filled("<!-- results other -->\n\n<!-- end -->")


def test_a_file_without_a_tables_field_must_be_recreated() -> None:
    def older(name: str) -> Result:
        figures = {**read(name).figures, "asked_to_cancelled_seconds": None}
        del figures["asked_to_cancelled_seconds"]
        return replace(read(name), figures=figures)

    with pytest.raises(ValueError, match="table workers has no 'asked_to_cancelled_seconds'"):
        filled("<!-- results workers -->\n\n<!-- end -->", older)


def test_a_changed_file_changes_the_table() -> None:
    def other(name: str) -> Result:
        figures = json.loads(json.dumps(read(name).figures))
        for one in figures["answers"]:
            one["median_seconds"] = 123.4
        return replace(read(name), figures=figures)

    text = "before\n<!-- results answers -->\nold\n<!-- end -->\nafter"
    new = filled(text, other)
    assert "123.4 s" in new
    assert new.startswith("before\n<!-- results answers -->\n\n| ")
    assert new.endswith(" |\n\n<!-- end -->\nafter")
    assert filled(new, other) == new


def test_a_commands_output_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    code = 'import sys; print(\'{"asked": "%s"}\' % sys.argv[1:]); sys.exit(1)'
    seen: list[list[str]] = []
    real = subprocess.run

    def instead(arguments: list[str], **options: object) -> object:
        seen.append(arguments)
        return real([sys.executable, "-c", code, *arguments[3:]], **options)  # type: ignore[call-overload]  # passed on

    monkeypatch.setattr(subprocess, "run", instead)
    monkeypatch.setenv("TEST_POSTGRES_URL", "postgres://me:secret@127.0.0.1/test")
    result = run(f"drills.pages --postgres {POSTGRES}")
    ((program, *words),) = seen
    assert program == sys.executable
    url = "postgres://me:secret@127.0.0.1/test"
    assert words == ["-m", "drills.pages", "--postgres", url, "--json"]
    assert result.command == "python -m drills.pages --postgres $TEST_POSTGRES_URL --json"
    assert result.exit_status == 1
    assert "asked" in result.figures
    assert result.machine.cores >= 1
    assert result.versions["python"].startswith("3.")


def test_a_command_that_prints_no_json_gives_no_result() -> None:
    with pytest.raises(NoResult, match="status 2 and printed no JSON"):
        run("benchmarks.accuracy --only no-such-measurement")


def test_a_command_without_its_server_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TEST_POSTGRES_URL", raising=False)
    monkeypatch.setattr(results, "fill_all", lambda: iter(()))
    assert results.main(["speed-postgresql"]) == 1
    said = capsys.readouterr().err
    assert "set TEST_POSTGRES_URL" in said
    assert "its file is unchanged" in said


def test_an_unknown_name_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        results.main(["no-such-result"])
    assert "choose from accuracy" in capsys.readouterr().err


def test_the_past_errors_that_are_installed_match_the_files() -> None:
    text = PAST_ERRORS.read_text(encoding="utf-8")
    assert past_errors.contents(read) == text, "run python -m benchmarks.results --tables"


def test_the_past_errors_are_those_that_the_benchmarks_print() -> None:
    groups = tomllib.loads(PAST_ERRORS.read_text(encoding="utf-8"))["group"]
    found = {(group["of"], group["models"], group["gpu"]): group for group in groups}
    printed = {one["group"].strip(): one for one in read("step_time").figures["errors"]}
    for models, name in (("all", "model not fitted"), ("transformers",) * 2, ("other",) * 2):
        group, expected = found["step time", models, ""], printed[name]
        assert group["count"] == expected["rows"]
        for figure in ("median", "percentile_90"):
            assert group[figure] == pytest.approx(expected[figure], abs=1e-4)
    runs = read("accuracy").figures["xmem"]["scores"][0]
    whole = [
        one
        for one in read("accuracy").figures["comparisons"]
        if one["error"] is not None
        and not one["measurement"]["forward_only"]
        and one["measurement"].get("texts") is None
        and one["measurement"]["growth_from"] is None
    ]
    assert found["memory", "all", ""]["count"] == len(whole) + runs["every"]["compared"]


def test_every_published_measurement_is_predicted_as_it_is_asked_now() -> None:
    measurements = read_measurements(PUBLISHED.read_text(encoding="utf-8"))
    known = new_rows.still_known(measurements, read("accuracy").figures["comparisons"])
    unknown = [one.name for one in measurements if one.name not in known]
    assert unknown == [], "run python -m benchmarks.results --new-rows"
    assert all(one.predicted_on and one.versions["torch"] for one in known.values())


def test_only_new_and_changed_measurements_are_predicted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = read("accuracy")
    names = ["BERT base b8", "BERT base b16", "BERT base b288"]
    wanted = [m for m in read_measurements(PUBLISHED.read_text("utf-8")) if m.name in names]
    monkeypatch.setattr(new_rows, "read_measurements", lambda text: wanted)
    kept, *rest = stored.figures["comparisons"]
    changed = rest[1] | {"measurement": rest[1]["measurement"] | {"batch_size": 1}}
    earlier = [kept, changed, *rest[2:]]
    asked: list[str] = []

    @contextmanager
    def comparing(measurements: list[Measurement]) -> Iterator[Iterator[Comparison]]:
        asked.extend(one.name for one in measurements)
        yield (Comparison(one, 1.0, fits=True, predicted_on="2026-11-25") for one in measurements)

    monkeypatch.setattr(new_rows, "comparing", comparing)
    before = replace(stored, figures=stored.figures | {"comparisons": earlier})
    *_, result = new_rows.renewed(before, ["BERT base b288"])
    assert asked == ["BERT base b16", "BERT base b288"]
    by_name = {one["measurement"]["name"]: one for one in result.figures["comparisons"]}
    assert list(by_name) == names
    assert by_name["BERT base b8"] == kept
    assert by_name["BERT base b16"]["predicted_on"] == "2026-11-25"
    assert result.figures["xmem"] == stored.figures["xmem"]
    assert (result.made_on, result.exit_status) == (stored.made_on, 0)


def test_every_published_run_has_the_right_verdict() -> None:
    summary = read("accuracy").figures["summary"]
    assert (summary["false_safe"], summary["false_alarm"]) == (0, 0)
    assert summary["within_aim"] >= 0.95 * summary["known"]["compared"]


def test_every_model_of_the_memory_measurements_has_a_type() -> None:
    memory = [row for row in past_errors.rows(read) if row.of is PredictedQuantity.MEMORY]
    assert all(row.model_type for row in memory)


def test_a_measurement_that_cannot_be_predicted_says_so() -> None:
    stored = read("accuracy")
    row = stored.figures["comparisons"][0] | {"predicted": None, "fits": None, "error": None}
    told = accuracy_tables.published(lambda name: replace(stored, figures={"comparisons": [row]}))
    assert told.endswith("| not predicted | - |")


def test_a_model_without_a_largest_batch_has_a_dash() -> None:
    row = {"model": "bert", "sample": "128 tokens", "batch_sizes": {"rtx-4090": 7, "h100": 8}}
    rows = [row | {"setting": "full"}, row | {"setting": "lora", "batch_sizes": {}, "sample": ""}]
    table = model_tables.largest(lambda name: replace(RESULT, figures={"rows": rows}))
    assert table.splitlines()[-1] == "| BERT base | 128 tokens | 7 | 8 | – | – | – | – |"
