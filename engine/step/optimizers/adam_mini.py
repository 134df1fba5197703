"""Adam-mini."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from transformers import PreTrainedModel

from ...core.errors import InvalidInput

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8

_BY_HEAD = ("k_proj", "q_proj", "wq", "wk", "query", "key")
_BY_ROW = (
    *("embed", "embd", "wte", "lm_head", "output", "final_layer", "v_proj", "wv", "value"),
    *("o_proj", "wo", "attn.proj", "feed_forward", "linear", "mlp"),
)


class AdamMini(torch.optim.Optimizer):
    """Adam with a momentum for each weight and a second moment for each head, row or tensor.

    The name of a parameter decides which; biases have a second moment for each weight. A step takes
    up to four copies of one tensor.

    Source: Zhang et al. 2024, "Adam-mini: Use Fewer Learning Rates To Gain More"; ``Adam_mini`` of
    adam-mini 1.1.1, of which this makes the same tensors in the same order.

    Args:
        parameters: Trained parameters, by name.
        lr: The learning rate.
        head_size: Weights of a query or key that belong to a head.

    Raises:
        InvalidInput: If a tensor has no such heads or rows.
    """

    def __init__(
        self, parameters: Iterable[tuple[str, torch.nn.Parameter]], lr: float, head_size: int
    ) -> None:
        groups = [
            {"params": [parameter], "rows": _rows(name.lower(), parameter, head_size)}
            for name, parameter in parameters
        ]
        super().__init__(groups, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # the loss is not needed
        """Update every parameter that has a gradient.

        Names stay bound from one parameter to the next, and with them tensors alive, as in the
        package.
        """
        beta1, beta2 = _BETAS
        for group in self.param_groups:
            (p,), rows, rate = group["params"], group["rows"], group["lr"]
            if p.grad is None:
                continue
            state = self.state[p]
            if not state:
                state |= _new_state(p, rows)
            state["step"] += 1
            first, second = 1 - beta1 ** state["step"], math.sqrt(1 - beta2 ** state["step"])
            if rows == p.numel():
                state["v"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                state["m"].lerp_(p.grad, 1 - beta1)
                scale = (state["v"].sqrt() / second).add_(_EPSILON)
                p.addcdiv_(state["m"], scale, value=-rate / first)
                continue
            if rows > 1:
                grad = p.grad.view(rows, -1)
                mean = torch.mean(grad * grad, dim=1, keepdim=True)
            else:
                grad = p.grad
                mean = torch.sum(grad * grad)
                mean = mean / p.numel()
            state["v"].mul_(beta2).add_(mean, alpha=1 - beta2)
            state["m"].lerp_(grad, 1 - beta1)
            scale = (state["v"].sqrt() / second).add_(_EPSILON)
            size = (1 / first) / scale
            update = (state["m"] * size).view(p.size())
            update.mul_(rate)
            p.add_(-update)


def adam_mini(model: torch.nn.Module, lr: float) -> AdamMini:
    """Adam-mini over the trained parameters of a model, with its heads."""
    outer = next((m for m in model.modules() if isinstance(m, PreTrainedModel)), None)
    config = None if outer is None else outer.config.get_text_config()
    width, heads = (getattr(config, n, None) for n in ("hidden_size", "num_attention_heads"))
    head_size = width * width // heads if width and heads else 2048 * 2048 // 32
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    return AdamMini(trained, lr, head_size)


def _rows(name: str, parameter: torch.nn.Parameter, head_size: int) -> int:
    """Number of second moments of a tensor."""
    if "bias" in name:
        return parameter.numel()
    if any(part in name for part in _BY_HEAD):
        if parameter.numel() % head_size:
            raise _refused(name, f"is not a multiple of a head's {head_size:,} weights")
        return parameter.numel() // head_size
    if any(part in name for part in _BY_ROW):
        if parameter.dim() != 2:
            raise _refused(name, "is not a matrix")
        return parameter.shape[0]
    return 1


def _refused(name: str, reason: str) -> InvalidInput:
    return InvalidInput({"optimizer": f"Adam-mini does not take this model: {name} {reason}"})


def _new_state(parameter: torch.Tensor, rows: int) -> dict[str, torch.Tensor | int]:
    momentum = torch.zeros_like(parameter)
    if rows == parameter.numel():
        return {"step": 0, "m": momentum, "v": torch.zeros_like(parameter)}
    if rows == 1:  # the sum of squares is what the package makes a zero like
        second = torch.zeros_like(torch.sum(parameter * parameter))
        return {"step": 0, "m": momentum, "v": second}
    momentum = momentum.view(rows, -1)
    return {"step": 0, "m": momentum, "v": torch.zeros_like(momentum[:, :1])}
