"""The workload: what is trained and how, everything but the batch size and the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

from ..core.border import read, settle
from ..core.choices import Quantization
from ..core.errors import InvalidInput
from ..core.fields import Described, Group, Interval, described_fields
from ..core.parsing import collect, unknown_fields
from ..features import contradictions
from ..features.adapters import Adapters
from ..features.evaluation import Evaluation
from ..features.length_distribution import FIELD, Lengths
from ..features.lengths import SampleLengths
from ..features.method import LearningMethod
from ..features.model import ModelAndTask
from ..features.sample import SampleSizes
from ..features.savers import Savers
from ..features.sharing import Sharing
from ..features.training import TrainingSettings
from ..models.config import parse_config
from ..models.model import Model, hub_model
from ..models.presets import PRESETS, choose_a_model, find_model
from ..models.tasks import SIZES, Kind, SizeLimits, Task, spoken
from ..versions import software

OWN_CONFIG = "own-config"
"""Name of a model that is known only by its config."""


def _software(stored: str) -> str:
    try:
        return software.format_versions(software.parse(stored))
    except InvalidInput:  # stored by a version that knew other packages
        return stored


@dataclass(frozen=True)
class Workload(
    Sharing,
    Evaluation,
    Adapters,
    Savers,
    LearningMethod,
    TrainingSettings,
    SampleLengths,
    SampleSizes,
    ModelAndTask,
):
    """One way of training one model.

    Its fields are those of its bases, from the last to the first, and then its own. Each base is a
    feature, with its fields, rules and chips in one file. They are bases rather than parts, since
    a field has one flat name everywhere: in requests, stored rows, forms, columns, moves that
    replace it, and rules across features. Parts would give each a second one.

    Fields left at ``None`` take the model's defaults, so a constructed workload is concrete. Only
    for a Hub model they stay empty, until ``engine.hub.resolve`` has its config.

    Raises:
        InvalidInput: On construction, with a message for each wrong field.
    """

    software: Annotated[
        str,
        Described(
            "Software",
            "The versions your training runs with, such as transformers=4.51.3,torch=2.6.0. Memory "
            "depends on them.",
            Group.OPTIONS,
            empty="the versions MemoryMark runs with",
            metavar="VERSIONS",
            is_column=True,
            chip=_software,
        ),
    ] = ""
    config: Annotated[
        dict[str, Any] | None,
        Described(
            "config.json",
            "For a model that is not on the Hub, or where the Hub cannot be reached.",
            Group.MODEL,
            metavar="FILE",
        ),
    ] = field(default=None, hash=False)

    def __post_init__(self) -> None:
        wrong: dict[str, str] = {}
        checked_here = ("model", "config", "task", "label_count", "software", FIELD, *SIZES)
        settle(self, wrong, but=checked_here)
        self._settle_lengths(wrong)
        self._settle_model(wrong)
        self._settle_software(wrong)
        if not wrong:
            wrong = contradictions(self)
        if wrong:
            raise InvalidInput(wrong)

    def _settle_lengths(self, wrong: dict[str, str]) -> None:
        """Check lengths, which may be a list that is longer than other text."""
        if (given := self.sample_lengths) is not None:
            lengths = collect(lambda: Lengths.parse(given), wrong)
            self._set(FIELD, None if lengths is None else str(lengths))

    def _settle_model(self, wrong: dict[str, str]) -> None:
        model = collect(self._model, wrong)
        if model is not None:
            self._set("model", model.name)
        # An unknown model lets the other fields be checked all the same.
        self._settle_task(model or _UNKNOWN, wrong)
        self._settle_sizes(model or _UNKNOWN, wrong)

    def _model(self) -> Model:
        if self.config is not None:
            self._set("config", parse_config(self.config))
        return find_model(self.model, self.config)

    def _settle_software(self, wrong: dict[str, str]) -> None:
        if self.software == "":
            return
        self._read("software", wrong)
        if "software" not in wrong:
            versions = collect(lambda: software.parse(self.software), wrong)
            self._set("software", software.as_text(versions or {}))

    def _settle_task(self, model: Model, wrong: dict[str, str]) -> None:
        if self.task is None and model.kind is not Kind.UNKNOWN:
            self._set("task", model.task)
        if self.task is not None and self.task not in model.tasks:
            wrong["task"] = _refused(self.task, model)
        elif self.task is not None:
            self._set("task", Task(self.task))
            usual = model.label_count_for(self.task)
            if self.label_count is None:
                self._set("label_count", usual)
            elif usual is None:
                wrong["label_count"] = f"{self.task} has no labels to count; leave it empty"
                return
        if self.label_count is not None:
            self._read("label_count", wrong)

    def _settle_sizes(self, model: Model, wrong: dict[str, str]) -> None:
        task = None if "task" in wrong else self.task
        for name in SIZES:
            limits = model.limits(name, task)
            if limits is None:
                if getattr(self, name) is not None:
                    size = f"{name.replace('_', ' ')} for {spoken(task or model.task)}"
                    wrong[name] = f"{model.display_name} takes no {size}; leave it empty"
            elif getattr(self, name) is not None:
                self._read(name, wrong, Interval(ge=limits.smallest, le=limits.largest))
            elif model.kind is not Kind.UNKNOWN:
                self._set(name, self._usual_size(name, limits))

    def _usual_size(self, name: str, limits: SizeLimits) -> int:
        """The size where none is given: the longest sample, or the default."""
        if name != "sequence_length" or self.sample_lengths is None:
            return limits.default
        longest = Lengths.parse(self.sample_lengths).longest
        return max(limits.smallest, min(longest, limits.largest))

    def _read(self, name: str, wrong: dict[str, str], bounds: Interval | None = None) -> None:
        field = described_fields(type(self))[name]
        self._set(name, read(field, getattr(self, name), wrong, bounds))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> Workload:
        """Build a workload from untrusted fields (JSON, a form, the command line).

        Args:
            given: Values by field name. Numbers may be text; empty text and ``None`` mean the
                default.

        Raises:
            InvalidInput: With a message for each wrong or unknown field.
        """
        known = described_fields(cls)
        wrong = unknown_fields(given, known)
        values: dict[str, Any] = {
            name: given[name] for name in known if given.get(name) not in (None, "")
        }
        if "model" not in values and "config" in values:
            values["model"] = OWN_CONFIG
        elif "model" not in values:
            wrong["model"] = choose_a_model()
            values["model"] = next(iter(PRESETS))  # lets the other fields be checked
        workload = collect(lambda: cls(**values), wrong)
        if wrong or workload is None:
            raise InvalidInput(wrong)
        return workload

    def takes(self, changed: Mapping[str, Any]) -> bool:
        """Whether these settings may stand with all others of this workload."""
        try:
            replace(self, **changed)
        except InvalidInput:
            return False
        return True

    @property
    def preset(self) -> Model:
        """The model's preset, or the facts from its config."""
        return find_model(self.model, self.config)

    @property
    def versions_here(self) -> dict[str, str]:
        """The versions here of the packages that its memory depends on."""
        peft = set() if self.lora_rank is None else {"peft"}
        return software.of_packages({"transformers", "torch"} | peft)

    @property
    def software_caveats(self) -> list[str]:
        """Caveat where its answer is not for the versions wanted, or for ones nobody tested."""
        quantizes = self.quantization is not Quantization.NONE and self.preset.has_experts
        return software.caveat(self.software, self.versions_here, quantizes_experts=quantizes)

    def to_dict(self) -> dict[str, object]:
        """The fields as plain JSON values; the inverse of :meth:`parse`."""
        return asdict(self)


def _refused(task: str, model: Model) -> str:
    """The message for a task that a model is not trained for here, with the reason if known."""
    others = f"choose one of {', '.join(model.tasks)}"
    reason = model.why_not(Task(task)) if task in list(Task) else ""
    if not reason:
        return others
    return f"{model.display_name} for {spoken(Task(task))} is not supported: {reason}; {others}"


_UNKNOWN = hub_model("")
