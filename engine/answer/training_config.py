"""A decision as the lines of a training script: for a Trainer, for Lightning, for a plain loop.

Each records the training run and names its analysis, so that the lab sees whether it came true.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.choices import ZERO, Batching, Method, Parallelism, Precision
from ..core.optimizers import Optimizer
from ..interface.workload import Workload
from ..models.tasks import Task
from .config_parts import (
    HALF,
    joined,
    made_by,
    model_lines,
    named_analysis,
    optimizer_lines,
    parameter_groups,
    quoted,
    sink_lines,
    sink_names,
)
from .loaders import loader, packing
from .trainer_config import trainer_lines

_TF32 = 'torch.set_float32_matmul_precision("high")  # TF32'


_LIGHTNING_PRECISIONS = {
    Precision.BF16_MIXED: "bf16-mixed",
    Precision.FP16_MIXED: "16-mixed",
    Precision.BF16_TRUE: "bf16-true",
}


_SHORT = {Precision.BF16_MIXED: "bf16", Precision.FP16_MIXED: "fp16"}


_STRATEGIES = {
    Parallelism.DDP: "ddp",
    Parallelism.FSDP: "fsdp",
    **{stage: f"deepspeed_stage_{number}" for number, stage in enumerate(ZERO, start=1)},
}


@dataclass(frozen=True)
class TrainingConfig:
    """The lines for one way of training.

    Attributes:
        name: Name of the library, to choose by.
        text: Python code to paste.
    """

    name: str
    text: str


def training_configs(
    workload: Workload, batch_size: int, analysis_id: int | None = None
) -> list[TrainingConfig]:
    """The settings of a decision in each of the usual libraries.

    Args:
        workload: Its accumulation is that at this batch size.
        batch_size: Samples per micro-batch and GPU.
        analysis_id: The lab's analysis that the run is reported to; ``None`` records it in a file.
    """
    if workload.task is Task.TEXT_TO_IMAGE:
        return [TrainingConfig("diffusers", _diffusers(workload, batch_size, analysis_id))]
    trainer = trainer_lines(workload, batch_size, analysis_id)
    if workload.method is not Method.SFT:
        return [TrainingConfig("TRL", trainer)]
    makes_batches = workload.batching is Batching.MAX_TOKENS
    if workload.optimizer.spec.rank and workload.optimizer_in_backward and not makes_batches:
        return [TrainingConfig("Trainer", trainer)]  # its layer-wise ones
    plain = TrainingConfig("PyTorch", _pytorch(workload, batch_size, analysis_id))
    if workload.optimizer_in_backward or makes_batches:  # Trainers do these themselves
        return [plain]
    lightning = TrainingConfig("Lightning", _lightning(workload, batch_size, analysis_id))
    return [TrainingConfig("Trainer", trainer), lightning, plain]


def _recorded(workload: Workload, batch_size: int, analysis_id: int | None) -> str:
    """The statement that records a loop, with what it cannot see by itself."""
    given = {
        "gradient_accumulation": workload.gradient_accumulation,
        "world_size": workload.world_size,
    }
    counts = "".join(f", {name}={count}" for name, count in given.items() if count > 1)
    named = named_analysis(analysis_id)
    return joined(
        "with record_training(",
        f'    batch_size={batch_size}{counts}, model=model, precision="{workload.precision}",',
        f"    sink=sink{named},",
        ") as recording:",
    ).rstrip()


def _diffusers(workload: Workload, batch_size: int, analysis_id: int | None) -> str:
    """Flags that diffusers' training scripts share, and the lines that record their loop."""
    given = {
        "train_batch_size": str(batch_size),
        "resolution": str(workload.image_size),
        "gradient_accumulation_steps": str(workload.gradient_accumulation),
        "mixed_precision": _SHORT.get(workload.precision),
        "rank": str(workload.lora_rank) if workload.lora_rank else None,
    }
    switches = {
        "gradient_checkpointing": workload.gradient_checkpointing,
        "use_8bit_adam": workload.optimizer is Optimizer.ADAMW_8BIT,
        "allow_tf32": workload.precision is Precision.TF32,
    }
    return joined(
        "# flags of train_text_to_image*.py and train_dreambooth*.py in diffusers' examples",
        *(f"--{name}={value}" for name, value in given.items() if value),
        *(f"--{name}" for name, is_on in switches.items() if is_on),
        "",
        "# around the script's loop; in it, recording.step() after optimizer.step()",
        f"from memorymark.recording import record_training, {sink_names(analysis_id)}",
        *sink_lines(analysis_id),
        _recorded(workload, batch_size, analysis_id).replace("model=model", "model=unet"),
    )


def _lightning(workload: Workload, batch_size: int, analysis_id: int | None) -> str:
    given = {
        "accumulate_grad_batches": str(workload.gradient_accumulation),
        "precision": quoted(_LIGHTNING_PRECISIONS.get(workload.precision)),
        "devices": str(workload.world_size) if workload.world_size > 1 else "",
        "strategy": quoted(_STRATEGIES.get(workload.parallelism)),
        "callbacks": "[recorder]",
    }
    arguments = ", ".join(f"{name}={value}" for name, value in given.items() if value)
    optimizer = made_by(workload)
    return joined(
        f"from memorymark.recording import {sink_names(analysis_id)}",
        "from memorymark.recording.lightning import MemoryMarkCallback",
        "",
        *([_TF32] if workload.precision is Precision.TF32 else []),
        *model_lines(workload),
        packing(workload),
        loader(workload, batch_size),
        *parameter_groups(workload),
        f"# configure_optimizers: return {optimizer}" if optimizer else None,
        *sink_lines(analysis_id),
        f"recorder = MemoryMarkCallback(sink{named_analysis(analysis_id)})",
        f"trainer = lightning.Trainer({arguments})",
    )


def _pytorch(workload: Workload, batch_size: int, analysis_id: int | None) -> str:
    """A plain loop, as most scripts have it."""
    half, optimizer = HALF.get(workload.precision), made_by(workload)
    scaled = workload.precision is Precision.FP16_MIXED
    count = workload.gradient_accumulation
    backward = "scaler.scale(loss).backward()" if scaled else "loss.backward()"
    step = ["scaler.step(optimizer)", "scaler.update()"] if scaled else ["optimizer.step()"]
    stepping = step if optimizer and not workload.optimizer_in_backward else []
    last = [*stepping, "model.zero_grad()", "recording.step()"]
    if count > 1:
        last = [f"if number % {count} == 0:", *(f"    {line}" for line in last)]
    cast = f'with torch.autocast("cuda", torch.{half}):' if half else None
    return joined(
        f"from memorymark.recording import record_training, {sink_names(analysis_id)}",
        "",
        _TF32 if workload.precision is Precision.TF32 else None,
        *model_lines(workload),
        *optimizer_lines(workload),
        "scaler = torch.amp.GradScaler()" if scaled else None,
        packing(workload),
        loader(workload, batch_size),
        *sink_lines(analysis_id),
        _recorded(workload, batch_size, analysis_id),
        "    for number, batch in enumerate(loader, start=1):",
        f"        {cast}" if cast else None,
        f"        {'    ' if cast else ''}loss = model(**batch).loss",
        f"        loss = loss / {count}" if count > 1 else None,
        f"        {backward}",
        *(f"        {line}" for line in last),
    )
