"""How several GPUs share the work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..choices import Parallelism
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
