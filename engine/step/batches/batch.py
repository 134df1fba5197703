"""The type of a batch, and the label of each sample."""

from __future__ import annotations

from typing import Any

import torch

from ...interface.workload import Workload

Batch = dict[str, Any]
"""Tensors by the name of the model's argument, or lists of dictionaries of them, one a sample."""


def one_label_each(workload: Workload, batch_size: int) -> Batch:
    """A class for each sample; a number where there is one label only."""
    dtype = torch.float32 if workload.label_count == 1 else torch.int64
    return {"labels": torch.zeros(batch_size, dtype=dtype)}
