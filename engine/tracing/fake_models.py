"""Models whose tensors are fake."""

from __future__ import annotations

from typing import Any

import torch


def on_fake_tensors(model: torch.nn.Module) -> torch.nn.Module:
    """Replace a model's meta tensors by fake ones; shared ones stay shared.

    A model is built on the meta device and not on fake tensors, since those cannot be moved by
    ``Module.to``, which libraries call while they build.

    Args:
        model: On the meta device. It is changed.
    """
    faked: dict[torch.Tensor, torch.Tensor] = {}
    for module in model.modules():
        held: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for tensors in held:
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = faked.setdefault(tensor, _fake(tensor))
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                setattr(module, name, _fake(value))  # kept from step to step, such as positions
    return model


def _fake(tensor: torch.Tensor) -> torch.Tensor:
    fake = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
    return fake
