"""Scripts whose optimizer runs its closure as often as values say."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.script.program import Program
from engine.script.tests.scripts import real
from engine.script.trace import trace_script
from engine.tests.shared import slow

SCRIPT = """
import sys, torch
from torch import nn

size = int(sys.argv[-1])
model = nn.Linear(64, 128)
optimizer = torch.optim.LBFGS(
    model.parameters(), lr=0.01, max_iter=6, history_size=4, tolerance_change=0, tolerance_grad=0,
    line_search_fn={search},
)
for _ in range(6):
    x = torch.randn(size, 64)
    def closure():
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        return loss
    optimizer.step(closure)
"""
VECTOR = 4 * (64 * 128 + 128)


@pytest.mark.longer
@pytest.mark.parametrize(("search", "more"), [slow(None, 2), ("strong_wolfe", 5)])
def test_lbfgs_takes_no_more_than_predicted(folder: Path, search: str | None, more: int) -> None:
    """A search may keep fewer gradients than it can, and every latest pair in its history."""
    script = folder / "train.py"
    script.write_text(SCRIPT.format(search=repr(search)))
    program = Program.of(script, (), "size")
    trace = trace_script(program, 8, None)
    predicted, measured = trace.peak_by_category()[0], real(program, 8).peak_allocated_bytes
    assert measured is not None
    assert -64 <= predicted - measured <= more * VECTOR + 64  # bytes of single numbers
    assert any("max_iter=6" in caveat and "history_size=4" in caveat for caveat in trace.caveats)
