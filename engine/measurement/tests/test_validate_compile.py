"""``validate compile``: eager steps compared with compiled ones."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console, RenderableType

from engine.cli import main as cli
from engine.core.errors import MeasurementFailed
from engine.events import Event, Log
from engine.measurement import compilation as validate_compile
from engine.measurement import cpu, parent
from engine.measurement.compilation import FirstRun, compare, first_run
from engine.measurement.parent import OutOfTime
from engine.measurement.protocol import DeviceFacts, TrialOrder
from engine.tests.shared import small_workload

MIB = 2**20
CPU = DeviceFacts("cpu", "a CPU", 64 * 2**30, 0, 0.0)


def shown(rendered: RenderableType) -> str:
    out = io.StringIO()
    Console(file=out, width=80).print(rendered)
    return out.getvalue()


def run(first: float, step: float, peak: int | None = MIB) -> FirstRun:
    return FirstRun(first, step, peak)


def test_compiling_pays_off_after_a_number_of_steps() -> None:
    check = compare([run(1, 0.2)] * 2, [run(31, 0.1)] * 2, 16, "a GPU")
    assert check.passed
    assert check.speedup == pytest.approx(2)
    assert check.pays_off_after_steps == 300
    assert "2.0× as fast" in check.verdict
    assert "after 300 steps" in check.verdict


@pytest.mark.parametrize(("compiled", "said"), [(0.1, "no faster"), (0.2, "are slower")])
def test_within_the_noise_or_below_compiling_is_no_gain(compiled: float, said: str) -> None:
    check = compare([run(1, 0.1)], [run(9, compiled)], 16, "a GPU")
    assert not check.passed
    assert check.pays_off_after_steps is None
    assert said in check.verdict
    assert "no gain" in check.verdict


def test_a_gain_has_to_show_in_every_round() -> None:
    check = compare([run(1, 0.2), run(1, 0.2)], [run(31, 0.1), run(2, 0.21)], 16, "a GPU")
    assert not check.passed
    assert "not in every round" in check.verdict


def test_a_disturbed_round_makes_no_gain() -> None:
    check = compare([run(1, 9.0), run(1, 0.1)], [run(31, 0.1), run(2, 0.1)], 16, "a GPU")
    assert check.eager_step_seconds == 0.1
    assert not check.passed


def test_a_first_step_with_a_warm_cache_is_distinguished() -> None:
    check = compare([run(1, 0.2)] * 2, [run(31, 0.1), run(3, 0.1)], 16, "a GPU")
    assert check.compiled_first_seconds == 31
    assert check.cached_first_seconds == 3
    assert compare([run(1, 0.2)], [run(31, 0.1)], 16, "a GPU").cached_first_seconds is None


def test_eager_and_compiled_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[TrialOrder] = []
    folders: set[Path] = set()
    told: list[Event] = []

    def measure(order: TrialOrder, compiled: Path) -> dict[str, Any]:
        orders.append(order)
        folders.add(compiled)
        return asdict(run(2 if order.workload.compile else 1, 0.1, None))  # type: ignore[union-attr]  # a workload

    monkeypatch.setattr(validate_compile, "measure_first_run", measure)
    monkeypatch.setattr(validate_compile, "local_device", lambda: CPU)
    check = validate_compile.validate_compile(small_workload("bert"), 2, told.append)
    compiled = [order.workload.compile for order in orders]  # type: ignore[union-attr]  # as above
    assert compiled == [True, False, True, False]
    assert len(folders) == 1  # its compiled code is reused
    said = [event.message for event in told if isinstance(event, Log)]
    assert [line.partition(":")[0] for line in said[::2]] == [
        "Round 1 of 2, compiled",
        "Round 1 of 2, eager",
        "Round 2 of 2, compiled",
        "Round 2 of 2, eager",
    ]
    assert check.device == "a CPU"
    assert check.compiled_peak_bytes is None


def test_the_compile_table_is_readable_without_a_peak() -> None:
    from engine.cli.render_checks import render_compile

    text = shown(render_compile(compare([run(1, 0.2, None)], [run(9, 0.1, None)], 16, "a GPU")))
    assert "100.00 ms" in text
    assert "0.50" in text
    assert "measured" in text


@pytest.fixture
def clean_compiler() -> Iterator[None]:
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("small_models", "clean_compiler")
def test_the_allocators_peak_matches_the_recorders() -> None:
    order = TrialOrder(small_workload("bert", optimizer="sgd"), 2)
    found = first_run(order)
    trial = cpu.run_trial(order)
    assert found.peak_bytes is not None
    assert trial.peak_allocated_bytes is not None
    # The allocator also provides scratch memory that belongs to no tensor.
    assert 0 <= found.peak_bytes - trial.peak_allocated_bytes <= 64 * 1024
    assert found.step_seconds > 0


def test_a_step_that_takes_too_long_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(order: TrialOrder, compiled: Path) -> dict[str, Any]:
        raise OutOfTime("stopped")

    monkeypatch.setattr(validate_compile, "measure_first_run", hangs)
    monkeypatch.setattr(validate_compile, "local_device", lambda: CPU)
    with pytest.raises(MeasurementFailed, match=r"batch 2 took longer than 300 s; try a smaller"):
        validate_compile.validate_compile(small_workload("bert"), 2, lambda _: None)


def test_a_process_that_hangs_is_stopped_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent, "DEADLINE_SECONDS", 0.2)
    sleeping = "import time; time.sleep(60)"
    monkeypatch.setattr(parent, "CHILD", [sys.executable, "-c", sleeping])
    with pytest.raises(OutOfTime, match="did not end within"):
        parent.measure_first_run(TrialOrder(small_workload("bert"), 2), Path("nowhere"))


TINY = {
    "model_type": "bert",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "vocab_size": 1000,
    "max_position_embeddings": 128,
    "type_vocab_size": 2,
    "pad_token_id": 0,
}


@pytest.mark.slow
class TestTheCommand:
    """``validate compile`` with real processes and a real compiler, about a minute on two cores."""

    @pytest.fixture
    def arguments(self, tmp_path: Path) -> list[str]:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(TINY))
        return ["tiny", "--config", str(path), "--sequence-length", "32", "--batch-size", "2"]

    @pytest.mark.full
    def test_it_measures_both_kinds(
        self, arguments: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(["validate", "compile", *arguments, "--json"]) == cli.OK
        out, err = capsys.readouterr()
        check = json.loads(out)
        assert check["source"] == "measured"
        for kind in ("eager", "compiled"):
            assert 0 < check[f"{kind}_step_seconds"] < check[f"{kind}_first_seconds"]
            assert check[f"{kind}_peak_bytes"] > 0
        assert check["eager_first_seconds"] < check["compiled_first_seconds"]
        assert check["cached_first_seconds"] < check["compiled_first_seconds"]
        assert check["verdict"].endswith("(measured).")
        assert "Round 2 of 2, eager" in err

    def test_without_a_compiler_it_says_what_is_missing(
        self,
        arguments: list[str],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv("CXX", "no-such-compiler")
        assert cli.main(["validate", "compile", *arguments]) == cli.FAILED
        out, err = capsys.readouterr()
        assert out == ""
        assert "torch.compile failed" in err.splitlines()[-1]
        assert "install g++ (on macOS clang++), or set the variable CXX to a compiler" in err
