"""A training script in the form the engine takes: copy it and put your model in.

On the command line, in the folder of this file::

    memorymark analyze --factory my_training:make_step --gpu local  # measured here
    memorymark analyze --factory my_training:make_step --gpu a10    # predicted
    memorymark predict --factory my_training:make_step --gpu a10 --batch-size 64

and from Python::

    import memorymark
    result = memorymark.analyze("my_training:make_step", gpu="a10")
    print(result.verdict)

Three things make the answer exact:

* Everything is created inside ``make_step``, nothing while the module is imported: each trial calls
  it in a fresh process.
* The device is chosen with ``torch.cuda.is_available()``, so that the same code can be traced for a
  GPU you don't have. Pass it to ``torch.autocast(device.type, ...)`` as well.
* The step's memory does not depend on values. It may read them (``loss.item()``): a prediction
  puts placeholders there, and is refused where other placeholders would change the memory.

To accumulate gradients, or to keep a global batch (``--global-batch-size``), let the factory also
take ``gradient_accumulation=1``, and each step run that many micro-batches of ``batch_size``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

PIXELS, LABELS = 28, 10


class SmallConvNet(nn.Module):
    """Two convolutions and a classifier for small greyscale images."""

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
    """Returns a function that runs one training step on a batch of that size."""
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
