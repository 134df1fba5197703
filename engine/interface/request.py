"""The request for one analysis: workload, GPU, current batch size and costs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Annotated, Any

from ..allocator.options import AllocatorOptions
from ..core.border import read, settle
from ..core.choices import Batching, Goal
from ..core.errors import InvalidInput
from ..core.fields import NONE, Described, Field, Group, Interval, described_fields
from ..core.optimizers import Optimizer
from ..core.parsing import bytes_of, collect, unknown_fields
from ..core.sizes import gib
from ..features.training import MAX_ACCUMULATION
from ..gpus import ANY, GPUS, HOW_TO_LIST, LOCAL, canonical_name
from ..models.presets import find_model
from ..models.tasks import Kind
from .assumptions import Assumptions
from .refusals import refused_global_batch, refused_on_gpu
from .subject import Subject
from .texts import Texts, refused, unsuited
from .workload import Workload

_ONLY_GENERATED = f"it is of generated texts, so set goal to {Goal.GENERATION}"

MAX_BATCH_SIZE = 65_536
"""Upper bound of all batch sizes, so that no extrapolation runs away."""


def _format_limit(limit: int) -> str:
    return f"{gib(limit)} limit"


@dataclass(frozen=True, kw_only=True)
class Request(ABC):
    """The settings of every analysis, of a known model or a script."""

    gpu: Annotated[
        str,
        Described(
            "GPU",
            "Memory as reported by CUDA; price per hour is assumed. You don't need to have the "
            "GPU.",
            Group.GPU,
            metavar="NAME",
        ),
    ]
    current_batch_size: Annotated[
        int | None,
        Interval(ge=1, le=MAX_BATCH_SIZE),
        Described(
            "Current batch size",
            "What you use today, per GPU. Speedup is relative to this.",
            Group.GPU,
            unit="samples",
            empty="none yet",
        ),
    ] = 16
    launch_microseconds: Annotated[
        float | None,
        Interval(ge=1, le=1000),
        Described(
            "Launch time",
            "What one core of the machine takes to launch an operation of a training step, which "
            "decides the speed of small batches: memorymark selfcheck measures it.",
            Group.GPU,
            unit="µs",
            empty="as measured, else 15 to 60",
            metavar="MICROSECONDS",
        ),
    ] = None
    batch_multiple: Annotated[
        int,
        Interval(ge=1, le=1024),
        Described(
            "Batch multiple",
            "Only multiples of this are tried. 8 suits tensor cores; 1 allows any size.",
            Group.GPU,
        ),
    ] = 1
    most_usd_per_hour: Annotated[
        float | None,
        Interval(ge=0, le=1_000_000),
        Described(
            "Price limit",
            "Only GPUs that cost at most this, for all that share the work.",
            Group.GPU,
            unit="USD per hour",
            empty="none",
            metavar="USD",
        ),
    ] = None
    most_hours_per_million: Annotated[
        float | None,
        Interval(ge=0, le=1_000_000),
        Described(
            "Time limit",
            "Only GPUs that are predicted to train a million samples in this time.",
            Group.GPU,
            unit="hours per million samples",
            empty="none",
            metavar="HOURS",
        ),
    ] = None
    memory_limit_bytes: Annotated[
        int | None,
        Interval(ge=2**20, le=2**44),
        Described(
            "Memory limit",
            "Emulates a smaller GPU: 8GiB, 500MiB, 16GB or plain bytes.",
            Group.LIMIT,
            empty="the whole GPU",
            flag="--memory-limit",
            metavar="SIZE",
            chip=_format_limit,
        ),
    ] = None
    assumptions: Assumptions = field(default_factory=Assumptions)
    global_batch_size: Annotated[
        int | None,
        Interval(ge=1, le=MAX_BATCH_SIZE * MAX_ACCUMULATION),
        Described(
            "Global batch to keep",
            "Samples per optimizer step over all micro-batches and GPUs. It is kept by "
            "accumulating as many micro-batches as that takes.",
            Group.OPTIONS,
            unit="samples",
            empty="none",
            chip="global batch {:,}",
        ),
    ] = None
    allocator: Annotated[
        str,
        Described(
            "Allocator options",
            "As in PYTORCH_ALLOC_CONF, such as expandable_segments:True.",
            Group.LIMIT,
            empty="PyTorch's default",
            metavar="OPTIONS",
        ),
    ] = ""

    def __post_init__(self) -> None:
        wrong: dict[str, str] = {}
        self._check(wrong)
        if wrong:
            raise InvalidInput(wrong)

    @property
    @abstractmethod
    def gradient_accumulation(self) -> int:
        """Micro-batches per optimizer step today."""

    @property
    @abstractmethod
    def world_size(self) -> int:
        """GPUs that share the work."""

    @property
    def data_parallel(self) -> int:
        """Number of GPUs, or of groups of them, that train on batches of their own."""
        return self.world_size

    @property
    def known_batch_size(self) -> int:
        """The current batch size, for what makes no sense without one.

        Raises:
            InvalidInput: If there is none yet.
        """
        if self.current_batch_size is None:
            wanted = f"a batch size is needed here; enter one from 1 to {MAX_BATCH_SIZE:,}"
            raise InvalidInput({"current_batch_size": wanted})
        return self.current_batch_size

    @property
    def least_multiple(self) -> int:
        """Batch multiple to fall back to where no multiple of the requested one fits."""
        return 1

    def accumulation_at(self, batch_size: int) -> int:
        """Micro-batches per optimizer step at a batch size, to keep the global batch.

        Rounded up if they do not divide it evenly; as today if no global batch is set.
        """
        if self.global_batch_size is None:
            return self.gradient_accumulation
        return -(-self.global_batch_size // (batch_size * self.data_parallel))

    def micro_batches_traced(self, batch_size: int) -> int:
        """Micro-batches traced of a step: 1, or 2 for any larger number, as the rest are alike."""
        return min(self.accumulation_at(batch_size), 2)

    def _check(self, wrong: dict[str, str]) -> None:
        """Check every field and store the parsed values."""
        if (gpu := collect(partial(canonical_name, self.gpu), wrong)) is not None:
            object.__setattr__(self, "gpu", gpu)
        settle(self, wrong, but=("gpu", "memory_limit_bytes", "allocator"))
        if self.memory_limit_bytes is not None:
            self._check_memory_limit(self.memory_limit_bytes, wrong)
        collect(partial(AllocatorOptions.parse, self.allocator), wrong)
        if self.gpu != ANY:
            limits = ("most_usd_per_hour", "most_hours_per_million")
            given = [name for name in limits if getattr(self, name) is not None]
            wrong |= dict.fromkeys(given, f"it chooses a GPU, so set gpu to {ANY}")
        if self.global_batch_size is not None and not wrong:
            wrong |= refused_global_batch(
                self.global_batch_size,
                self.current_batch_size,
                self.gradient_accumulation,
                self.data_parallel,
                self.batch_multiple,
            )

    def _check_any(self, wrong: dict[str, str]) -> None:
        """Refuse what only makes sense on a certain GPU."""
        if self.assumptions.price_per_hour_usd is not None:
            wrong["price_per_hour_usd"] = "choose the GPU that has this price"
        if self.memory_limit_bytes is not None:
            wrong["memory_limit_bytes"] = "choose the GPU to limit"

    def _check_memory_limit(self, limit: int | str, wrong: dict[str, str]) -> None:
        read_limit = collect(partial(bytes_of, limit), wrong) if isinstance(limit, str) else limit
        if read_limit is not None:
            size = read(described_fields(Request)["memory_limit_bytes"], read_limit, wrong)
            object.__setattr__(self, "memory_limit_bytes", size)


@dataclass(frozen=True)
class AnalysisRequest(Request):
    """A request for a known model, from a form, the API or the command line.

    Attributes:
        texts: Texts to generate, if that is the goal.
    """

    workload: Workload
    goal: Annotated[
        Goal,
        Described(
            "Goal",
            "What to find. For generation, the current batch is texts at once, and what only "
            "trains is left aside.",
            Group.TEXTS,
            chip={Goal.GENERATION: "generation", Goal.LENGTH: "longest sequence"}.__getitem__,
        ),
    ] = Goal.BATCH
    texts: Texts = field(default_factory=Texts)

    def _check(self, wrong: dict[str, str]) -> None:
        super()._check(wrong)
        self._check_pipeline(self.workload.pipeline_parallel, wrong)
        if self.goal is not Goal.GENERATION:
            changed = [
                name for name, value in asdict(self.texts).items() if value != DEFAULTS[name]
            ]
            wrong |= dict.fromkeys(changed, _ONLY_GENERATED)
        if "gpu" in wrong:  # it need not be a name at all
            return
        if self.goal is not Goal.BATCH:
            self._check_goal(wrong)
        if self.gpu in GPUS:
            wrong |= refused_on_gpu(self.workload, GPUS[self.gpu])
        elif self.gpu == ANY:
            self._check_any(wrong)
        elif self.workload.batching is not Batching.FIXED:
            wrong["batching"] = (
                "samples of different lengths are predicted only; choose a catalogue GPU, "
                "or fixed to measure steps of one length"
            )

    def _check_goal(self, wrong: dict[str, str]) -> None:
        """Refuse what is only for finding a batch."""
        if self.gpu not in GPUS:
            wrong["gpu"] = f"for the goal {self.goal}, choose one catalogue GPU"
        if self.current_batch_size is None:
            what = "texts at once" if self.goal is Goal.GENERATION else "samples per step"
            wrong.setdefault("current_batch_size", f"enter a number of {what}")
        if self.goal is Goal.GENERATION:
            wrong |= refused(self.workload, self.texts)
        else:
            wrong |= unsuited(self.workload, self.goal)
        if self.goal is Goal.LENGTH and self.workload.batching is not Batching.FIXED:
            wrong["batching"] = (
                "the longest sequence is that of samples of one length; choose fixed"
            )

    def _check_pipeline(self, stages: int, wrong: dict[str, str]) -> None:
        """Refuse a pipeline without a micro-batch for each of its stages."""
        if self.global_batch_size is not None and stages > 1:
            wrong["global_batch_size"] = (
                "the micro-batches of a pipeline are given by gradient_accumulation; leave it empty"
            )
        elif self.gradient_accumulation < stages:
            wrong["gradient_accumulation"] = (
                f"the 1F1B schedule needs a micro-batch for each stage; enter {stages} or more"
            )

    @property
    def gradient_accumulation(self) -> int:
        return self.workload.gradient_accumulation

    @property
    def world_size(self) -> int:
        return self.workload.world_size

    @property
    def data_parallel(self) -> int:
        return self.workload.data_parallel

    def micro_batches_traced(self, batch_size: int) -> int:
        """As above; of a pipeline all, since each has buffers of its own."""
        if self.workload.pipeline_parallel > 1:
            return self.gradient_accumulation
        return super().micro_batches_traced(batch_size)

    @property
    def subject(self) -> Subject:
        """The workload, as lists and totals name it."""
        workload = self.workload
        return Subject(
            workload.model,
            precision=workload.precision,
            optimizer=workload.optimizer,
            software=workload.software,
        )

    def workload_at(self, batch_size: int) -> Workload:
        accumulated = min(self.accumulation_at(batch_size), MAX_ACCUMULATION)
        if accumulated == self.workload.gradient_accumulation:
            return self.workload
        return replace(self.workload, gradient_accumulation=accumulated)

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> AnalysisRequest:
        """Build a request from untrusted, flat fields.

        Args:
            given: Values of :data:`FIELDS` by name. Empty text and ``None`` mean the default; only
                ``None`` as the current batch size means that there is none yet.

        Raises:
            InvalidInput: With a message for each wrong or unknown field.
        """
        filled: dict[str, Any] = {n: value for n, value in given.items() if value not in (None, "")}
        filled |= {n: None for n in _TAKING_NONE if n in given and given[n] is None}
        if filled.get("goal") == Goal.GENERATION:  # nothing is trained
            filled.setdefault("optimizer", Optimizer.NONE)
        wrong = unknown_fields(filled, FIELDS)
        if "gpu" not in filled:
            wrong["gpu"] = f"choose a catalogue GPU, {LOCAL} or {ANY}; {HOW_TO_LIST}"

        def of(kind: type) -> dict[str, Any]:
            return {name: filled[name] for name in described_fields(kind) if name in filled}

        workload = collect(lambda: Workload.parse(of(Workload)), wrong)
        assumptions = collect(lambda: Assumptions(**of(Assumptions)), wrong)
        texts = collect(lambda: Texts(**of(Texts)), wrong)
        # Stand-ins let the other fields be checked where some are wrong, so that a form shows every
        # mistake at once. Of a model on the Hub nothing is known, so nothing is said about it.
        request = collect(
            lambda: cls(
                workload or Workload("unknown/model"),
                assumptions=assumptions or Assumptions(),
                texts=texts or Texts(),
                **{"gpu": LOCAL} | of(AnalysisRequest),
            ),
            wrong,
        )
        if wrong or request is None:
            raise InvalidInput(wrong)
        return request

    def to_dict(self) -> dict[str, object]:
        """The flat fields; the inverse of :meth:`parse`."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        nested = {"workload", "assumptions", "texts"}
        flat = {name: value for name, value in own.items() if name not in nested}
        return flat | self.workload.to_dict() | asdict(self.texts) | asdict(self.assumptions)


