"""The one training step: what the fake tensors trace is what the GPU runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map

from ..core.choices import Attention, CrossEntropy, Method, Mode, Parallelism, Precision
from ..interface.workload import Workload
from .adapting import adapt
from .batches import Batch
from .building import new_model
from .context import Context
from .cross_entropy import chunked_loss
from .losses import Loss, loss_for
from .methods import Learner
from .offloading import ActivationOffload, Host
from .optimizers import OnHost, make_optimizer, updating_in_backward
from .pipelining import Stage
from .ppo import ActorCritic
from .transformers_versions import forget_cached

_AUTOCAST = {Precision.BF16_MIXED: torch.bfloat16, Precision.FP16_MIXED: torch.float16}


@dataclass
class TrainingState:
    """A model with its optimizer, ready to step.

    Attributes:
        loss: Loss of a model, for a batch.
        scaler: Gradient scaler; disabled unless the precision is fp16-mixed.
        autocast: The number format of the forward pass, if not the parameters'.
        micro_batches: Micro-batches per optimizer step; their gradients are accumulated.
        flash_only: Whether FlashAttention is the only kernel allowed.
        offload: Keeps activations on the host; ``None`` where they stay.
        context: Divides sequences among GPUs; ``None`` where each has whole ones.
        phase: What the step is doing (``inputs``, ``forward``, ``backward``, ``optimizer`` or
            ``idle``; between steps ``evaluation``, and ``outputs`` where that keeps logits), so
            that an observer can tell where memory went or ran out.
    """

    model: torch.nn.Module
    device: torch.device
    optimizer: torch.optim.Optimizer | None
    loss: Loss
    scaler: torch.amp.GradScaler
    autocast: torch.dtype | None
    micro_batches: int = 1
    flash_only: bool = False
    offload: ActivationOffload | None = None
    context: Context | None = None
    phase: str = "idle"

    def offload_to(self, host: Host | None) -> None:
        """Say what stands for the host's memory where a step is traced, if anything does."""
        if self.offload is not None:
            self.offload.host = host
        if isinstance(self.optimizer, OnHost):
            self.optimizer.host = host

    def sequences(self, inputs: Batch) -> AbstractContextManager[Any]:
        """The context of a micro-batch in which this GPU has its part of each sequence."""
        return nullcontext() if self.context is None else self.context.divided(inputs)

    def forward_context(self) -> AbstractContextManager[Any]:
        """The context the forward pass runs in."""
        context = ExitStack()
        if self.autocast is not None:
            context.enter_context(torch.autocast(self.device.type, dtype=self.autocast))
        context.enter_context(self.attention_context())
        if self.offload is not None:
            self.offload.forward_pass(context)
        return context

    def attention_context(self) -> AbstractContextManager[Any]:
        """The context in which attention has its kernel, also of what backward recomputes."""
        if self.flash_only:
            kernel: AbstractContextManager[Any] = sdpa_kernel(SDPBackend.FLASH_ATTENTION)
            return kernel
        return nullcontext()


def build_model(
    workload: Workload, *, predicting: bool = False, sharded: bool = False
) -> torch.nn.Module:
    """The workload's model with random weights, on the host: memory does not depend on values.

    Args:
        workload: The model, and how it is adapted.
        predicting: Whether its steps are traced and never run.
        sharded: Whether GPUs divide the weights, where the workload does not say so.
    """
    sharded = sharded or workload.parallelism is Parallelism.FSDP
    model = adapt(new_model(workload), workload, predicting=predicting, sharded=sharded)
    if workload.method is not Method.SFT:
        kind = ActorCritic if workload.method is Method.PPO else Learner
        model = kind(model, workload)
    return model.train(workload.mode is Mode.TRAIN)


