"""torchvision, for whose networks some measurements are published."""

from __future__ import annotations

_OPERATORS = ("nms", "qnms")
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def load_torchvision() -> None:
    """Import torchvision, even where its own kernels are for another build of PyTorch.

    It does not load without their operators, which are for detection; nobody detects here. Later
    imports, such as those of transformers, find it loaded.
    """
    import torch

    try:
        import torchvision
    except RuntimeError:
        for name in _OPERATORS:
            torch.library.define(f"torchvision::{name}", _SCHEMA)
        import torchvision  # noqa: F401
