"""GPUs that train on batches of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..core.choices import ZERO, Parallelism
from ..core.fields import Described, Group, Interval
from .contradiction import ON, Contradiction, one_of, other_than


@dataclass(frozen=True, kw_only=True)
class DataParallel:
    """GPUs that train on batches of their own."""

    parallelism: Annotated[
        Parallelism,
        Described(
            "Parallelism",
            "How several GPUs share the work. Batch sizes are per GPU.",
            Group.SEVERAL,
            chip=str.upper,
        ),
    ] = Parallelism.NONE
    world_size: Annotated[
        int,
        Interval(ge=1, le=1024),
        Described(
            "Number of GPUs",
            "How many share the work.",
            Group.SEVERAL,
            chip="{:,} GPUs",
        ),
    ] = 1
    gradient_as_bucket_view: Annotated[
        bool,
        Described(
            "Gradients as bucket views",
            "Lets DDP hold gradients once, in its buckets, instead of twice.",
            Group.SEVERAL,
        ),
    ] = False


RULES = (
    Contradiction(
        {"world_size": one_of(1), "parallelism": other_than(Parallelism.NONE, *ZERO)},
        "enter the number of GPUs that share the work, 2 or more",
    ),
    Contradiction(
        {"gradient_as_bucket_view": ON, "parallelism": other_than(Parallelism.DDP)},
        "only ddp has buckets; leave it off or choose ddp",
    ),
)
