"""The scripts, and how each is run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.script.program import Program

FOLDER = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class Case:
    """One script with its arguments.

    Attributes:
        name: Name of its row.
        about: Description for the table.
        script: Its file.
        batch_size: Samples per step.
        arguments: Its command line.
        batch_flag, batch_env: Setting of its batch size; without both, its ``DataLoader``.
        packages: Whether it needs packages of ``requirements.txt`` in this folder.
        runs: Whether its steps are run as well; not if they are too large for a CPU.
    """

    name: str
    about: str
    script: str
    batch_size: int
    arguments: tuple[str, ...] = ()
    batch_flag: str | None = None
    batch_env: str | None = None
    packages: bool = False
    runs: bool = True

    @property
    def path(self) -> Path:
        """Its file, absolute."""
        return FOLDER / self.script

    @property
    def program(self) -> Program:
        """The script as the engine takes it."""
        return Program.of(self.path, self.arguments, self.batch_flag, self.batch_env)


_TRAINER = "hf_trainer.py"
_PER_DEVICE = "per_device_train_batch_size"
_OUTPUT = ("--output_dir", "out", "--max_steps", "20", "--logging_steps", "1")

CASES = (
    Case("plain loop", "CNN; GradScaler, clipping, `.item()`", "image_classifier.py", 8,
         batch_flag="--batch-size"),
    Case("nanoGPT style", "GPT; its precision lines, micro-steps", "gpt.py", 8,
         batch_flag="--batch_size="),
    Case("GAN", "DCGAN; two optimizers", "gan.py", 32, batch_flag="batchSize"),
    Case("U-Net", "channels last, RMSprop, Dice", "unet.py", 8),
    Case("EMA", "diffusion; a copy that follows the weights", "diffusion.py", 24,
         batch_flag="batch_size"),
    Case("GNN", "message passing by `index_add`", "gnn.py", 12, batch_env="BATCH_SIZE"),
    Case("LSTM", "language model; truncated backpropagation", "lstm.py", 16,
         batch_flag="batch_size"),
    Case("Trainer", "GPT-2 by Hugging Face's Trainer, with evaluation", _TRAINER, 8,
         (*_OUTPUT, "--eval_strategy", "epoch", "--do_eval"), _PER_DEVICE),
    Case("Trainer, LoRA", "the same, adapters only", _TRAINER, 8, (*_OUTPUT, "--lora_r", "8"),
         _PER_DEVICE),
    Case("Trainer, checkpointing", "the same, activations computed again", _TRAINER, 8,
         (*_OUTPUT, "--gradient_checkpointing", "--gradient_accumulation_steps", "2"),
         _PER_DEVICE),
    Case("accelerate", "BERT for pairs; `accumulate`", "accelerate_loop.py", 16,
         batch_flag="batch_size"),
    Case("DPO", "policy and frozen reference, Qwen2", "dpo.py", 4, batch_flag="bs"),
    Case("Lightning", "`Trainer.fit` with a data module", "lightning_fit.py", 32,
         batch_flag="batch_size", packages=True),
    Case("TRL", "`SFTTrainer`, chat template, Llama", "trl_sft.py", 4,
         (*_OUTPUT, "--bf16", "false", "--report_to", "none"), _PER_DEVICE, packages=True),
    Case("timm, ViT", "mixup, EMA of the weights", "timm_train.py", 16,
         ("--model", "vit_tiny_patch16_224", "--model-ema"), "batch-size", packages=True),
    Case("timm, EfficientNet", "mixup, drop path", "timm_train.py", 16,
         ("--model", "efficientnet_b0"), "batch-size", packages=True),
    Case("1.2 billion parameters", "Llama in bf16, checkpointing", "billion.py", 2,
         batch_flag="micro-batch-size", runs=False),
)  # fmt: skip
