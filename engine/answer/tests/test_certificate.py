"""The commands that reproduce the trials on both sides of the limit."""

from __future__ import annotations

from engine.answer.certificate import model_commands
from engine.interface.request import AnalysisRequest
from engine.interface.trial import Source

BERT: dict[str, object] = {"model": "bert", "gpu": "a10"}


def commands(source: Source = Source.PREDICTED, **fields: object) -> list[str]:
    return model_commands(AnalysisRequest.parse(BERT | fields), source, (64, 65))


def test_default_settings_are_left_out() -> None:
    assert commands() == [
        "memorymark predict bert --gpu a10 --batch-size 64",
        "memorymark predict bert --gpu a10 --batch-size 65",
    ]


def test_changed_settings_are_included() -> None:
    fits, _ = commands(precision="bf16-mixed", allocator="expandable_segments:True")
    assert "--precision bf16-mixed" in fits
    assert "--allocator expandable_segments:True" in fits


def test_a_measured_trial_has_no_gpu_flag() -> None:
    fits, _ = commands(Source.MEASURED, gpu="local", memory_limit_bytes=2**30)
    assert fits == f"memorymark measure bert --memory-limit {2**30} --batch-size 64"


def test_each_command_accumulates_to_keep_the_global_batch() -> None:
    """For 256 samples, batch 64 takes 4 micro-batches, 65 too; the current 16 takes 16."""
    for command in commands(current_batch_size=16, global_batch_size=256):
        assert "--gradient-accumulation 4" in command
        assert "--global-batch-size" not in command  # the command has no such flag
    assert "--gradient-accumulation 3" in commands(gradient_accumulation=3)[0]
    assert "accumulation" not in commands(current_batch_size=16, global_batch_size=64)[0]
