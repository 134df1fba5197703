"""The one training step: what the fake tensors trace is what the GPU runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
)

from engine.batches import Batch
from engine.workload import Mode, Optimizer, Precision, Workload

TASKS: dict[str, Any] = {
    "causal-language-modelling": AutoModelForCausalLM,
    "image-classification": AutoModelForImageClassification,
    "sequence-classification": AutoModelForSequenceClassification,
}

_AUTOCAST = {Precision.BF16_MIXED: torch.bfloat16, Precision.FP16_MIXED: torch.float16}
_LEARNING_RATE = 1e-5


@dataclass
class Training:
    """A model with its optimizer, ready to step.

    Attributes:
        scaler: Gradient scaler; switched off unless the precision is fp16-mixed.
        autocast: The number format of the forward pass where it differs from the parameters'.
        phase: What the step is doing now (``inputs``, ``forward``, ``backward``, ``optimizer``,
            or ``idle``), so that an observer can say where memory went or ran out.
    """

    model: torch.nn.Module
    device: torch.device
    optimizer: torch.optim.Optimizer | None
    scaler: torch.amp.GradScaler
    autocast: torch.dtype | None
    phase: str = "idle"

    def autocast_context(self) -> AbstractContextManager[Any]:
        """The context the forward pass runs in."""
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast)


def build_model(workload: Workload) -> torch.nn.Module:
    """The workload's model with random weights, on the host: memory does not depend on values."""
    fields = workload.preset.config()
    config = AutoConfig.for_model(fields.pop("model_type"), **fields, use_cache=False)
    dtype = torch.bfloat16 if workload.precision is Precision.BF16_TRUE else torch.float32
    model: torch.nn.Module = TASKS[workload.preset.task].from_config(config, dtype=dtype)
    return model.train(workload.mode is Mode.TRAIN)


def prepare(workload: Workload, model: torch.nn.Module) -> Training:
    """Give a model, already on its device, the workload's optimizer and precision."""
    device = next(model.parameters()).device
    if device.type == "cuda":
        # PyTorch's own defaults otherwise: convolutions may use TF32, matrix products may not.
        torch.backends.cuda.matmul.allow_tf32 = workload.precision is Precision.TF32
    return Training(
        model=model,
        device=device,
        optimizer=_make_optimizer(workload.optimizer, model),
        scaler=torch.amp.GradScaler(
            device.type, enabled=workload.precision is Precision.FP16_MIXED
        ),
        autocast=_AUTOCAST.get(workload.precision),
    )


def training_step(training: Training, batch: Batch) -> None:
    """One whole training step: batch to the device, forward, loss, backward, optimizer.

    Args:
        training: What is trained.
        batch: On the host, as :func:`engine.batches.make_batch` makes it.
    """
    training.phase = "inputs"
    inputs = inputs_on_device(training, batch)
    training.phase = "forward"
    with training.autocast_context():
        loss = training.model(**inputs).loss
    training.phase = "backward"
    training.scaler.scale(loss).backward()
    training.phase = "optimizer"
    if training.optimizer is not None:
        training.scaler.step(training.optimizer)
        training.scaler.update()
    training.model.zero_grad(set_to_none=True)
    training.phase = "idle"


def step_of(forward_only: bool) -> Callable[[Training, Batch], None]:
    """The whole training step, or the forward pass alone."""
    return forward_pass if forward_only else training_step


def forward_pass(training: Training, batch: Batch) -> None:
    """The forward pass alone, without gradients: what naive tools take for training."""
    training.phase = "inputs"
    inputs = inputs_on_device(training, batch)
    training.phase = "forward"
    with torch.no_grad(), training.autocast_context():
        training.model(**inputs)
    training.phase = "idle"


def inputs_on_device(training: Training, batch: Batch) -> Batch:
    """A copy of the batch on the device, floats in the parameters' number format.

    The copy is made even where the device is the host, so that every device holds the same
    tensors.
    """
    parameters = next(training.model.parameters()).dtype
    return {
        name: tensor.to(
            training.device,
            dtype=parameters if tensor.is_floating_point() else tensor.dtype,
            copy=True,
        )
        for name, tensor in batch.items()
    }


def _make_optimizer(optimizer: Optimizer, model: torch.nn.Module) -> torch.optim.Optimizer | None:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    match optimizer:
        case Optimizer.NONE:
            return None
        case Optimizer.SGD | Optimizer.SGD_MOMENTUM:
            # foreach is PyTorch's own default on CUDA; said aloud, it holds on every device.
            momentum = 0.9 if optimizer is Optimizer.SGD_MOMENTUM else 0.0
            return torch.optim.SGD(parameters, lr=_LEARNING_RATE, momentum=momentum, foreach=True)
        case Optimizer.ADAMW:
            # The Hugging Face Trainer's default since PyTorch 2.8.
            return torch.optim.AdamW(parameters, lr=_LEARNING_RATE, fused=True)
