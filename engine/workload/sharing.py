"""How several GPUs share the work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..choices import Parallelism, ReduceDtype
from ..fields import Described, Group, Interval


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """How several GPUs share the work."""

    parallelism: Annotated[
        Parallelism,
        Described(
            "Parallelism",
            "How several GPUs share the work. Batch sizes are per GPU.",
            Group.SEVERAL,
        ),
    ] = Parallelism.NONE
    world_size: Annotated[
        int,
        Interval(ge=1, le=1024),
        Described("Number of GPUs", "How many share the work.", Group.SEVERAL),
    ] = 1
    gradient_as_bucket_view: Annotated[
        bool,
        Described(
            "Gradients as bucket views",
            "Lets DDP hold gradients once, in its buckets, instead of twice.",
            Group.SEVERAL,
        ),
    ] = False
    reshard_after_forward: Annotated[
        bool | None,
        Described(
            "Reshard after forward",
            "Whether FSDP frees a block's gathered weights after forward and gathers them again in "
            "backward. Off needs more memory and sends less, as ZeRO-2 does.",
            Group.SEVERAL,
            empty="as PyTorch: on, except for what is outside the blocks",
        ),
    ] = None
    reduce_dtype: Annotated[
        ReduceDtype,
        Described(
            "Gradient reduction",
            "The number format in which FSDP adds up gradients. Mixed precision often reduces in "
            "fp32.",
            Group.SEVERAL,
        ),
    ] = ReduceDtype.GATHERED
    shard_size: Annotated[
        int | None,
        Interval(ge=2, le=512),
        Described(
            "GPUs per shard group",
            "FSDP shards among so many GPUs and copies the shards to the other groups (hybrid "
            "sharding), such as 8 for one machine.",
            Group.SEVERAL,
            empty="all of them",
        ),
    ] = None
    cpu_offload: Annotated[
        bool,
        Described(
            "Offload shards",
            "FSDP keeps its shards of weights, gradients and optimizer state in the host's memory, "
            "and the optimizer runs there.",
            Group.SEVERAL,
        ),
    ] = False
    tensor_parallel: Annotated[
        int,
        Interval(ge=1, le=64),
        Described(
            "Tensor parallel GPUs",
            "So many GPUs split each layer and train on the same batch. The batch size is that of "
            "such a group.",
            Group.SEVERAL,
        ),
    ] = 1
    sequence_parallel: Annotated[
        bool,
        Described(
            "Sequence parallel",
            "Splits what lies between the layers along the sequence, among the GPUs that split "
            "each layer.",
            Group.SEVERAL,
        ),
    ] = False
    pipeline_parallel: Annotated[
        int,
        Interval(ge=1, le=64),
        Described(
            "Pipeline stages",
            "So many GPUs each have a part of the layers and pass micro-batches on (1F1B). "
            "Gradient accumulation is the number of micro-batches.",
            Group.SEVERAL,
        ),
    ] = 1

    reduce_bucket_size: Annotated[
        int | None,
        Interval(ge=1, le=10_000_000_000),
        Described(
            "Reduce bucket size",
            'Gradients that DeepSpeed reduces at a time. Hugging Face\'s "auto" takes the hidden '
            "size squared.",
            Group.SEVERAL,
            unit="gradients",
            empty="500,000,000, as DeepSpeed",
        ),
    ] = None

    @property
    def data_parallel(self) -> int:
        """How many groups of GPUs train on batches of their own."""
        return max(1, self.world_size // (self.tensor_parallel * self.pipeline_parallel))

    @property
    def bucket_elements(self) -> int:
        """Gradients that DeepSpeed reduces at a time."""
        return self.reduce_bucket_size or 500_000_000

    @property
    def shard_count(self) -> int:
        """Among how many GPUs FSDP or ZeRO splits the weights; 1 where they do not."""
        if self.parallelism is Parallelism.ZERO_3:
            return self.world_size
        if self.parallelism is not Parallelism.FSDP:
            return 1
        return self.shard_size or self.data_parallel
