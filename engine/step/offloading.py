"""Activations that wait for the backward pass in the host's memory.

PyTorch's ``save_on_cpu(pin_memory=True)`` copies each tensor that the forward pass saves, weights
among them, to pinned memory and back in backward, both in the stream of the kernels. transformers
(5.23, ``activation_checkpointing_enable(offload=True)``) does so with what checkpointing keeps of
each layer, which is its input.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks


class Host(Protocol):
    """The host's memory, where a step is traced in one memory."""

    def __contains__(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is there."""

    def copied(
        self, tensor: torch.Tensor, place: str, *, waits: bool | None = None
    ) -> torch.Tensor:
        """A copy on the ``host`` or the ``device``, which the kernels wait for or not."""

    def copy(self, source: torch.Tensor, target: torch.Tensor, place: str) -> None:
        """Copy to a tensor that is there, beside the kernels."""


class ActivationOffload:
    """Keeps what the forward pass saves on the host.

    Args:
        model: The model that is trained; where its layers are checkpointed, what that keeps of them
            is offloaded and nothing else.

    Attributes:
        host: The host's memory where a step is traced; ``None`` where it runs.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.host: Host | None = None
        self._by_layer = False
        for module in model.modules():
            checkpoint = getattr(module, "_gradient_checkpointing_func", None)
            if checkpoint is not None:
                self._by_layer = True
                vars(module)["_gradient_checkpointing_func"] = partial(self._run, checkpoint)

    def forward_pass(self, context: Any) -> None:
        """Enter what the whole forward pass needs into a stack of contexts."""
        if not self._by_layer:
            context.enter_context(self._saving())

    def _run(self, checkpoint: Any, *args: Any, **kwargs: Any) -> Any:
        with self._saving():
            return checkpoint(*args, **kwargs)

    def _saving(self) -> AbstractContextManager[Any]:
        host = self.host
        if host is None:
            return save_on_cpu(pin_memory=True)
        return saved_tensors_hooks(
            lambda tensor: host.copied(tensor, "host"),
            lambda tensor: host.copied(tensor, "device"),
        )