def _on_form() -> dict[str, Field]:
    described = described_fields(Workload) | described_fields(AnalysisRequest)
    described |= described_fields(Texts) | described_fields(Assumptions)
    order = list(Group)
    placed = sorted(described.values(), key=lambda one: (order.index(one.group), one.is_switch))
    return {one.name: one for one in placed}


FIELDS = _on_form()
"""Every field of an :class:`AnalysisRequest` by name, in the order of the form."""

TRIAL_FIELDS = (
    "current_batch_size",
    *described_fields(Workload),
    "memory_limit_bytes",
    "allocator",
)
"""The fields that decide one trial, besides its GPU; others decide which batches are tried."""

_TAKING_NONE = tuple(name for name, described in FIELDS.items() if described.takes_none)

DEFAULTS: dict[str, Any] = {name: described.default for name, described in FIELDS.items()}


def usual_values(request: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a request in which only the model was chosen.

    Args:
        request: Stored fields; an older version may lack some.
    """
    try:
        model = find_model(request["model"], request.get("config"))
    except InvalidInput:  # stored by a version with other models
        return DEFAULTS
    if model.kind is Kind.UNKNOWN:  # on the Hub: its task and labels are not known here
        return DEFAULTS
    task = next((task for task in model.tasks if task == request.get("task")), model.task)
    return DEFAULTS | {"task": model.task, "label_count": model.label_count_for(task)}


def as_flags(values: Mapping[str, Any]) -> list[str]:
    """The command-line flags for these fields, without the model; a config is a file."""
    words = []
    for name, described in FIELDS.items():
        says_none = described.takes_none and name in values
        if name != "model" and (says_none or values.get(name) is not None):
            words += [described.flag, _as_word(name, values[name])]
    return words


def _as_word(name: str, value: object) -> str:
    if value is None:
        return NONE
    if name == "config":  # too long for a command line
        return "config.json"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
