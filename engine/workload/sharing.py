"""How several GPUs share the work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..choices import Parallelism, ReduceDtype, Rotation
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
            "FSDP shards among this many GPUs and copies the shards to the other groups (hybrid "
            "sharding), such as 8 for one machine.",
            Group.SEVERAL,
            empty="all of them",
        ),
    ] = None
    cpu_offload: Annotated[
        bool,
        Described(
            "Offload shards",
            "FSDP or ZeRO 3 keeps its shards of weights, gradients and optimizer state in the "
            "host's memory, and the optimizer runs there.",
            Group.SEVERAL,
        ),
    ] = False
    tensor_parallel: Annotated[
        int,
        Interval(ge=1, le=64),
        Described(
            "Tensor parallel GPUs",
            "This many GPUs split each layer and train on the same batch. The batch size is that "
            "of such a group.",
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
    context_parallel: Annotated[
        int,
        Interval(ge=1, le=256),
        Described(
            "Context parallel GPUs",
            "This many GPUs each have a part of every sequence and pass keys and values around "
            "(ring attention). The batch size is that of such a group.",
            Group.SEVERAL,
        ),
    ] = 1
    context_rotation: Annotated[
        Rotation,
        Described(
            "Rotation of keys and values",
            "How they go around among context parallel GPUs.",
            Group.SEVERAL,
        ),
    ] = Rotation.ALL_GATHER
    expert_parallel: Annotated[
        int,
        Interval(ge=1, le=512),
        Described(
            "Expert parallel GPUs",
            "This many GPUs each have a part of the experts of a mixture, and send one another "
            "tokens. FSDP shards the rest of the model among all.",
            Group.SEVERAL,
        ),
    ] = 1
    expert_load: Annotated[
        int,
        Interval(ge=100, le=51_200),
        Described(
            "Tokens of the fullest GPU",
            "Percent of the mean that come to the fullest of the expert parallel GPUs: 100 if "
            "tokens are routed evenly.",
            Group.SEVERAL,
            unit="%",
        ),
    ] = 100
    pipeline_parallel: Annotated[
        int,
        Interval(ge=1, le=64),
        Described(
            "Pipeline stages",
            "This many GPUs each have a part of the layers and pass micro-batches on (1F1B). "
            "Gradient accumulation is the number of micro-batches.",
            Group.SEVERAL,
        ),
    ] = 1
    stage_layers: Annotated[
        str | None,
        Described(
            "Layers of each stage",
            "How many layers each pipeline stage has, such as 7,8,8,7: the first also has the "
            "embeddings, and the last the head.",
            Group.SEVERAL,
            empty="equal parts, the last with the remainder",
            metavar="NUMBERS",
        ),
    ] = None
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
    overlap_comm: Annotated[
        bool,
        Described(
            "Overlap communication",
            "ZeRO 1 or 2 reduces gradients while the backward pass goes on, which fills a second "
            "bucket meanwhile (overlap_comm). ZeRO 3 needs no second one.",
            Group.SEVERAL,
        ),
    ] = False

    @property
    def parts_of_model(self) -> int:
        """How many GPUs train on the same batch, by the degrees."""
        return self.tensor_parallel * self.context_parallel * self.pipeline_parallel

    @property
    def data_parallel(self) -> int:
        """How many groups of GPUs train on batches of their own."""
        return max(1, self.world_size // self.parts_of_model)

    @property
    def weight_sharers(self) -> int:
        """How many GPUs would hold the same weights, so that FSDP may shard them."""
        return self.data_parallel * self.context_parallel

    @property
    def layers_of_stages(self) -> tuple[int, ...]:
        """Layers of each pipeline stage; empty where each has an equal part.

        Raises:
            ValueError: If something in them is no whole number.
        """
        return tuple(map(int, self.stage_layers.split(","))) if self.stage_layers else ()

    def stage_of(self, rank: int) -> int:
        """The pipeline stage of a GPU; those of a stage stand next to one another."""
        return rank * self.pipeline_parallel // self.world_size

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
        return self.shard_size or self.weight_sharers
