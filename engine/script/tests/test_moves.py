"""Moves that are made in a script: its trace is that of the script with the line written in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.script.moves.kinds import MoveNotMade, ScriptMove
from engine.script.program import Program
from engine.script.tests.scripts import A10
from engine.script.trace import trace_script
from engine.tracing.trace import RECOMPUTATION, Trace

PLAIN = """
import argparse
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
args = parser.parse_args()
torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        return x + self.down(self.up(x).relu())

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        for block in self.blocks:
            x = {block}
        return self.head(x)

{first}
model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters(){fused})
for _ in range(6):
    x = torch.randn(args.batch_size, 64, device="cuda")
    y = torch.zeros(args.batch_size, dtype=torch.long, device="cuda")
    with torch.autocast("cuda", dtype=torch.{half}, enabled={casts}):
        loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    {differentiates}
    {steps}
"""
AS_IT_IS = {
    "block": "block(x)",
    "first": "",
    "fused": "",
    "half": "bfloat16",
    "casts": "False",
    "differentiates": "loss.backward()",
    "steps": "optimizer.step()",
}
BF16 = {"casts": "True"}
FP16 = {
    "first": 'scaler = torch.amp.GradScaler("cuda")',
    "half": "float16",
    "casts": "True",
    "differentiates": "scaler.scale(loss).backward()",
    "steps": "scaler.step(optimizer); scaler.update()",
}
CHECKPOINTED = {"block": "checkpoint(block, x, use_reentrant=False)"}
TF32 = {"first": 'torch.set_float32_matmul_precision("high")'}

FRAMEWORK = """
import argparse
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
args = parser.parse_args()
config = BertConfig(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=99
)

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        return {{"input_ids": torch.ones(16, dtype=torch.long), "labels": torch.tensor(1)}}

Trainer(
    BertForSequenceClassification(config),
    TrainingArguments(
        "unused", per_device_train_batch_size=args.batch_size, report_to=[], save_strategy="no",
        {arguments}
    ),
    train_dataset=Data(),
).train()
"""

ACCELERATED = """
import argparse
import torch
from accelerate import Accelerator
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
args = parser.parse_args()
accelerator = Accelerator({arguments})
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(6):
    x = torch.randn(args.batch_size, 64, device=accelerator.device)
    loss = model(x).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
