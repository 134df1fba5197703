"""Cases that every build has to run: commands as users type them, and the numbers compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_SCRIPTS = _HERE.parent / "real_code" / "scripts"
_SMALL = _HERE / "small_bert.json"
_PREDICTED = ("peak_allocated_bytes", "peak_reserved_bytes")


@dataclass(frozen=True)
class Case:
    """One command.

    Attributes:
        name: Its name in the table.
        words: Arguments of ``python``.
        numbers: Fields of its JSON that have to be equal in every build.
    """

    name: str
    words: tuple[str, ...]
    numbers: tuple[str, ...] = _PREDICTED

    def read(self, answer: Mapping[str, Any]) -> dict[str, int]:
        """The numbers in an answer.

        Raises:
            KeyError: If one is missing.
        """
        return {name: answer[name] for name in self.numbers}


def _command(name: str, words: str, numbers: tuple[str, ...] = _PREDICTED) -> Case:
    return Case(name, ("-m", "memorymark", *words.split(), "--json"), numbers)


def _script(name: str, file: str | Path, flag: str, batch_size: int, *arguments: str) -> Case:
    command = f"predict {_SCRIPTS / file} --batch-flag={flag} --batch-size {batch_size} --gpu h100"
    given = _command(name, command)
    return Case(name, (*given.words, "--", *arguments))


CASES = (
    _command("BERT", "predict bert --batch-size 16 --gpu h100"),
    _command(
        "GPT-2, LoRA, bf16-mixed",
        "predict gpt2 --precision bf16-mixed --lora-rank 16 --batch-size 8 --gpu h100",
    ),
    _command("ResNet-50", "predict resnet --batch-size 32 --gpu h100"),
    _script(
        "Trainer script", "hf_trainer.py", "per_device_train_batch_size", 8,
        "--output_dir", "out", "--max_steps", "20", "--logging_steps", "1",
    ),
    _script("plain loop with an LSTM", "lstm.py", "batch_size", 16),
    _script("Triton kernel", _HERE / "scripts" / "triton_kernel.py", "batch_size", 64),
    _command(
        "Llama, FSDP",
        "predict llama-3.2-1b --precision bf16-true --parallelism fsdp --world-size 2"
        " --batch-size 2 --gpu h100",
    ),
    _command(
        "Llama, nf4, LoRA",
        "predict llama-3.2-1b --quantization nf4 --lora-rank 8 --batch-size 2 --gpu h100",
    ),
    _command(
        "analyze", f"analyze {_SMALL} --gpu h100", ("largest_batch_size", "recommended_batch_size")
    ),
    _command("plan", f"plan {_SMALL} --gpu a10", ("current_batch_size",)),
    Case("Python call", (str(_HERE / "python_call.py"),)),
)  # fmt: skip
