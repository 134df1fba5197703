"""Experts of a mixture that several GPUs divide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..core.choices import Parallelism
from ..core.fields import Described, Group, Interval
from .contradiction import DEGREES, Contradiction, one_of, other_than


@dataclass(frozen=True, kw_only=True)
class ExpertParallel:
    """Experts of a mixture that several GPUs divide."""

    expert_parallel: Annotated[
        int,
        Interval(ge=1, le=512),
        Described(
            "Expert parallel GPUs",
            "This many GPUs each have a part of the experts of a mixture, and send one another "
            "tokens. FSDP shards the rest of the model among all.",
            Group.SEVERAL,
            chip="experts split among {:,}",
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
            chip="{:,}% of the mean tokens",
        ),
    ] = 100


RULES = (
    Contradiction(
        {"parallelism": other_than(Parallelism.FSDP), "expert_parallel": other_than(1)},
        "transformers divides experts among GPUs that shard the rest; choose fsdp",
    ),
    *(
        Contradiction(
            {"expert_parallel": other_than(1), degree: other_than(1)},
            "experts are predicted beside fsdp alone; leave one of the two at 1",
        )
        for degree in (*DEGREES, "context_parallel")
    ),
    Contradiction(
        {"expert_parallel": other_than(1), "parallelism": one_of(Parallelism.FSDP)},
        "enter a number that divides that of the GPUs among which fsdp shards",
        lambda workload: workload.shard_count % workload.expert_parallel != 0,
    ),
    Contradiction(
        {"expert_load": other_than(100), "expert_parallel": one_of(1)},
        "without expert parallelism no GPU gets more tokens than another; leave it at 100",
    ),
    Contradiction(
        {"expert_load": other_than(100), "expert_parallel": other_than(1)},
        "no GPU gets more than all tokens; enter at most 100 for each expert parallel GPU",
        lambda workload: workload.expert_load > 100 * workload.expert_parallel,
    ),
)
