"""torchvision, for whose networks some measurements are published."""

from __future__ import annotations

_OPERATORS = ("nms", "qnms")
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


DECLARED = (
    "import torch; torch.version.cuda or hasattr(torch.ops.torchvision, 'nms') or list(map("
    "torch.library.define, ('torchvision::nms', 'torchvision::qnms'), "
    "2 * ('(Tensor boxes, Tensor scores, float threshold) -> Tensor',)))\n"
)
"""A ``.pth`` file for an environment: torchvision's operators need CUDA's libraries. Without
them it still loads if it finds these declared; no step calls them."""


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
        import torchvision  # noqa: F401  # loaded now, found by others
