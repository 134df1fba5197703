"""The comment of a check: what a change does to a training run, in Markdown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.answer.check import Check, Limits, check, nothing_fits, read_check
from engine.answer.check_comment import MARK, check_comment
from engine.answer.tests.test_check import BERT, Described, Put, _answer, analysis, described
from engine.answer.tests.test_release_comparison import PROFILE
from engine.cli.main import main
from engine.core.errors import DoesNotFit, InvalidInput
from engine.interface.result import TensorGroup

__all__ = ["analysis", "described"]  # fixtures

GIB = 2**30
BASE = check(replace(_answer(), profile=PROFILE, software={"transformers": "4.46.3"}), Limits())


def changed(**current: object) -> Check:
    tensors = [
        *PROFILE.tensors,
        TensorGroup("layer.*.extra", "aten.mm", "activations", 12, 3 * GIB),
    ]
    result = replace(_answer(**current), profile=replace(PROFILE, tensors=tensors))
    return check(replace(result, software=BASE.software), Limits())


def test_it_begins_with_its_mark_and_says_whether_the_check_passes() -> None:
    lines = check_comment(BASE).splitlines()
    assert lines[0] == MARK
    assert "### MemoryMark: passes" in lines
    assert "Batch 16 of BERT base fits on NVIDIA A10" in check_comment(BASE)


def test_without_a_base_it_has_the_numbers_of_now() -> None:
    said = check_comment(BASE)
    assert "| Memory needed | 2.75 GiB |" in said
    assert "| Software | transformers 4.46.3 |" in said
    assert "no answer for the base" in said


def test_each_number_stands_beside_that_of_the_base() -> None:
    said = check_comment(changed(device_used_bytes=11 * GIB // 2, step_seconds=0.013), BASE)
    assert "| Memory needed | 2.75 GiB | 5.50 GiB | 2.0\N{MULTIPLICATION SIGN} |" in said
    assert "| Step time | 26.0 ms | 13.0 ms | \N{MINUS SIGN}50% |" in said
    assert "| Batch size | 16 | 16 |  |" in said
    assert "Software" not in said


def test_it_names_the_parts_whose_memory_changed() -> None:
    said = check_comment(changed(device_used_bytes=6 * GIB), BASE)
    (row,) = [line for line in said.splitlines() if "extra" in line]
    assert row == r"| layer.\*.extra | aten.mm | activations | 0.00 GiB | 3.00 GiB | +3.00 |"


def test_a_change_of_nothing_is_said_to_be_one() -> None:
    said = check_comment(BASE, BASE)
    assert "Nothing changed from the base." in said
    assert "|" not in said


def test_a_run_that_no_longer_fits_at_all_fails() -> None:
    said = check_comment(nothing_fits(DoesNotFit("BERT base does not fit: no"), 16), BASE)
    assert "### MemoryMark: fails" in said
    assert "| Largest batch that fits | 320 | \N{EN DASH} |  |" in said


def test_names_cannot_carry_markup() -> None:
    hostile = "[x](javascript:1) | <img src=x> `"
    parts = replace(PROFILE, tensors=[TensorGroup(hostile, hostile, "activations", 1, 2 * GIB)])
    said = check_comment(replace(BASE, verdict=hostile, profile=parts), BASE)
    assert "<img" not in said.replace(r"\<img", "")
    (row,) = [line for line in said.splitlines() if "javascript" in line and "+2.00" in line]
    assert row.replace(r"\|", "").count("|") == 7


def test_the_command_writes_it_and_reads_the_base(
    described: Described, analysis: Put, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    analysis(_answer())
    assert main([*described(BERT), "--json"]) == 0
    base, comment = tmp_path / "base.json", tmp_path / "comment.md"
    base.write_text(capsys.readouterr().out)
    assert read_check(base).current_batch_size == 16
    analysis(_answer(fits=False, device_used_bytes=23 * GIB))
    asked = [*described(BERT), "--markdown", str(comment), "--base", str(base)]
    assert main(asked) == 1
    said = comment.read_text()
    assert "### MemoryMark: fails" in said
    assert "| Memory needed | 2.75 GiB | 23.00 GiB |" in said
    assert capsys.readouterr().out.startswith("Batch 16 of BERT base does not fit")


@pytest.mark.parametrize("text", ["", "no", "[]", '{"passed": 1}', "{}"])
def test_what_is_no_check_is_refused(text: str, tmp_path: Path) -> None:
    (file := tmp_path / "base.json").write_text(text)
    with pytest.raises(InvalidInput, match="is not what `memorymark check --json` prints"):
        read_check(file)


def test_files_that_cannot_be_used_are_refused_before_anything_is_traced(
    described: Described, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    comment = str(tmp_path / "comment.md")
    assert main([*described(BERT), "--markdown", str(tmp_path / "none" / "comment.md")]) == 2
    assert "--markdown: there is no folder" in capsys.readouterr().err
    assert main([*described(BERT), "--markdown", comment, "--base", str(tmp_path / "no")]) == 2
    assert "--base: " in capsys.readouterr().err
    (tmp_path / "base.json").write_text(json.dumps(BASE.to_dict()))
    assert main([*described(BERT), "--base", str(tmp_path / "base.json")]) == 2
    assert "add --markdown FILE" in capsys.readouterr().err
