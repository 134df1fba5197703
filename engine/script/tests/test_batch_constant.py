"""Scripts whose batch size is a number in their own file are predicted as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.events import Event
from engine.script.data.batch_constant import batch_constant
from engine.script.factory import ScriptFailed
from engine.script.program import Program
from engine.script.request import ScriptRequest
from engine.script.tests.scripts import real
from engine.script.trace import trace_script
from engine.script_analysis import predict_script

OWN_BATCHES = """
import torch
from torch import nn
{settings}
text = torch.randint(0, 65, (4000,))
model = nn.Sequential(nn.Embedding(65, 96), nn.Linear(96, 65))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(50):
    x = {rows}
    y = x.roll(-1)
    loss = nn.functional.cross_entropy(model(x).view(-1, 65), y.view(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
"""
DRAWN = "torch.stack([text[i:i + 32] for i in torch.randint(len(text) - 32, (batch_size,))])"
CUT = "text[: 32 * {size}].view(-1, 32)"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "train.py"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("lr = 1e-3\nbatch_size = 16  # how many\n", "batch_size = 16 in line 2"),
        ("BATCH_SIZE: int = 1_024\n", "BATCH_SIZE = 1,024 in line 1"),
        ("def batch(split, bs=8): ...\n", "bs = 8 in line 1"),
        ("def batch(*, bsz=8, other): ...\n", "bsz = 8 in line 1"),
        ("é = 'ü'; config = {'é': 1, 'train_batch_size': 4}\n", "train_batch_size = 4 in line 1"),
        ("class Config:\n    batchSize = 2\n", "batchSize = 2 in line 2"),
        ("run(lr=1, batch_size=64)\n", "batch_size = 64 in line 1"),
    ],
)
def test_the_one_number_with_a_usual_name_is_found(script: Path, source: str, said: str) -> None:
    script.write_text(source)
    constant = batch_constant(script)
    assert str(constant) == said
    assert constant
    script.write_bytes(constant.replaced(script.read_bytes(), 7))
    changed = batch_constant(script)
    assert changed
    assert (changed.name, changed.value, changed.line) == (constant.name, 7, constant.line)


@pytest.mark.parametrize(
    "source",
    [
        "batch_size = 16\neval(batch_size=8)\n",  # which of them?
        "batch_size = 2 * 8\n",
        "batch_size = '16'\n",
        "batch_size = True\n",
        "batch_size = 0\n",
        "eval_batch_size = 16\n",
        "def broken(:\n",
    ],
)
def test_what_is_not_one_number_is_left_to_the_user(script: Path, source: str) -> None:
    script.write_text(source)
    assert batch_constant(script) is None


def test_a_file_whose_bytes_are_counted_otherwise_is_left_alone(script: Path) -> None:
    source = "# coding: latin-1\nname = '\u00e9\u00e9\u00e9'; batch_size = 16; other = 3\n"
    script.write_bytes(source.encode("latin-1"))
    assert batch_constant(script) is None


@pytest.mark.torch
def test_a_script_without_loader_and_flags_takes_what_it_takes_in_a_real_run(script: Path) -> None:
    script.write_text(OWN_BATCHES.format(settings="batch_size = 16", rows=DRAWN))
    before = script.read_bytes()
    program = Program(str(script), by_constant=True)
    trace = trace_script(program, 8, None)
    assert trace.peak_of_last_step() == real(program, 8).peak_allocated_bytes
    assert script.read_bytes() == before


@pytest.mark.longer
@pytest.mark.torch
def test_it_is_found_where_no_loader_feeds_the_steps(script: Path) -> None:
    rows = CUT.format(size="batch_size")
    script.write_text(OWN_BATCHES.format(settings="batch_size = 16", rows=rows))
    events: list[Event] = []
    request = ScriptRequest(Program.of(script), gpu="a10")
    (trial,) = predict_script(request, events.append).trials
    assert trial.batch_size == 16
    assert any("train.py sets its batch size itself: batch_size = 16" in str(e) for e in events)


@pytest.mark.torch
@pytest.mark.slow
def test_a_number_that_sets_nothing_is_told(script: Path) -> None:
    rows = CUT.format(size="4 * 8")
    script.write_text(OWN_BATCHES.format(settings="batch_size = 16", rows=rows))
    with pytest.raises(ScriptFailed, match=r"same tensors at batch 16 and .*--batch-flag"):
        predict_script(ScriptRequest(Program.of(script), gpu="a10"), lambda _: None)