def trainable_parameter_count(workload: Workload) -> int:
    with torch.device("meta"):
        model = build_model(workload, predicting=True)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def prepare(
    workload: Workload, model: torch.nn.Module, *, predicting: bool = False
) -> TrainingState:
    """Give a model, already on its device, the workload's optimizer and precision.

    Args:
        workload: The optimizer, the precision, the accumulation.
        model: The model that is trained.
        predicting: Whether its steps are traced and never run.
    """
    device = next(model.parameters()).device
    forget_cached(model)
    if device.type == "cuda":
        # PyTorch's own defaults otherwise: convolutions may use TF32, matrix products may not.
        torch.backends.cuda.matmul.allow_tf32 = workload.precision is Precision.TF32
    optimizer = make_optimizer(workload, model, predicting=predicting)
    if workload.compile:
        model.compile()
    return TrainingState(
        model=model,
        device=device,
        optimizer=optimizer,
        loss=_loss(workload, predicting=predicting),
        scaler=torch.amp.GradScaler(
            device.type, enabled=workload.precision is Precision.FP16_MIXED
        ),
        autocast=_AUTOCAST.get(workload.precision),
        micro_batches=workload.gradient_accumulation,
        flash_only=workload.attention is Attention.FLASH and device.type == "cuda",
        offload=ActivationOffload(model) if workload.activation_offload else None,
        context=Context(workload, model) if workload.context_parallel > 1 else None,
    )


def _loss(workload: Workload, *, predicting: bool) -> Loss:
    if workload.cross_entropy is CrossEntropy.MODEL:
        return loss_for(workload.task)
    return chunked_loss(workload.cross_entropy, predicting=predicting)


def training_step(training: TrainingState, batch: Batch) -> None:
    """One whole training step: batch to the device, forward, loss, backward, optimizer.

    Args:
        training: The model and its optimizer.
        batch: A batch on the host, as :func:`~engine.step.batches.make_batch` makes it; each
            micro-batch of an accumulated step is one like it.
    """
    if isinstance(training.model, Stage):
        _run_stage(training, training.model, batch)
        _update(training)
        return
    for _ in range(training.micro_batches):
        training.phase = "inputs"
        inputs = inputs_on_device(training, batch)
        training.phase = "forward"
        with training.sequences(inputs):
            with training.forward_context():
                loss = training.loss(training.model, inputs)
            training.phase = "backward"
            with updating_in_backward(training.optimizer), training.attention_context():
                training.scaler.scale(loss / training.micro_batches).backward()
    _update(training)


def _update(training: TrainingState) -> None:
    training.phase = "optimizer"
    if training.optimizer is not None:
        training.scaler.step(training.optimizer)
        training.scaler.update()
    training.model.zero_grad(set_to_none=True)
    training.phase = "idle"


def _run_stage(training: TrainingState, stage: Stage, batch: Batch) -> None:
    """The micro-batches of a pipeline, whose forward and backward passes alternate."""

    @contextmanager
    def forward() -> Iterator[None]:
        training.phase = "forward"
        with training.forward_context():
            yield

    @contextmanager
    def backward() -> Iterator[None]:
        training.phase = "backward"
        with training.attention_context():
            yield

    training.phase = "inputs"
    inputs = [inputs_on_device(training, batch) for _ in range(training.micro_batches)]
    training.phase = "forward"
    stage.run(inputs, forward, backward)


def step_of(forward_only: bool) -> Callable[[TrainingState, Batch], None]:
    """The whole training step, or the forward pass alone."""
    return forward_pass if forward_only else training_step


def forward_pass(training: TrainingState, batch: Batch) -> None:
    """The forward pass and the loss, without gradients: what naive tools measure."""
    training.phase = "inputs"
    inputs = inputs_on_device(training, batch)
    training.phase = "forward"
    with torch.no_grad(), training.forward_context():
        training.loss(training.model, inputs)
    training.phase = "idle"


def inputs_on_device(training: TrainingState, batch: Batch) -> Batch:
    """A copy of the batch on the device, floats in the parameters' number format.

    The copy is made even where the device is the host, so that every device holds the same
    tensors.
    """
    parameters = next(training.model.parameters()).dtype

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        dtype = parameters if tensor.is_floating_point() else tensor.dtype
        return tensor.to(training.device, dtype=dtype, copy=True)

    inputs: Batch = tree_map(moved, batch)
    return inputs
