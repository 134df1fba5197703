"""A training of one's own, as the engine takes it: copy it and put your model in.

From the command line, in the folder of this file::

    python -m engine analyze --factory my_training:make_step --gpu local     # measured here
    python -m engine analyze --factory my_training:make_step --gpu a10       # predicted
    python -m engine predict --factory my_training:make_step --gpu a10 --batch-size 64

and from Python::

    import engine
    result = engine.analyze("my_training:make_step", gpu="a10")
    print(result.verdict)

Three things let the answer be exact:

* Everything is made inside ``make_step``, nothing while the module is imported: each trial calls it
  in a fresh process.
* The device is chosen by ``torch.cuda.is_available()``, so that the same code can be traced for a
  GPU that is not here. Give it to ``torch.autocast(device.type, ...)`` as well.
* The step looks at no values: ``loss.item()`` can be measured, but not predicted.

To accumulate gradients, and to keep a global batch (``--global-batch-size``), let the factory take
``gradient_accumulation=1`` as well, and each step run so many micro-batches of ``batch_size``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

PIXELS, LABELS = 28, 10


class SmallConvNet(nn.Module):
    """Two convolutions and a classifier for small grey images."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Dropout(0.1), nn.Linear(64 * (PIXELS // 4) ** 2, LABELS)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores (B, 10) of images (B, 1, 28, 28)."""
        scores: torch.Tensor = self.classifier(self.features(images))
        return scores


def make_step(batch_size: int) -> Callable[[], None]:
    """A training step on batches of that size; each call of what it returns runs one."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = SmallConvNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    loss_of = nn.CrossEntropyLoss()
    images = torch.randn(batch_size, 1, PIXELS, PIXELS)
    labels = torch.randint(0, LABELS, (batch_size,))

    def step() -> None:
        optimizer.zero_grad()
        scores = model(images.to(device))
        loss_of(scores, labels.to(device)).backward()
        optimizer.step()

    return step
