"""Values that a script's step depends on, and that follow from what the script itself has."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from engine.allocator.caching import ALLOCATE
from engine.script.program import Program
from engine.script.tests.scripts import A10
from engine.script.trace import trace_script
from engine.tests.shared import rest_slow, slow
from engine.tracing.lowering import CudaBehaviour
from engine.tracing.trace import Trace

_LANGUAGE_MODEL = """
import torch
from torch import nn

n = 35  # of a mask, attention would make a copy in rows of 40
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 2, 128), 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
mask = {mask}
for _ in range(6):
    loss = model(torch.randn(n, 8, 64).cuda(), mask=mask).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
_GIVEN = "nn.Transformer.generate_square_subsequent_mask(n).cuda()"
_CAUSAL = [
    (
        "(torch.triu(torch.ones(n, n)) == 1).transpose(0, 1).float(); "
        "mask = mask.masked_fill(mask == 0, float('-inf')).masked_fill(mask == 1, 0.0).cuda()"
    ),
    "torch.log(torch.tril(torch.ones(n, n))).cuda()",
    "torch.full((n, n), float('-inf'), device='cuda').triu_(1)",
    "torch.triu(torch.full((n, n), float('-inf'), device='cuda'), diagonal=1)",
]
_OTHER = "torch.triu(torch.full((n, n), float('-inf')), diagonal=2).cuda()"
"""Each token also sees the next one."""


def _sizes(folder: Path, mask: str) -> list[int]:
    """The sizes of what the last step allocates."""
    script = folder / "train.py"
    script.write_text(_LANGUAGE_MODEL.format(mask=mask))
    trace = trace_script(Program.of(script), 8, A10)
    return [trace.sizes[one] for kind, one in trace.events[trace.last_step :] if kind == ALLOCATE]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """The sizes with a causal mask of PyTorch's own."""
    return _sizes(tmp_path_factory.mktemp("given"), _GIVEN)


@pytest.mark.longer
@pytest.mark.parametrize("mask", rest_slow(_CAUSAL))
def test_a_causal_mask_is_known_however_it_is_written(
    tmp_path: Path, mask: str, given: list[int]
) -> None:
    """``nn.TransformerEncoder`` compares it with its own, and attends in another way."""
    assert _sizes(tmp_path, mask) == given


@pytest.mark.longer
def test_another_triangle_is_no_causal_mask(tmp_path: Path, given: list[int]) -> None:
    assert _sizes(tmp_path, _OTHER) != given


def test_a_data_set_is_sorted_by_the_labels_of_its_file(tmp_path: Path) -> None:
    """As where pairs are drawn of one class: without its labels, a class would be empty."""
    count = 600
    (tmp_path / "labels").write_bytes(
        struct.pack(">II", 0x801, count) + bytes(number % 10 for number in range(count))
    )
    script = tmp_path / "train.py"
    script.write_text(
        f"""
import random
import numpy, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Pairs(Dataset):
    def __init__(self, file):
        content = bytearray(open(file, "rb").read())
        labels = torch.frombuffer(content, dtype=torch.uint8, offset=8).view({count}).long()
        labels = numpy.array(labels.clone())
        self.of_class = [numpy.where(labels == number)[0] for number in range(10)]
        assert [len(found) for found in self.of_class] == [{count // 10}] * 10
        self.images = torch.rand({count}, 32)
    def __len__(self):
        return {count}
    def __getitem__(self, index):
        found = self.of_class[index % 10]
        return self.images[found[random.randint(0, len(found) - 1)]], torch.tensor(1.0)

model = nn.Linear(32, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images, same in DataLoader(Pairs({str(tmp_path / "labels")!r}), batch_size=8):
    loss = nn.functional.mse_loss(model(images.cuda()).squeeze(1), same.cuda())
    loss.backward()
    optimizer.step()
"""
    )
    assert trace_script(Program.of(script), 8, A10).peak_of_last_step()


_KEPT_BY_THE_DATA = """
import sys
import torch
from torch.utils.data import DataLoader

device = "cuda" if torch.cuda.is_available() else "cpu"
windows = {}

def window():
    return windows.setdefault("one", torch.hann_window(64))

class Holder:
    def __init__(self, x):
        self.parts = {"x": x}

def collate(samples):
    return %s

model = torch.nn.Linear(64, 256).to(device)
optimizer = torch.optim.Adam(model.parameters())
data = [torch.randn(64) for _ in range(64)]
for x in DataLoader(data, int(sys.argv[2]), collate_fn=collate):
    x = x.parts["x"].to(device) if isinstance(x, Holder) else x.to(device)
    loss = model(x * window().to(device)).square().sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.longer
@pytest.mark.parametrize("behaviour", [slow(None), A10], ids=["CPU", "GPU"])
def test_a_step_may_use_what_its_data_made_and_kept(
    tmp_path: Path, behaviour: CudaBehaviour | None
) -> None:
    """As a window in a cache of a module, or tensors that an object of the script's holds."""

    def peak(made: str) -> int:
        path = tmp_path / "train.py"
        path.write_text(_KEPT_BY_THE_DATA % made)
        return trace_script(Program.of(path, (), "--batch"), 8, behaviour).peak_of_last_step()

    plain = peak("torch.stack(samples)")
    window = 64 * 4
    assert abs(peak("torch.stack(samples) * window()") - plain) <= 2 * window
    assert abs(peak("Holder(torch.stack(samples))") - plain) <= (0 if behaviour else 8 * window)


_PUT_ON_THE_GPU = """
import sys
import numpy
import torch
from torch.utils.data import DataLoader, Dataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

class Data(Dataset):
    x = numpy.ones((64, 64), "float32")
    def __len__(self):
        return 64
    def __getitem__(self, index):
        x, y = torch.from_numpy(self.x[index]), index %% 3
        return %s

model = torch.nn.Linear(64, 3).to(device)
optimizer = torch.optim.Adam(model.parameters())
for x, y in DataLoader(Data(), int(sys.argv[2])):
    %s
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.longer
@pytest.mark.parametrize(
    "sample",
    [
        slow("x.to(device), torch.tensor(y, device=device)"),
        slow("x.cuda(), torch.tensor(y).to(device, non_blocking=True)"),
        slow("torch.zeros(64, device=device) + x.to(device), torch.as_tensor(y, device='cuda')"),
        "(x / 2).to(device=device, dtype=torch.float16).float(), torch.LongTensor([y]).cuda()[0]",
    ],
)
def test_data_may_be_put_on_the_gpu_where_they_are_loaded(tmp_path: Path, sample: str) -> None:
    def trace(sample: str, then: str) -> Trace:
        path = tmp_path / "train.py"
        path.write_text(_PUT_ON_THE_GPU % (sample, then))
        return trace_script(Program.of(path, (), "--batch"), 8, A10)

    later = trace("x, y", "x, y = x.to(device), y.to(device)")
    more = trace(sample, "pass").peak_of_last_step() - later.peak_of_last_step()
    assert 0 <= more <= 8 * (64 * 4 + 8)  # the batch before, as long as the next one is loaded
