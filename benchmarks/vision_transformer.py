"""ViT-L/16 as torchvision builds it, trained as in its published measurements.

torchvision is not a dependency, and transformers' ViT of the same size does not behave alike:
torchvision's has one packed projection for queries, keys and values, whose weight, gradient and
optimizer state fill the allocator's segments differently, and autocast casts other tensors. The
measured scripts (https://github.com/rasbt/pytorch-memory-optim) drop the gradients between forward
and backward. Their batches stay on the GPU in fp32 until the next one has been moved there, or,
without Fabric, is about to be.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import nn

WIDTH, HEADS, LAYERS, HIDDEN = 1024, 16, 24, 4096
PIXELS, PATCH, LABELS = 224, 16, 10
PATCHES = (PIXELS // PATCH) ** 2


class EncoderLayer(nn.Module):
    """Attention and a perceptron, each with a layer norm before it and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.perceptron_norm = nn.LayerNorm(WIDTH)
        self.perceptron = nn.Sequential(
            nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens (B, S, WIDTH) to the same shape."""
        normed = self.attention_norm(tokens)
        attended = tokens + self.attention(normed, normed, normed, need_weights=False)[0]
        encoded: torch.Tensor = attended + self.perceptron(self.perceptron_norm(attended))
        return encoded


class VisionTransformer(nn.Module):
    """Patch embedding, class token and encoder layers."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.class_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.zeros(1, PATCHES + 1, WIDTH))
        self.layers = nn.Sequential(*[EncoderLayer() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, LABELS)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores (B, LABELS) of images (B, 3, PIXELS, PIXELS)."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        classes = self.class_token.expand(len(images), -1, -1)
        tokens = torch.cat([classes, patches], dim=1) + self.positions
        scores: torch.Tensor = self.head(self.norm(self.layers(tokens))[:, 0])
        return scores


def _make_step(
    batch_size: int,
    dtype: torch.dtype = torch.float32,
    *,
    autocast: bool = False,
    fabric: bool = True,
) -> Callable[[], None]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = VisionTransformer().to(dtype).to(device)
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)  # Adam's default then
    scaler = torch.amp.GradScaler(device.type, enabled=autocast)
    host = torch.randn(batch_size, 3, PIXELS, PIXELS), torch.zeros(batch_size, dtype=torch.long)
    batch: tuple[torch.Tensor, ...] = ()  # the loop's variables keep it until the next one is there

    def step() -> None:
        nonlocal batch
        if not fabric:
            batch = ()
        batch = tuple(tensor.to(device) for tensor in host)
        images, labels = batch
        with torch.autocast(device.type, torch.float16) if autocast else nullcontext():
            scores = model(images.to(dtype))
        loss = nn.functional.cross_entropy(scores.float(), labels)  # Fabric returns fp32
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def fp32(batch_size: int) -> Callable[[], None]:
    """The step of 01_pytorch-vit.py."""
    return _make_step(batch_size, fabric=False)


def fp32_with_fabric(batch_size: int) -> Callable[[], None]:
    """The step of 01-2_pytorch-fabric.py."""
    return _make_step(batch_size)


def bf16_true(batch_size: int) -> Callable[[], None]:
    """The step of 03-bfloat16.py and 04_lower-batchsize.py."""
    return _make_step(batch_size, torch.bfloat16)


def fp16_mixed(batch_size: int) -> Callable[[], None]:
    """The step of 02_mixed-precision.py."""
    return _make_step(batch_size, autocast=True)
