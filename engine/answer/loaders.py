"""The lines of a training script for batches of samples that differ in length."""

from __future__ import annotations

from ..core.choices import Batching
from ..interface.workload import Workload

_FLATTENED = "DataCollatorWithFlattening()"


def packing(workload: Workload) -> str | None:
    """The line that packs a data set, where rows hold several samples."""
    if workload.batching is not Batching.PACKED:
        return None
    return f"dataset = pack_dataset(dataset, {workload.sequence_length})  # from trl"


def loader(workload: Workload, batch_size: int) -> str:
    """The line of a plain loop that makes its loader."""
    match workload.batching:
        case Batching.MAX_TOKENS:
            most = batch_size * (workload.sequence_length or 0)
            given = f"batch_sampler=sampler)  # of at most {most} tokens a batch"
            return f"loader = DataLoader(dataset, {given}"
        case Batching.BUCKETED:
            more = f", sampler=LengthGroupedSampler({batch_size}, dataset)"
        case Batching.PADDING_FREE:
            more = f", collate_fn={_FLATTENED}"
        case _:
            more = ""
    return f"loader = DataLoader(dataset, batch_size={batch_size}{more})"


def sampling(workload: Workload) -> str:
    """The ``train_sampling_strategy`` of transformers' Trainer; empty for its own."""
    return '"group_by_length"' if workload.batching is Batching.BUCKETED else ""


def collator(workload: Workload) -> str:
    """The argument of a Trainer that makes batches; empty for its own."""
    is_flat = workload.batching is Batching.PADDING_FREE
    return f"data_collator={_FLATTENED}, " if is_flat else ""
