"""Muon for hidden matrices, AdamW for all else."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from transformers import PreTrainedModel

from ...core.errors import EngineError, InvalidInput


def muon_with_adamw(model: torch.nn.Module, lr: float) -> torch.optim.Optimizer:
    """Muon for the weights of hidden layers that are matrices, fused AdamW for all else.

    All else are embeddings, the head, norms, biases, convolutions, and the experts of a mixture
    where they are one tensor of three dimensions, which PyTorch's Muon does not take.

    Source: torch.optim.Muon, which follows Jordan 2024, "Muon: An optimizer for hidden layers in
    neural networks"; it keeps one momentum as wide as the weight.

    Raises:
        EngineError: If PyTorch is older than 2.9, which has no Muon.
        InvalidInput: If no trained parameter is such a matrix.
    """
    if not hasattr(torch.optim, "Muon"):
        raise EngineError("Muon needs PyTorch 2.9 or newer; update it or choose adamw")
    matrices = list(_hidden_matrices(model))
    if not matrices:
        reason = "Muon trains matrices of hidden layers, of which there are none; choose adamw"
        raise InvalidInput({"optimizer": reason})
    known = {id(parameter) for parameter in matrices}
    others = [p for p in model.parameters() if p.requires_grad and id(p) not in known]
    muon = torch.optim.Muon(matrices, lr=lr)
    return Both(muon, torch.optim.AdamW(others, lr=lr, fused=True)) if others else muon


class Both(torch.optim.Optimizer):
    """Two optimizers of different parameters, which step one after the other."""

    def __init__(self, first: torch.optim.Optimizer, second: torch.optim.Optimizer) -> None:
        groups = [*first.param_groups, *second.param_groups]
        super().__init__([parameter for group in groups for parameter in group["params"]], {})
        self.param_groups = groups
        self._parts = (first, second)
        for part in self._parts:
            part.state = self.state

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # the loss is not needed
        """Update every parameter that has a gradient."""
        for part in self._parts:
            part.step()


def _hidden_matrices(model: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    apart = {id(parameter) for parameter in _of_embeddings_and_heads(model)}
    for name, parameter in model.named_parameters():
        is_matrix = parameter.dim() == 2 and name.endswith("weight")
        if is_matrix and parameter.requires_grad and id(parameter) not in apart:
            yield parameter


def _of_embeddings_and_heads(model: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            yield from module.parameters()
    outer = next((m for m in model.modules() if isinstance(m, PreTrainedModel)), None)
    if outer is None:  # of timm or diffusers, whose last module is the head
        name, _ = list(model.named_parameters())[-1]
        yield from model.get_submodule(name.rpartition(".")[0]).parameters()
        return
    inner = {id(parameter) for parameter in outer.base_model.parameters()}
    yield from (parameter for parameter in outer.parameters() if id(parameter) not in inner)
    head = outer.get_output_embeddings()
    if head is not None:
        yield from head.parameters()
