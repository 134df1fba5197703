"""The errors for typical mistakes in a first script for the engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.cli.main import main
from engine.core.errors import EngineError, InvalidInput
from engine.interface.trial import Source, Trial
from engine.measurement import measured_script, trials
from engine.measurement.parent import local_device
from engine.script.batch_sizes import trace_script_at_every_batch_size
from engine.script.factory import ScriptFailed
from engine.script.request import ScriptRequest
from engine.script.tests.scripts import A10, ADAM, BY_VALUE, LINEAR, linear, written
from engine.script.trace import CannotTrace, trace_script

WHOLE = LINEAR.format(optimizer=ADAM, last="pass")


@pytest.mark.parametrize(
    ("wrong", "right", "error", "says"),
    [
        ("(batch_size):", "():", InvalidInput, "must take just a batch size"),
        ("(batch_size):", "(batch_size, lr):", InvalidInput, "missing a required argument: 'lr'"),
        ("return step", "step()", ScriptFailed, "returned a NoneType; it must return a function"),
        ("def step():", "def step(i):", ScriptFailed, "needs arguments .*must take none"),
        ("loss.backward()", "pass", ScriptFailed, "runs no backward pass; it must run a whole"),
        ("(batch_size, 64)", "(8, 64)", ScriptFailed, "same tensors at batch 2 and 3; its data"),
        ("(batch_size, 64)", "(batch_size, 65)", CannotTrace, "RuntimeError: .*: fix that"),
        ("optimizer.step()", BY_VALUE, CannotTrace, "depends on .*: measure it"),
    ],
)
def test_a_mistake_is_reported_with_what_to_do(
    folder: Path, wrong: str, right: str, error: type[EngineError], says: str
) -> None:
    assert wrong in WHOLE
    with pytest.raises(error, match=says):
        trace_script_at_every_batch_size(
            written(folder, WHOLE.replace(wrong, right)), A10, pytest.fail
        )


def test_data_created_on_import_is_reported(folder: Path) -> None:
    code = "import torch\ndata = torch.randn(999, 64)\n"
    code += WHOLE.replace("torch.randn(batch_size, 64)", "data[:batch_size]")
    with pytest.raises(CannotTrace, match=r"was made before.*make it there, or measure"):
        trace_script(written(folder, code), 2, A10)


def test_the_scripts_output_is_not_part_of_the_answer(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    linear(folder, last="print('a step')")
    given = "--factory mine:make_step --gpu t4 --batch-size 4 --json"
    assert main(["predict", *given.split()]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["batch_size"] == 4
    assert "a step" in err


def test_an_error_is_one_line_without_the_tracers_own_log(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    written(folder, WHOLE.replace("(batch_size, 64)", "(batch_size, 65)"))
    given = "--factory mine:make_step --gpu t4 --batch-size 4"
    assert main(["predict", *given.split()]) == 1
    tracing, *stages, error = capfd.readouterr().err.splitlines()
    assert tracing.startswith("Tracing mine:make_step")
    assert all(line.startswith("Trace") for line in stages)
    assert "mine.py, line 11" in error


@pytest.mark.slow
def test_measured_steps_that_ignore_the_batch_size_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that cannot be traced too, once the largest batch takes no more memory."""

    def always_the_same(order: object) -> Trial:
        size = order.batch_size  # type: ignore[attr-defined]  # an order
        return Trial(size, True, Source.MEASURED, peak_allocated_bytes=2**20)

    monkeypatch.setattr(trials, "measure", always_the_same)
    factory = linear(folder, last=BY_VALUE)
    request = ScriptRequest.parse(factory, {"memory_limit_bytes": 2**30})
    with pytest.raises(ScriptFailed, match=r"as much memory at batch 65,536 as at 16; its data"):
        measured_script.measure_script(request, local_device(), lambda _: None)
