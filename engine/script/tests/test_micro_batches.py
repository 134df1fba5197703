"""Micro-batches of a Trainer that are not run again: the trace is that of a whole run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from engine.script.libraries.micro_batches import MicroBatches
from engine.script.program import Program
from engine.script.tests.scripts import A10
from engine.script.trace import trace_script
from engine.tests.shared import slow
from engine.tracing.trace import Trace

TRAINER = """
import random, sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

class Blocks(torch.utils.data.Dataset):
    def __len__(self):
        return 512
    def __getitem__(self, index):
        ids = torch.randint(0, 100, (16,))
        return {{"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}}

class Trained(Trainer):
    calls, kept = 0, []
    {method}

def collate(samples):
    batch = {{name: torch.stack([one[name] for one in samples]) for name in samples[0]}}
    Trained.calls += 1
    {collated}
    return batch

model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=100, n_positions=64))
args = TrainingArguments(
    "out", per_device_train_batch_size=int(sys.argv[2]), report_to=[], **{options}
)
Trained(model=model, args=args, train_dataset=Blocks(), data_collator=collate).train()
"""
COMPUTED = "def compute_loss(self, *args, **kwargs):\n        "
LOSS = "super().compute_loss(*args, **kwargs)"


def program(folder: Path, *, method: str = "", collated: str = "", **options: Any) -> Program:
    path = folder / "train.py"
    path.write_text(TRAINER.format(method=method, collated=collated, options=options))
    return Program.of(path, (), "--batch-size", None)


def both(script: Program, batch_size: int = 4) -> tuple[Trace, Trace, list[str]]:
    """The trace, that of a run of every micro-batch, and what the first says about it."""
    found = trace_script(script, batch_size, A10)
    with patch.object(MicroBatches, "all_run", True):
        whole = trace_script(script, batch_size, A10)
    said = [one for one in found.caveats if "were not run" in one]
    left = [one for one in found.caveats if one not in said]
    return replace(found, caveats=left), whole, said


@pytest.mark.longer
@pytest.mark.parametrize(
    ("accumulated", "options", "said"),
    [
        (3, {}, "4 of the 9"),
        pytest.param(
            5,
            {"bf16": True, "gradient_checkpointing": True},
            "9 of the 15",
            marks=pytest.mark.slow,
        ),
        pytest.param(16, {"fp16": True}, "42 of the 48", marks=pytest.mark.slow),
    ],
)
def test_the_trace_is_that_of_every_micro_batch(
    tmp_path: Path, accumulated: int, options: dict[str, Any], said: str
) -> None:
    script = program(tmp_path, gradient_accumulation_steps=accumulated, **options)
    found, whole, caveats = both(script)
    assert found == whole
    assert found.operations == whole.operations
    assert found.micro_batches == whole.micro_batches == accumulated
    assert found.optimizers == whole.optimizers == ("AdamW",)
    assert found.host_bytes == whole.host_bytes
    assert said in caveats[0]


@pytest.mark.slow
def test_lengths_that_differ_are_all_traced(tmp_path: Path) -> None:
    cut = "batch = {name: one[:, : 4 + Trained.calls] for name, one in batch.items()}"
    found, whole, said = both(program(tmp_path, collated=cut, gradient_accumulation_steps=4))
    assert found == whole
    assert said == []


@pytest.mark.slow
def test_a_long_batch_among_short_ones_is_traced(tmp_path: Path) -> None:
    cut = (
        "if Trained.calls != 9:\n        batch = {name: one[:, :8] for name, one in batch.items()}"
    )
    found, whole, said = both(program(tmp_path, collated=cut, gradient_accumulation_steps=5))
    assert found == whole
    assert found.operations == whole.operations
    assert said


@pytest.mark.slow
def test_padding_is_told_from_none(tmp_path: Path) -> None:
    """Where nothing is masked, another attention kernel runs."""
    mask = "if Trained.calls % 4 == 0:\n        batch['attention_mask'][:, 8:] = 0"
    found, whole, _ = both(program(tmp_path, collated=mask, gradient_accumulation_steps=4))
    assert found == whole
    assert found.operations == whole.operations


@pytest.mark.longer
@pytest.mark.parametrize(
    "method",
    [
        f"{COMPUTED}self.kept.append({LOSS})\n        return self.kept[-1]",
        slow(f"{COMPUTED}self.kept[:] = [{LOSS}]\n        return self.kept[-1]"),
        slow(f"{COMPUTED}return {LOSS} * (1.0 if random.random() < 0.9 else 2.0)"),
    ],
    ids=["keeps all", "keeps the last", "draws"],
)
def test_what_may_differ_each_time_is_traced_each_time(tmp_path: Path, method: str) -> None:
    script = program(tmp_path, method=method, gradient_accumulation_steps=3)
    found, whole, said = both(script)
    assert found == whole
    assert said == []


@pytest.mark.slow
def test_a_step_at_an_epochs_end_may_have_fewer(tmp_path: Path) -> None:
    script = program(tmp_path, gradient_accumulation_steps=30)
    found, whole, said = both(script, 8)
    assert found == whole
    assert said
    assert any(
        one.startswith("Step 3 accumulates 4 micro-batches and the one before 30")
        for one in found.caveats
    )


@pytest.mark.slow
def test_a_step_at_an_epochs_begin_has_no_more(tmp_path: Path) -> None:
    script = program(tmp_path, gradient_accumulation_steps=32)
    assert trace_script(script, 8, A10).micro_batches == 32
