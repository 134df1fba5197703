"""The command line: its output streams and exit statuses."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from engine.cli.main import main
from engine.cli.tests.test_render import ANALYSIS
from engine.core.errors import InvalidInput, MeasurementFailed
from engine.core.parsing import bytes_of
from engine.events import Event, Log
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.tests.shared import slow

ENGINE = (sys.executable, "-m", "engine")
EVAL_ON_A10 = ("--gpu", "a10", "--mode", "eval", "--optimizer", "none")


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[AnalysisRequest]]:
    """Replaces the analysis, which would load torch, by a function; records the requests."""

    def put(answer: Callable[[Callable[[Event], None]], object]) -> list[AnalysisRequest]:
        asked: list[AnalysisRequest] = []

        def analyze(request: AnalysisRequest, emit: Callable[[Event], None], **_: object) -> object:
            asked.append(request)
            return answer(emit)

        module = ModuleType("engine.analysis")
        vars(module)["analyze"] = analyze
        monkeypatch.setitem(sys.modules, "engine.analysis", module)
        return asked

    return put


def refuses(error: BaseException) -> Callable[[Callable[[Event], None]], object]:
    def answer(emit: Callable[[Event], None]) -> object:
        raise error

    return answer


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("8GiB", 8 * 2**30),
        ("500MiB", 500 * 2**20),
        ("16GB", 16 * 10**9),
        ("22.1gib", int(22.1 * 2**30)),
        (" 1.5 GB ", 1_500_000_000),
        ("2KiB", 2048),
        ("1 TiB", 2**40),
        ("4096B", 4096),
        ("4096", "4096"),
        ("-1", "-1"),
    ],
)
def test_a_size_may_have_a_unit_and_is_passed_on_without_one(
    size: str, expected: int | str
) -> None:
    assert bytes_of(size) == expected


@pytest.mark.parametrize(
    "size", ["8apples", "GiB", "-8GiB", "8 G", "1e3MiB", "8GiB8", "٨GiB", "9" * 5000 + "GiB"]
)
def test_an_invalid_size_is_refused_with_how_to_write_one(size: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        bytes_of(size)
    message = refusal.value.fields["memory_limit_bytes"]
    assert "is not a size; write 8GiB, 500MiB, 16GB or bytes" in message
    assert len(message) < 120


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("analyze bertt --gpu a10", "model: unknown model 'bertt'; choose one of the "),
        ("analyze bert --gpu b10", "--gpu: unknown gpu 'b10'; did you mean a10?"),
        (
            "analyze bert --gpu a10 --current-batch-size 0",
            "--current-batch-size: enter a whole number",
        ),
        (
            "analyze bert --gpu a10 --current-batch-size 1000000000",
            "--current-batch-size: enter a whole number from 1 to 65,536",
        ),
        (
            "analyze bert --gpu a10 --current-batch-size ten",
            "--current-batch-size: enter a whole number",
        ),
        ("predict bert --gpu a10 --batch-size ten", "--batch-size: enter a whole number"),
        ("predict bert --gpu local --batch-size 8", "--gpu: local is measured, not predicted"),
        ("validate backward bert --batch-size -1", "--batch-size: enter a whole number"),
        ("validate backward nobody", "model: unknown model 'nobody'"),
        (
            "analyze bert --gpu a10 --sequence-length 513",
            "--sequence-length: enter a whole number from 1 to 512",
        ),
        ("analyze bert --gpu a10 --image-size 224", "--image-size: BERT base takes no image size"),
        ("analyze bert --gpu a10 --precision fp8", "--precision: choose one of fp32,"),
        ("analyze bert --gpu t4 --precision tf32", "--precision: NVIDIA T4 has no TF32"),
        ("analyze bert --gpu a10 --optimizer lamb", "--optimizer: choose one of adamw,"),
        ("analyze bert --gpu a10 --mode test", "--mode: choose one of train,"),
        ("analyze bert --gpu a10 --batch-multiple 0", "--batch-multiple: enter a whole number"),
        ("analyze bert --gpu a10 --memory-limit 8apples", "--memory-limit: '8apples' is not a si"),
        ("analyze bert --gpu a10 --memory-limit 1KiB", "--memory-limit: enter a whole number"),
        ("analyze bert --gpu a10 --hours-per-run nan", "--hours-per-run: enter a number"),
        ("analyze bert --gpu a10 --runs-per-year -1", "--runs-per-year: enter a number"),
        ("analyze bert --gpu a10 --price-per-hour free", "--price-per-hour: enter a number"),
    ],
)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_bad_input_is_one_line_on_stderr_and_status_2(
    arguments: str, expected: str, form: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments.split(), *form]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {expected}")
    assert err.count("\n") == 1


def test_advice_of_a_package_that_is_only_loaded_is_no_part_of_an_answer() -> None:
    logging.getLogger("bitsandbytes").setLevel(logging.NOTSET)
    assert main(["devices"]) == 0
    told = logging.getLogger("bitsandbytes.backends.cpu.ops")
    assert not told.isEnabledFor(logging.WARNING)
    assert told.isEnabledFor(logging.ERROR)


def test_every_mistake_gets_its_own_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "bertt", "--gpu", "b10", "--current-batch-size", "0"]) == 2
    lines = capsys.readouterr().err.splitlines()
    starts = [line.split(":")[1].strip() for line in lines]
    assert sorted(starts) == ["--current-batch-size", "--gpu", "model"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("guess bert", "invalid choice: 'guess'"),
        ("analyze", "the following arguments are required: MODEL"),
        ("predict bert --gpu a10", "the following arguments are required: --batch-size"),
        ("analyze bert --colour red", "unrecognized arguments: --colour red"),
        ("analyze bert --current 8", "unrecognized arguments: --current 8"),
        ("validate", "the following arguments are required: CHECK"),
    ],
)
def test_a_wrong_command_or_flag_gets_a_short_usage_and_status_2(
    arguments: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments.split())
    assert end.value.code == 2
    usage, error = capsys.readouterr().err.splitlines()
    assert usage.startswith("usage: memorymark ")
    assert error.startswith("error: ")
    assert expected in error


def test_flags_reach_the_engine(
    stand_in: Callable[..., list[AnalysisRequest]], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = stand_in(lambda emit: ANALYSIS)
    flags = (
        "--gpu RTX_4090 --precision bf16-mixed --optimizer sgd --mode eval --sequence-length 256 "
        "--current-batch-size 32 --batch-multiple 8 --memory-limit 8GiB --hours-per-run 2.5 "
        "--runs-per-year 40 --price-per-hour 1.25 --task sequence-classification --label-count 5"
    )
    assert main(["analyze", "bert", *flags.split()]) == 0
    assert (
        asked[0].to_dict().items()
        >= {
            "model": "bert",
            "gpu": "rtx-4090",
            "precision": "bf16-mixed",
            "optimizer": "sgd",
            "mode": "eval",
            "sequence_length": 256,
            "image_size": None,
            "current_batch_size": 32,
            "batch_multiple": 8,
            "memory_limit_bytes": 8 * 2**30,
            "hours_per_run": 2.5,
            "runs_per_year": 40.0,
            "price_per_hour_usd": 1.25,
            "task": "sequence-classification",
            "label_count": 5,
        }.items()
    )


@pytest.mark.parametrize(
    ("flags", "checkpointing"),
    [([], False), (["--gradient-checkpointing"], True), (["--gradient-checkpointing=no"], False)],
)
def test_a_switch_may_stand_alone(
    stand_in: Callable[..., list[AnalysisRequest]], flags: list[str], checkpointing: bool
) -> None:
    asked = stand_in(lambda emit: ANALYSIS)
    assert main(["analyze", "bert", "--gpu", "a10", *flags]) == 0
    assert asked[0].workload.gradient_checkpointing is checkpointing


def test_none_says_that_there_is_no_batch_yet(
    stand_in: Callable[..., list[AnalysisRequest]], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = stand_in(lambda emit: replace(ANALYSIS, current_batch_size=None, speedup=None))
    assert main(["analyze", "bert", "--gpu", "a10", "--current-batch-size", "none"]) == 0
    assert asked[0].current_batch_size is None
    assert "none yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [
        "measure bert --memory-limit 4GiB --batch-size none",
        "analyze --factory engine.examples.my_training:make_step --current-batch-size none",
    ],
)
def test_what_needs_a_batch_refuses_none(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 2
    assert "batch-size: a" in capsys.readouterr().err


def test_without_a_gpu_this_machine_is_measured(
    stand_in: Callable[..., list[AnalysisRequest]],
) -> None:
    asked = stand_in(lambda emit: ANALYSIS)
    assert main(["analyze", "bert", "--json"]) == 0
    assert asked == [AnalysisRequest.parse({"model": "bert", "gpu": "local"})]


def test_the_answer_goes_to_stdout_and_everything_else_to_stderr(
    stand_in: Callable[..., list[AnalysisRequest]], capsys: pytest.CaptureFixture[str]
) -> None:
    def chatty(emit: Callable[[Event], None]) -> object:
        emit(Log("Tracing [bold] steps"))
        emit(ANALYSIS.trials[0])
        emit(Log("slow today", "warning"))
        sys.stdout.write("a library's greeting\n")
        return ANALYSIS

    stand_in(chatty)
    assert main(["analyze", "bert", "--gpu", "a10", "--json"]) == 0
    out, err = capsys.readouterr()
    taken = "Assumed, since it was not given: fp32, adamw, 128 tokens."
    expected = ANALYSIS.to_dict() | {"tokens_per_sample": 128}
    expected |= {"caveats": [taken, *ANALYSIS.caveats]}
    assert json.loads(out) == json.loads(json.dumps(expected))
    assert err.splitlines() == [
        "Tracing [bold] steps",
        "warning: slow today",
        "a library's greeting",
    ]


def test_a_terminal_gets_tables(
    stand_in: Callable[..., list[AnalysisRequest]], capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(lambda emit: ANALYSIS)
    assert main(["analyze", "bert", "--gpu", "a10"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Largest batch 320 (328 runs out of memory) predicted" in out


def test_a_failure_of_the_engine_is_one_line_and_status_1(
    stand_in: Callable[..., list[AnalysisRequest]], capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(refuses(MeasurementFailed("the trial failed:\nno driver")))
    assert main(["analyze", "bert", "--json"]) == 1
    assert capsys.readouterr() == ("", "error: the trial failed: no driver\n")


def test_invalid_input_found_by_the_engine_names_the_flag(
    stand_in: Callable[..., list[AnalysisRequest]], capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(refuses(InvalidInput({"memory_limit_bytes": "give a limit"})))
    assert main(["analyze", "bert"]) == 2
    assert capsys.readouterr() == ("", "error: --memory-limit: give a limit\n")


def test_ctrl_c_ends_with_130_and_no_traceback(
    stand_in: Callable[..., list[AnalysisRequest]], capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(refuses(KeyboardInterrupt()))
    assert main(["analyze", "bert"]) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


@pytest.mark.parametrize("command", [["devices", "--json"], slow(["models"]), slow(["--help"])])
def test_a_closed_pipe_ends_without_a_traceback(command: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*ENGINE, *command], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120
        )
    finally:
        os.close(writer)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["models"], 0),
        slow(["models", "--all"], 0),
        (["devices", "--json"], 0),
        slow(["predict", "bert", "--gpu", "a10", "--batch-size", "0"], 2),
    ],
)
def test_torch_is_only_loaded_when_needed(arguments: list[str], status: int) -> None:
    code = (
        "import sys; from engine.cli.main import main; status = main(sys.argv[1:]); "
        "heavy = {'torch', 'transformers', 'numpy'} & set(sys.modules); "
        "sys.exit(f'loaded {heavy}' if heavy else status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == status, done.stderr


def test_run_speaks_json_lines_with_programs(
    stand_in: Callable[..., list[AnalysisRequest]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stand_in(lambda emit: ANALYSIS)
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading) as ended:
        monkeypatch.setattr("sys.stdin", ended)
        assert main(["run"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.slow
@pytest.mark.torch
class TestForReal:
    """The engine itself behind the command line, without a GPU."""

    def test_bert_in_eval_mode_on_an_a10_ends_at_288(self) -> None:
        command = [*ENGINE, "analyze", "bert", *EVAL_ON_A10, "--batch-multiple", "8", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        assert result["model_name"] == "BERT base"
        assert result["workload"]["model"] == "bert"
        assert result["gpu"]["total_bytes"] == GPUS["a10"].total_bytes
        assert result["source"] == "predicted"
        assert result["largest_batch_size"] == 288
        assert result["next_batch_size_fails"] is True
        assert result["current_batch_size"] == 16
        assert result["recommended_batch_size"] <= 288
        assert 0 <= result["largest_headroom_bytes"] < result["current_headroom_bytes"]
        assert result["speedup"] >= 1
        assert result["savings"]["price_per_hour_usd"] == GPUS["a10"].price_per_hour_usd
        assert all(trial["batch_size"] % 8 == 0 for trial in result["trials"])
        assert result["trials"][0].keys() >= {
            "batch_size",
            "fits",
            "peak_allocated_bytes",
            "peak_reserved_bytes",
            "device_used_bytes",
            "step_seconds",
            "samples_per_second",
            "source",
        }
        assert "loss_type" not in done.stderr

    def test_one_batch_is_predicted_under_a_memory_limit(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        flags = [*EVAL_ON_A10, "--batch-size", "16", "--memory-limit", "1GiB", "--json"]
        assert main(["predict", "bert", *flags]) == 0
        trial = json.loads(capsys.readouterr().out)
        assert trial["batch_size"] == 16
        assert trial["fits"] is False
        assert trial["source"] == "predicted"
        assert trial["peak_reserved_bytes"] > 2**30
        assert sum(trial["breakdown"].values()) == trial["peak_allocated_bytes"]

    def test_a_model_that_does_not_fit_at_batch_1_is_one_line_and_status_1(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["analyze", "bert", "--gpu", "a10", "--memory-limit", "600MiB", "--json"]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        last = err.splitlines()[-1]
        assert last.startswith("error: BERT base does not fit on NVIDIA A10 limited to 0.59 GiB: ")
        assert "even batch 1 needs " in last

    def test_backward_takes_far_more_memory_than_forward_alone(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["validate", "backward", "bert", *EVAL_ON_A10, "--json"]) == 0
        check = json.loads(capsys.readouterr().out)
        assert check["batch_size"] == 16
        assert check["passed"] is True
        assert 2 <= check["ratio"] <= 3.4


@pytest.mark.parametrize("command", ["analyze", "predict", "measure", "plan", "validate backward"])
def test_the_help_lists_the_flags_by_their_theme(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.index("Adapters and quantization:") < shown.index("--lora-rank N")
    assert "99% probability" in " ".join(shown.split())
