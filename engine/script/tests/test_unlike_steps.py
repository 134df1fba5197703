"""Caveats of a script's prediction where the traced steps do not tell all."""

from __future__ import annotations

from pathlib import Path

import pytest

import engine
from engine.measurement import cpu
from engine.measurement.protocol import TrialOrder
from engine.script.batch_sizes import trace_script_at_every_batch_size
from engine.script.devices.compiled import COMPILED, SCRIPTED
from engine.script.tests.scripts import A10, ADAM, LINEAR, linear, written
from engine.script.trace import trace_script
from engine.tests.shared import slow

PLAIN = LINEAR.format(optimizer=ADAM, last="pass")


def changed(change: str, to: str) -> str:
    """The plain script with a change, which may define the ``relu`` that it calls."""
    code = PLAIN.replace(change, to)
    return code.replace("model(x).relu()", "relu(model(x))") if "def relu" in to else code


@pytest.mark.parametrize(
    ("change", "to"),
    [
        ("model = nn.Linear(64, 64)", "model = torch.compile(nn.Linear(64, 64))"),
        slow("    optimizer =", "    model.compile(mode='max-autotune')\n    optimizer ="),
        ("    def step", "    @torch.compile(fullgraph=True)\n    def step"),
        ("import torch\n", "import torch\n@torch.compile\ndef relu(x):\n    return x.relu()\n"),
    ],
    ids=["wrapped", "in place", "decorated", "imported"],
)
def test_a_compiled_step_is_traced_uncompiled_and_says_so(
    folder: Path, change: str, to: str
) -> None:
    code = changed(change, to)
    for _ in range(2):  # the second time, the module is loaded already
        found = trace_script(written(folder, code, "compiled"), 8, A10)
        assert found.caveats[1:] == [COMPILED]
    expected = trace_script(written(folder, PLAIN), 8, A10)
    assert found.sizes == expected.sizes
    assert expected.caveats[1:] == []


@pytest.mark.parametrize(
    ("change", "to"),
    [
        ("model = nn.Linear(64, 64)", "model = torch.jit.script(nn.Linear(64, 64))"),
        (
            "    def step",
            "    @torch.jit.script\n    def relu(x: torch.Tensor):\n"
            "        return x.relu() if x.dim() else torch.tensor(0.0)\n    def step",
        ),
    ],
    ids=["module", "function"],
)
def test_what_torchscript_would_compile_is_traced_as_it_is_written(
    folder: Path, change: str, to: str
) -> None:
    """It cannot compile what stands in for ``torch.tensor``, as PyTorch's own modules call it."""
    code = changed(change, to)
    found = trace_script(written(folder, code, "scripted"), 8, A10)
    assert found.caveats[1:] == [SCRIPTED]
    assert found.sizes == trace_script(written(folder, PLAIN), 8, A10).sizes


def test_an_answer_says_what_its_trace_does_not_tell(folder: Path) -> None:
    code = LINEAR.format(optimizer=ADAM, last="pass")
    written(folder, code.replace("nn.Linear(64, 64)", "torch.compile(nn.Linear(64, 64))"))
    small = {"memory_limit_bytes": 2**30, "batch_multiple": 1024}
    result = engine.analyze("mine:make_step", gpu="t4", **small)  # type: ignore[arg-type]  # of ints
    assert COMPILED in result.caveats
    assert any("such as evaluation or saving, was not traced" in one for one in result.caveats)


def test_steps_that_grow_are_told(folder: Path) -> None:
    keep = "kept = globals().setdefault('kept', []); kept.append(x.repeat(1, 99))"
    factory = linear(folder, last=keep)
    traces = trace_script_at_every_batch_size(factory, A10, lambda _warning: None)
    for batch_size in (1, 2, 5):
        _, said = traces.at(batch_size).caveats
        assert said.startswith("Steps differ: at batch 2 the tensors of step 3 take")


def test_lengths_of_their_own_are_told(folder: Path) -> None:
    code = LINEAR.format(optimizer=ADAM, last="pass")
    code = code.replace("    def step", "    lengths = iter((4, 4, 4, 64))\n    def step")
    x = "        x = torch.randn(batch_size, next(lengths), 64)\n"
    code = code.replace("        loss =", f"{x}        loss =")
    _, said = trace_script(written(folder, code), 2, A10).caveats
    assert "batches have their own lengths" in said


def test_a_step_too_many_is_told_and_not_in_the_way(folder: Path) -> None:
    code = LINEAR.format(optimizer=ADAM, last="next(three)")
    code = code.replace("    def step", "    three = iter(range(3))\n    def step")
    _, said = trace_script(written(folder, code), 2, A10).caveats
    assert said.startswith("Step 4 fails with StopIteration")


def test_a_number_kept_of_each_step_is_no_difference(folder: Path) -> None:
    factory = linear(folder, last="globals().setdefault('kept', []).append(1.0)")
    assert trace_script(factory, 2, A10).caveats[1:] == []
    measured = cpu.run_trial(TrialOrder(factory, 8))
    assert trace_script(factory, 8, None).peak_by_category()[0] == measured.peak_allocated_bytes
