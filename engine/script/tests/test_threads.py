"""Threads that a script starts beside training: its steps are predicted as without them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from engine.script.factory import ScriptFailed
from engine.script.program import Program
from engine.script.tests.scripts import A10
from engine.script.trace import trace_script
from engine.tests.shared import slow
from engine.tracing.trace import Trace

_TRAINING = """
import concurrent.futures, queue, threading, time
import torch
from torch import nn

{before}
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for batch in {batches}:
    batch = batch.cuda()
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
    {last}
"""
_BATCHES = "[torch.rand(64, 256) for _ in range(8)]"

_PLOTS = """
def draw(images):
    for image in images[:4].float().cpu():
        (image * 255).clamp(0, 255).numpy().mean()
"""
_LOGS = """
losses = queue.Queue()
def log():
    while True:
        values = losses.get()
        if values.mean().item() > 3:
            torch.zeros(1000, 1000).sum().item()
threading.Thread(target=log, daemon=True).start()
"""
_POOL = """
pool = concurrent.futures.ThreadPoolExecutor(2)
def norm(values):
    return values.norm().item()
"""
_RESTLESS = """
def spin():
    while True:
        time.sleep(0)
threading.Thread(target=spin, daemon=True).start()
"""
_PREFETCHES = """
class Prefetched:
    def __init__(self, ahead):
        self.ready = queue.Queue(ahead)
        threading.Thread(target=self.load, daemon=True).start()
    def load(self):
        while True:
            self.ready.put(torch.rand(64, 256).cuda(non_blocking=True))
    def __iter__(self):
        while True:
            yield self.ready.get()
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """The script without threads."""
    return _traced(tmp_path_factory.mktemp("alone"))


def _traced(folder: Path, before: str = "", last: str = "pass", batches: str = _BATCHES) -> Trace:
    script = folder / "train.py"
    script.write_text(_TRAINING.format(before=before, batches=batches, last=last))
    return trace_script(Program.of(script), 64, A10)


@pytest.mark.longer
@pytest.mark.parametrize(
    ("before", "last", "kept"),
    [
        (_PLOTS, "threading.Thread(target=draw, args=(batch,), daemon=True).start()", 1),
        (_LOGS, "losses.put(batch)", 2),  # it has the last one until there is another
        slow(_POOL, "pool.submit(norm, batch)", 1),
    ],
    ids=["plots", "logs", "pool"],
)
def test_what_a_thread_reads_stays_until_the_step_after(
    tmp_path: Path, before: str, last: str, kept: int, alone: Trace
) -> None:
    start = threading.Thread.start
    beside = _traced(tmp_path, before, last)
    assert threading.Thread.start is start  # nothing is left of it in this process
    batch = 64 * 256 * 4
    assert 0 <= beside.peak_of_last_step() - alone.peak_of_last_step() <= kept * batch
    assert [one.flops for one in beside.operations] == [one.flops for one in alone.operations]


@pytest.mark.longer
def test_a_thread_that_never_rests_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: Trace
) -> None:
    monkeypatch.setattr("engine.tracing.beside._MAX_WAIT_SECONDS", 0.05)
    assert _traced(tmp_path, _RESTLESS).events == alone.events


@pytest.mark.longer
def test_batches_that_a_thread_has_put_on_the_gpu_count(tmp_path: Path) -> None:
    batch = 64 * 256 * 4
    peaks = {
        ahead: _traced(tmp_path, _PREFETCHES, batches=f"Prefetched({ahead})").peak_of_last_step()
        for ahead in (1, 3)
    }
    assert peaks[3] - peaks[1] == 2 * batch


def test_training_in_a_thread_is_refused_by_that_name(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    inside = _TRAINING.format(before="", batches=_BATCHES, last="pass").replace("\n", "\n    ")
    script.write_text(
        f"import threading\ndef train():\n    {inside}\n"
        "thread = threading.Thread(target=train)\nthread.start()\nthread.join()\n"
    )
    with pytest.raises(ScriptFailed, match="trains in a thread that it starts"):
        trace_script(Program.of(script), 64, A10)
