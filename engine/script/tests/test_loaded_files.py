"""Files that torch.load reads count where they are loaded, as on a machine with that GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from engine.core.errors import NotPredictable
from engine.script.devices.cuda_device import on_gpu
from engine.script.machine import pretended_machine
from engine.script.program import Program
from engine.script.tests.scripts import A10, real
from engine.script.trace import trace_script
from engine.tracing.trace import Trace

LOADS = hasattr(torch._utils, "_restore_device_fake_mode")
loading = pytest.mark.skipif(not LOADS, reason="this release loads no file on fake tensors")

SAVED_BYTES = 4 * 250_000

RESUMED = """
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int)
size = parser.parse_args().batch_size
device = "cuda" if torch.cuda.is_available() else "cpu"
checkpoint = torch.load({path!r}, map_location=device)
model = nn.Linear(500, 500, bias=False).to(device)
model.load_state_dict(checkpoint["model"])
optimizer = torch.optim.AdamW(model.parameters())
optimizer.load_state_dict(checkpoint["optimizer"])
{last}
for (x,) in DataLoader(TensorDataset(torch.randn(60, 500)), size):
    optimizer.zero_grad()
    model(x.to(device)).sum().backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a megabyte, after a step with AdamW."""
    model = nn.Linear(500, 500, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 500)).sum().backward()
    optimizer.step()
    path = tmp_path_factory.mktemp("saved") / "last.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    return path


def resumed(folder: Path, checkpoint: Path, last: str = "") -> Program:
    path = folder / "train.py"
    path.write_text(RESUMED.replace("{path!r}", repr(str(checkpoint))).replace("{last}", last))
    return Program.of(str(path), ("--batch-size", "8"), "batch-size", None)


def peak(trace: Trace) -> int:
    return trace.peak_by_category()[0]


@loading
def test_a_run_that_goes_on_from_a_checkpoint_equals_real_steps(
    folder: Path, checkpoint: Path
) -> None:
    program = resumed(folder, checkpoint)
    assert peak(trace_script(program, 8, None)) == real(program, 8).peak_allocated_bytes


@pytest.mark.longer
@loading
def test_a_checkpoint_that_stays_on_the_gpu_counts_there(folder: Path, checkpoint: Path) -> None:
    kept, freed = (
        peak(trace_script(resumed(folder, checkpoint, last), 8, A10))
        for last in ("", "del checkpoint")
    )
    assert kept - freed == SAVED_BYTES  # the optimizer has taken over its own part


@pytest.mark.parametrize(
    ("location", "is_there"),
    [
        ("'cuda'", True),
        ("'cuda:0'", True),
        ("torch.device('cuda')", True),
        ("{'cpu': 'cuda:0'}", True),
        ("lambda storage, saved: storage.cuda()", True),
        ("lambda storage, saved: storage", False),
        ("lambda storage, saved: None", False),
        ("'cpu'", False),
        ("None", False),
    ],
)
@loading
def test_it_is_where_the_script_says(tmp_path: Path, location: str, is_there: bool) -> None:
    row = torch.arange(6.0)
    torch.save({"row": row, "table": row.view(2, 3), "label": torch.tensor([3])}, tmp_path / "x")
    with pretended_machine(A10):
        found = torch.load(tmp_path / "x", map_location=eval(location))  # noqa: S307  # of this test
        assert all(on_gpu(tensor) is is_there for tensor in found.values())
        assert found["table"].shape == (2, 3)
        assert found["label"].dtype is torch.int64
        shared = [found[name].untyped_storage()._cdata for name in ("row", "table")]
        assert shared[0] == shared[1]
        (found["table"] * found["row"][:3]).sum()


@loading
@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.float8_e5m2, torch.float64])
def test_every_format_has_the_size_that_was_saved(tmp_path: Path, dtype: torch.dtype) -> None:
    saved = torch.empty(6, dtype=dtype)
    torch.save(saved, tmp_path / "x")
    with pretended_machine(A10):
        found = torch.load(tmp_path / "x", map_location="cuda")
        assert found.dtype is dtype
        assert found.untyped_storage().nbytes() == saved.untyped_storage().nbytes()


@loading
def test_a_whole_model_may_be_loaded(tmp_path: Path) -> None:
    torch.save(nn.Linear(3, 2), tmp_path / "x")
    with pretended_machine(A10):
        model = torch.load(tmp_path / "x", map_location="cuda", weights_only=False)
        assert [on_gpu(one) and one.requires_grad for one in model.parameters()] == [True, True]
        model(torch.ones(1, 3, device="cuda")).sum().backward()


@pytest.mark.parametrize("location", ["'cpu'", "None", "lambda storage, saved: storage"])
def test_every_release_loads_what_stays_on_the_host(tmp_path: Path, location: str) -> None:
    torch.save(nn.Linear(3, 2).state_dict(), tmp_path / "x")
    with pretended_machine(A10):
        model = nn.Linear(3, 2).cuda()
        model.load_state_dict(torch.load(tmp_path / "x", map_location=eval(location)))  # noqa: S307  # of this test
        model(torch.ones(1, 3, device="cuda")).sum().backward()


@pytest.mark.skipif(LOADS, reason="this release loads files on fake tensors")
@pytest.mark.parametrize("location", ["'cuda'", "lambda storage, saved: storage.cuda()"])
def test_before_2_7_what_goes_to_the_gpu_is_refused(tmp_path: Path, location: str) -> None:
    torch.save(torch.ones(3), tmp_path / "x")
    with pretended_machine(A10), pytest.raises(NotPredictable, match=r"PyTorch 2\.7 or newer"):
        torch.load(tmp_path / "x", map_location=eval(location))  # noqa: S307  # of this test
