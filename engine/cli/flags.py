"""The flags of the command line, each for one field of a request."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..core.fields import Field, Group, described_fields
from ..gpus import ANY, LOCAL
from ..interface.assumptions import Assumptions
from ..interface.request import FIELDS
from ..interface.workload import Workload

PUBLISHED_GPU = "a10"
"""The GPU whose measurement of forward against backward is published."""


@dataclass(frozen=True)
class Flag:
    """A flag of the command line for one field of :data:`engine.interface.request.FIELDS`.

    Attributes:
        bare: Its value where it stands alone; ``None`` if it needs one.
        described_group: Group of a field which is not one of a request.
    """

    flag: str
    field: str
    metavar: str
    help: str
    required: bool = False
    default: str | None = None
    bare: str | None = None
    described_group: Group | None = None

    @property
    def group(self) -> Group:
        """The section of the help that it stands in."""
        return self.described_group or FIELDS[self.field].group


def field_flag(field: Field) -> Flag:
    """The flag of a described field."""
    bare = "true" if field.is_switch else None
    return Flag(
        field.flag, field.name, field.metavar, field.usage, bare=bare, described_group=field.group
    )


def _flag(name: str) -> Flag:
    return field_flag(FIELDS[name])


CATALOGUE_GPU = replace(_flag("gpu"), help="a GPU that `devices` lists", required=True)
BATCH_SIZE = Flag("--batch-size", "current_batch_size", "N", "samples per step", required=True)
CURRENT_BATCH_SIZE = _flag("current_batch_size")
MEMORY_LIMIT = _flag("memory_limit_bytes")
ALLOCATOR = _flag("allocator")
LAUNCH_TIME = _flag("launch_microseconds")
WORKLOAD = tuple(_flag(name) for name in described_fields(Workload) if name != "model")
GLOBAL_BATCH = (_flag("batch_multiple"), _flag("global_batch_size"))
ECONOMICS = tuple(map(_flag, described_fields(Assumptions)))
ANALYZE = (
    replace(
        CATALOGUE_GPU,
        help=(
            f"a GPU that `devices` lists, or {ANY}: the one of them that trains at the lowest "
            f"cost; default {LOCAL}: measure here"
        ),
        required=False,
        default=LOCAL,
    ),
    _flag("most_usd_per_hour"),
    _flag("most_hours_per_million"),
    CURRENT_BATCH_SIZE,
    *WORKLOAD,
    *GLOBAL_BATCH,
    MEMORY_LIMIT,
    ALLOCATOR,
    LAUNCH_TIME,
    *ECONOMICS,
)
PREDICT = (BATCH_SIZE, CATALOGUE_GPU, *WORKLOAD, MEMORY_LIMIT, ALLOCATOR, LAUNCH_TIME)
MEASURE = (BATCH_SIZE, *WORKLOAD, MEMORY_LIMIT, ALLOCATOR)
PLAN = (
    replace(
        CATALOGUE_GPU,
        help="the GPU used now: adds what a run costs, and the best moves on it",
        required=False,
        default=LOCAL,
    ),
    CURRENT_BATCH_SIZE,
    *WORKLOAD,
    *GLOBAL_BATCH,
    LAUNCH_TIME,
    *ECONOMICS,
)
COMPILED_BATCH_SIZE = "4"
"""Small enough for a CPU to answer too: with it BERT's first compiled process took 62 s on two idle
cores, an eager one 20 s."""

VALIDATE_COMPILE = (
    replace(
        BATCH_SIZE,
        help=f"samples per step; default {COMPILED_BATCH_SIZE}",
        required=False,
        default=COMPILED_BATCH_SIZE,
    ),
    *WORKLOAD,
)
VALIDATE_BACKWARD = (
    replace(BATCH_SIZE, required=False, help="samples per step; default 16"),
    replace(
        CATALOGUE_GPU,
        help=f"a GPU that `devices` lists, or {LOCAL}; default {PUBLISHED_GPU}",
        required=False,
        default=PUBLISHED_GPU,
    ),
    *WORKLOAD,
)
