"""Training scripts that run by themselves: how they are named, and told their batch size."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from engine.cli.main import main
from engine.core.errors import InvalidInput
from engine.script.program import Program, with_flag


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("")
    return path


@pytest.mark.parametrize(
    ("arguments", "flag", "expected"),
    [
        ("--lr 1 --batch_size 8 --amp", "batch_size", "--lr 1 --batch_size 5 --amp"),
        ("--batch-size 8", "--batch-size", "--batch-size 5"),
        ("--batch-size=8", "batch_size", "--batch-size=5"),
        ("-b 8", "-b", "-b 5"),
        ("train.batch_size=8 lr=1", "train.batch_size", "train.batch_size=5 lr=1"),
        ("+batch=8", "batch", "+batch=5"),
        ("--lr 1", "batch_size", "--lr 1 --batch_size=5"),
        ("--lr 1", "-b", "--lr 1 -b 5"),
        ("lr=1", "batch_size=", "lr=1 batch_size=5"),
        ("", "--batch_size=", "--batch_size=5"),
        ("--batch_size 8 --batch_size 9", "batch_size", "--batch_size 5 --batch_size 5"),
        ("batch_size", "batch_size", "batch_size --batch_size=5"),
        ("--batch_size", "batch_size", "--batch_size --batch_size=5"),
    ],
)
def test_a_flag_gets_another_value_or_is_added(arguments: str, flag: str, expected: str) -> None:
    assert with_flag(arguments.split(), flag, 5) == expected.split()


@pytest.mark.parametrize(
    ("flag", "spelled"),
    [
        ("batch_size", "--batch-size=5"),
        ("--batch_size", "--batch-size=5"),
        ("batch-size", "--batch-size=5"),
        ("eval-batch", "--eval-batch=5"),
        ("eval_batch", "--eval_batch=5"),
        ("bs", "-bs 5"),
        ("per_device_train_batch_size", "--per_device_train_batch_size=5"),  # of a parser's own
        ("batch_size=", "batch_size=5"),
    ],
)
def test_a_flag_is_spelled_as_the_script_has_it(tmp_path: Path, flag: str, spelled: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "parser.add_argument('--batch-size', help='see --no-batch_size')\n"
        "parser.add_argument('--eval-batch', '--eval_batch')\n"
        "parser.add_argument('-bs', '--eval-batch-size')\n"
    )
    assert Program.of(script, (), flag).command_line(5) == spelled.split()


def test_a_script_that_counts_its_words_gets_two(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    for code, expected in (
        ("size = int(sys.argv[2])", ["--batch", "4"]),
        ("size = int(sys.argv[-1])", ["--batch", "4"]),
        ("parse(sys.argv[1:])", ["--batch=4"]),
        ("for arg in sys.argv[1:]: key, val = arg.split('=')", ["--batch=4"]),
    ):
        script.write_text(code)
        assert Program.of(script, batch_flag="batch").command_line(4) == expected


def test_only_what_sets_the_batch_size_changes(script: Path) -> None:
    by_flag = Program.of(script, ["--lr", "1"], batch_flag="batch")
    assert by_flag.command_line(4) == ["--lr", "1", "--batch=4"]
    assert by_flag.command_line(None) == ["--lr", "1"]
    assert by_flag.environment(4) == {}
    by_variable = Program.of(script, batch_env="BATCH")
    assert by_variable.environment(4) == {"BATCH": "4"}
    assert by_variable.command_line(4) == []
    assert Program.of(script).automatic


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        ({"path": "nowhere.py"}, "model", "there is no file nowhere.py"),
        ({"batch_flag": "--"}, "batch_flag", "'--' is not the name of a flag"),
        ({"batch_flag": "a b"}, "batch_flag", "is not the name of a flag"),
        ({"batch_env": "A B"}, "batch_env", "is not the name of an environment variable"),
        ({"batch_flag": "b", "batch_env": "B"}, "batch_env", "not both"),
    ],
)
def test_what_cannot_be_is_refused(
    script: Path, given: dict[str, str], field: str, says: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        Program.of(**{"path": str(script)} | given)
    assert says in refusal.value.fields[field]


def test_it_travels_as_json(script: Path) -> None:
    program = Program.of(script, ["--lr", "1"], batch_flag="batch")
    assert Program.from_fields(json.loads(json.dumps(asdict(program)))) == program


def test_it_is_named_as_on_the_command_line(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(script.parent)
    program = Program.of(script, ["--lr", "1"], batch_flag="--batch")
    assert program.words() == (["train.py", "--batch-flag=--batch"], ["--", "--lr", "1"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("nowhere.py", "error: model: there is no file nowhere.py"),
        ("train.py --batch-flag --", "argument --batch-flag: expected one argument"),
        ("train.py --batch-flag b --batch-env B", "--batch-env: pass --batch-flag or"),
        ("train.py --factory a:b", "pass a script or --factory, not both"),
        ("train.py --precision fp32", "--precision: the script decides this"),
        ("train.py --global-batch-size 64", "--global-batch-size: a script cannot be told"),
        ("bert -- --lr 1", "-- belong to a SCRIPT.py"),
        ("bert --batch-env B", "-- belong to a SCRIPT.py"),
    ],
)
def test_a_command_line_that_cannot_be_is_refused(
    script: Path,
    arguments: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(script.parent)
    try:
        status = main(["analyze", *arguments.split(), "--gpu", "t4"])
    except SystemExit as end:
        status = int(str(end.code))
    assert status == 2
    assert says in capsys.readouterr().err


def test_other_commands_take_no_arguments_of_a_script(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["models", "--", "--lr", "1"])
    assert "belong to a SCRIPT.py, which this command does not take" in capsys.readouterr().err