"""


def traced(folder: Path, source: str, *moves: ScriptMove) -> Trace:
    file = folder / "train.py"
    file.write_text(source)
    program = replace(Program.of(file, batch_flag="--batch-size"), moves=moves)
    return trace_script(program, 4, A10)


def same(one: Trace, other: Trace) -> bool:
    """Whether two traces have the same allocations, for the same uses, and the same work.

    A script may update the scale of its losses only when its step has ended.
    """
    alike = replace(other, caveats=one.caveats, modules=one.modules)
    work = (
        [operation for operation in trace.operations if "_amp_update_scale_" not in operation.name]
        for trace in (one, other)
    )
    return one == alike and next(work) == next(work)


@pytest.mark.parametrize(
    ("moves", "written"),
    [
        ([ScriptMove.BF16], BF16),
        ([ScriptMove.FP16], FP16),
        (
            [ScriptMove.FP16, ScriptMove.FUSED_OPTIMIZER],
            FP16 | {"fused": ", fused=True"},
        ),
        ([ScriptMove.FUSED_OPTIMIZER], {"fused": ", fused=True"}),
        ([ScriptMove.TF32], TF32),
        ([ScriptMove.CHECKPOINTING], CHECKPOINTED),
        ([ScriptMove.BF16, ScriptMove.CHECKPOINTING], BF16 | CHECKPOINTED),
    ],
    ids=[
        "bf16",
        "fp16",
        "fp16 and fused",
        "fused",
        "tf32",
        "checkpointing",
        "bf16 and checkpointing",
    ],
)
def test_a_move_gives_the_trace_of_the_line_it_names(
    tmp_path: Path, moves: list[ScriptMove], written: dict[str, str]
) -> None:
    made = traced(tmp_path, PLAIN.format(**AS_IT_IS), *moves)
    by_hand = traced(tmp_path, PLAIN.format(**AS_IT_IS | written))

    assert same(made, by_hand)
    assert len(made.move_lines) == len(moves)
    assert not by_hand.move_lines


def test_blocks_are_checkpointed_once_though_models_come_one_after_another(tmp_path: Path) -> None:
    source = PLAIN.replace(
        "optimizer = torch.optim.AdamW(model.parameters()",
        'width = model(torch.randn(2, 64, device="cuda")).shape[1]\n'
        "head = nn.Linear(width, 10).cuda()\n"
        "optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()]",
    ).replace("cross_entropy(model(x), y)", "cross_entropy(head(model(x)), y)")

    made = traced(tmp_path, source.format(**AS_IT_IS), ScriptMove.CHECKPOINTING)
    assert same(made, traced(tmp_path, source.format(**AS_IT_IS | CHECKPOINTED)))


def test_checkpointing_that_was_imported_by_its_name_is_switched_off(tmp_path: Path) -> None:
    source = PLAIN.format(**AS_IT_IS | CHECKPOINTED)
    made = traced(tmp_path, source, ScriptMove.NO_CHECKPOINTING)
    assert made.move_lines == ["call blocks without torch.utils.checkpoint.checkpoint"]


def test_checkpointing_is_switched_off_wherever_it_is_called(tmp_path: Path) -> None:
    made = traced(tmp_path, PLAIN.format(**AS_IT_IS | CHECKPOINTED), ScriptMove.NO_CHECKPOINTING)
    assert same(made, traced(tmp_path, PLAIN.format(**AS_IT_IS)))
    assert RECOMPUTATION not in {one.phase for one in made.operations}


@pytest.mark.longer
@pytest.mark.parametrize(
    ("move", "arguments"),
    [
        (ScriptMove.BF16, "bf16=True"),
        (ScriptMove.FP16, "fp16=True"),
        (ScriptMove.CHECKPOINTING, "gradient_checkpointing=True"),
        (ScriptMove.FUSED_OPTIMIZER, 'optim="adamw_torch_fused"'),
    ],
    ids=["bf16", "fp16", "checkpointing", "fused"],
)
def test_a_trainer_is_asked_by_its_own_arguments(
    tmp_path: Path, move: ScriptMove, arguments: str
) -> None:
    made = traced(tmp_path, FRAMEWORK.format(arguments='optim="adamw_torch"'), move)
    written = arguments if "optim" in arguments else f'optim="adamw_torch", {arguments}'
    assert same(made, traced(tmp_path, FRAMEWORK.format(arguments=written)))
    assert made.move_lines == [f"TrainingArguments({arguments})"]


@pytest.mark.longer
def test_an_accelerator_is_asked_by_its_own_argument(tmp_path: Path) -> None:
    made = traced(tmp_path, ACCELERATED.format(arguments=""), ScriptMove.BF16)
    arguments = 'mixed_precision="bf16"'
    assert same(made, traced(tmp_path, ACCELERATED.format(arguments=arguments)))
    assert made.move_lines == [f"Accelerator({arguments})"]


@pytest.mark.parametrize(
    ("move", "said"),
    [
        (ScriptMove.NO_CHECKPOINTING, "in a way of its own"),
        (ScriptMove.FUSED_OPTIMIZER, "has a fused kernel"),
    ],
)
def test_a_script_without_what_a_move_changes_says_so(
    tmp_path: Path, move: ScriptMove, said: str
) -> None:
    source = PLAIN.format(**AS_IT_IS).replace("AdamW", "RMSprop")
    with pytest.raises(MoveNotMade, match=said):
        traced(tmp_path, source, move)


FUNCTIONAL = """
import argparse
import torch
from torch import nn
from torch.func import functional_call, grad

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
args = parser.parse_args()
model = nn.Linear(64, 64).cuda()
weights = dict(model.named_parameters())

def loss(weights, x):
    return functional_call(model, weights, (x,)).square().mean()

for _ in range(6):
    x = torch.randn(args.batch_size, 64, device="cuda")
    for name, slope in grad(loss)(weights, x).items():
        with torch.no_grad():
            weights[name] -= 0.1 * slope
"""


def test_bf16_ends_with_a_step_that_has_no_backward_pass(tmp_path: Path) -> None:
    made = traced(tmp_path, FUNCTIONAL, ScriptMove.BF16)
    assert not any("Steps differ" in caveat for caveat in made.caveats)
    assert {one.dtype for one in made.operations if one.flops} == {"bfloat16"}


PENALTY = """
import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
args = parser.parse_args()
critic = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 1)).cuda()
optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
for _ in range(6):
    x = torch.randn(args.batch_size, 64, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled={casts}):
        score = critic(x)
        (slope,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        loss = score.mean() + (slope @ slope.T).diagonal().sub(1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_gradient_in_the_loss_is_autocast_too(tmp_path: Path) -> None:
    made = traced(tmp_path, PENALTY.format(casts="False"), ScriptMove.BF16)
    assert same(made, traced(tmp_path, PENALTY.format(casts="True")))
