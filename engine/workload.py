"""The workload: what is trained and how, everything but the batch size and the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from engine.errors import InvalidInput
from engine.parsing import choice, collect, whole_number
from engine.presets import PRESETS, Preset


class Precision(StrEnum):
    """Number formats of a training step, named as Lightning and PyTorch users name them."""

    FP32 = "fp32"
    TF32 = "tf32"
    BF16_MIXED = "bf16-mixed"
    FP16_MIXED = "fp16-mixed"
    BF16_TRUE = "bf16-true"


class Optimizer(StrEnum):
    """Optimizers; ``none`` runs forward, loss and backward only."""

    NONE = "none"
    SGD = "sgd"
    SGD_MOMENTUM = "sgd-momentum"
    ADAMW = "adamw"


class Mode(StrEnum):
    """Module mode. ``eval`` switches dropout off and still runs backward."""

    TRAIN = "train"
    EVAL = "eval"


@dataclass(frozen=True)
class Workload:
    """One way of training one model.

    Sizes left at ``None`` take the preset's default, so a constructed workload is always concrete:
    a text model has a ``sequence_length`` (tokens), an image model an ``image_size`` (pixels per
    side), never both.

    Raises:
        InvalidInput: On construction, with a message for each wrong field.
    """

    model: str
    precision: Precision = Precision.FP32
    optimizer: Optimizer = Optimizer.ADAMW
    mode: Mode = Mode.TRAIN
    sequence_length: int | None = None
    image_size: int | None = None

    def __post_init__(self) -> None:
        wrong: dict[str, str] = {}
        choice("precision", self.precision, Precision, wrong)
        choice("optimizer", self.optimizer, Optimizer, wrong)
        choice("mode", self.mode, Mode, wrong)
        if choice("model", self.model, PRESETS, wrong):
            self._settle_sizes(PRESETS[self.model], wrong)
        if wrong:
            raise InvalidInput(wrong)
        object.__setattr__(self, "precision", Precision(self.precision))
        object.__setattr__(self, "optimizer", Optimizer(self.optimizer))
        object.__setattr__(self, "mode", Mode(self.mode))

    def _settle_sizes(self, preset: Preset, wrong: dict[str, str]) -> None:
        for name in ("sequence_length", "image_size"):
            limits = getattr(preset, name)
            value = getattr(self, name)
            if limits is None:
                if value is not None:
                    kind = name.replace("_", " ")
                    wrong[name] = f"{preset.display_name} takes no {kind}; leave it empty"
            elif value is None:
                object.__setattr__(self, name, limits.default)
            else:
                number = whole_number(name, value, limits.smallest, limits.largest, wrong)
                object.__setattr__(self, name, number)

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> Workload:
        """Build a workload from untrusted fields (JSON, a form, the command line).

        Args:
            given: Field names to values. Numbers may be text; empty text and ``None`` mean
                "the default".

        Raises:
            InvalidInput: With a message for each wrong or unknown field.
        """
        known = {field.name for field in fields(cls)}
        wrong = {
            name: f"unknown field; known are {', '.join(sorted(known))}"
            for name in given.keys() - known
        }
        values: dict[str, Any] = {
            name: given[name] for name in given.keys() & known if given[name] not in (None, "")
        }
        if "model" not in values:
            wrong["model"] = f"name a model: {', '.join(PRESETS)}"
            values["model"] = next(iter(PRESETS))  # lets the other fields be checked
        workload = collect(lambda: cls(**values), wrong)
        if wrong or workload is None:
            raise InvalidInput(wrong)
        return workload

    @property
    def preset(self) -> Preset:
        """The preset of the model that is trained."""
        return PRESETS[self.model]

    def to_dict(self) -> dict[str, object]:
        """The fields as plain JSON values; ``Workload.parse`` takes them back."""
        return asdict(self)
