"""The workload: what is trained and how, everything but the batch size and the GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from engine.errors import InvalidInput
from engine.models.config import LARGEST_LABEL_COUNT, parse_config
from engine.models.kinds import Kind, Model, Task, hub_model
from engine.models.presets import PRESETS, find_model
from engine.parsing import choice, collect, plain_text, unknown_fields, whole_number, yes_or_no

OWN_CONFIG = "own-config"
"""What a model is called that is given by its config alone."""


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
    ADAMW_FOREACH = "adamw-foreach"
    ADAMW_8BIT = "adamw-8bit"
    ADAFACTOR = "adafactor"
    LION = "lion"
    RMSPROP = "rmsprop"
    ADAGRAD = "adagrad"


class Mode(StrEnum):
    """Module mode. ``eval`` switches dropout off and still runs backward."""

    TRAIN = "train"
    EVAL = "eval"


class Attention(StrEnum):
    """How attention is computed: PyTorch's choice of kernels, all scores kept, or flash only."""

    SDPA = "sdpa"
    EAGER = "eager"
    FLASH = "flash"


class Parallelism(StrEnum):
    """How several GPUs share the work: whole copies, or everything sharded."""

    NONE = "none"
    DDP = "ddp"
    FSDP = "fsdp"


@dataclass(frozen=True)
class Workload:
    """One way of training one model.

    What is left at ``None`` takes the model's default, so a constructed workload is always
    concrete. Only a model of the hub keeps its gaps until ``engine.models.hub.resolve`` has its
    config.

    Attributes:
        model: A preset's name, the id of a model of the Hugging Face hub (``org/name``), or, with
            a config, any name for it.
        sequence_length: Tokens per sample, of a model that reads or writes text.
        image_size: Pixels per side, of a model that reads images.
        task: What the model is trained to do.
        label_count: Labels of a classifier; one makes it a regression.
        config: The model's ``config.json``, as an object or as its text, where it is no preset.
        attention: ``eager`` keeps every score, ``flash`` refuses what FlashAttention cannot do.
        gradient_checkpointing: Whether activations are recomputed in backward, layer by layer.
        gradient_accumulation: Micro-batches to one optimizer step; batch sizes are micro-batches.
        lora_rank: Rank of LoRA adapters; ``None`` trains without them.
        lora_targets: Names of the modules that get adapters, separated by commas, or
            ``all-linear``.
        frozen_backbone: Whether only the head is trained.
        compile: Whether the model is compiled by ``torch.compile``.
        parallelism: How ``world_size`` GPUs share the work; batch sizes are per GPU.
        gradient_as_bucket_view: Whether DDP's gradients lie in its buckets, instead of being copied
            there and back.

    Raises:
        InvalidInput: On construction, with a message for each wrong field.
    """

    model: str
    precision: Precision = Precision.FP32
    optimizer: Optimizer = Optimizer.ADAMW
    mode: Mode = Mode.TRAIN
    sequence_length: int | None = None
    image_size: int | None = None
    task: Task | None = None
    label_count: int | None = None
    attention: Attention = Attention.SDPA
    gradient_checkpointing: bool = False
    gradient_accumulation: int = 1
    lora_rank: int | None = None
    lora_targets: str = "all-linear"
    frozen_backbone: bool = False
    compile: bool = False
    parallelism: Parallelism = Parallelism.NONE
    world_size: int = 1
    gradient_as_bucket_view: bool = False
    config: dict[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        wrong: dict[str, str] = {}
        for name, words in _CHOICES.items():
            choice(name, getattr(self, name), words, wrong)
        self._settle("gradient_accumulation", whole_number, 1, 1024, wrong)
        self._settle("world_size", whole_number, 1, 1024, wrong)
        if self.lora_rank is not None:
            self._settle("lora_rank", whole_number, 1, 1024, wrong)
        for name in _SWITCHES:
            self._settle(name, yes_or_no, wrong)
        plain_text("lora_targets", self.lora_targets, wrong)
        self._settle_model(wrong)
        if wrong:
            raise InvalidInput(wrong)
        for name, words in _CHOICES.items():
            object.__setattr__(self, name, words(getattr(self, name)))
        if contradictions := self._contradictions():
            raise InvalidInput(contradictions)

    def _settle(self, name: str, check: Callable[..., object], *bounds: Any) -> None:
        object.__setattr__(self, name, check(name, getattr(self, name), *bounds))

    def _contradictions(self) -> dict[str, str]:
        """Settings that do not go together, by the field to change."""
        wrong = {}
        half = self.precision not in (Precision.FP32, Precision.TF32)
        if self.lora_rank is not None and self.frozen_backbone:
            wrong["frozen_backbone"] = "LoRA freezes the backbone already; choose one of the two"
        if self.attention is Attention.FLASH and not half:
            wrong["attention"] = "FlashAttention needs half precision; choose bf16-mixed or sdpa"
        if self.parallelism is Parallelism.NONE and self.world_size > 1:
            wrong["parallelism"] = f"choose ddp or fsdp to share among {self.world_size} GPUs"
        if self.parallelism is not Parallelism.NONE and self.world_size == 1:
            wrong["world_size"] = "give the number of GPUs that share the work, 2 or more"
        if self.gradient_as_bucket_view and self.parallelism is not Parallelism.DDP:
            wrong["gradient_as_bucket_view"] = "only ddp has buckets; leave it off or choose ddp"
        if self.parallelism is Parallelism.FSDP and self.optimizer in _NOT_ON_SHARDS:
            wrong["optimizer"] = f"{self.optimizer} does not run on FSDP's shards; choose adamw"
        return wrong

    def _settle_model(self, wrong: dict[str, str]) -> None:
        model = collect(self._model, wrong)
        if model is not None:
            object.__setattr__(self, "model", model.name)
        # A model of which nothing is known yet lets the other fields be checked all the same.
        self._settle_task(model or _UNKNOWN, wrong)
        self._settle_sizes(model or _UNKNOWN, wrong)

    def _model(self) -> Model:
        if self.config is not None:
            object.__setattr__(self, "config", parse_config(self.config))
        return find_model(self.model, self.config)

    def _settle_task(self, model: Model, wrong: dict[str, str]) -> None:
        if self.task is None and model.kind is not Kind.UNKNOWN:
            object.__setattr__(self, "task", model.task)
        if self.task is not None and choice("task", self.task, model.tasks, wrong):
            object.__setattr__(self, "task", Task(self.task))
            usual = model.label_count_for(self.task)
            if self.label_count is None:
                object.__setattr__(self, "label_count", usual)
            elif usual is None:
                wrong["label_count"] = f"{self.task} has no labels to count; leave it empty"
                return
        if self.label_count is not None:
            self._settle("label_count", whole_number, 1, LARGEST_LABEL_COUNT, wrong)

    def _settle_sizes(self, model: Model, wrong: dict[str, str]) -> None:
        for name in ("sequence_length", "image_size"):
            limits = getattr(model, name)
            value = getattr(self, name)
            if limits is None:
                if value is not None:
                    kind = name.replace("_", " ")
                    wrong[name] = f"{model.display_name} takes no {kind}; leave it empty"
            elif value is not None:
                self._settle(name, whole_number, limits.smallest, limits.largest, wrong)
            elif model.kind is not Kind.UNKNOWN:
                object.__setattr__(self, name, limits.default)

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
        wrong = unknown_fields(given, known)
        values: dict[str, Any] = {
            name: given[name] for name in given.keys() & known if given[name] not in (None, "")
        }
        if "model" not in values and "config" in values:
            values["model"] = OWN_CONFIG
        elif "model" not in values:
            wrong["model"] = f"name a model: {', '.join(PRESETS)}"
            values["model"] = next(iter(PRESETS))  # lets the other fields be checked
        workload = collect(lambda: cls(**values), wrong)
        if wrong or workload is None:
            raise InvalidInput(wrong)
        return workload

    @property
    def preset(self) -> Model:
        """What is known of the model: its preset, or what its config says."""
        return find_model(self.model, self.config)

    def to_dict(self) -> dict[str, object]:
        """The fields as plain JSON values; ``Workload.parse`` takes them back."""
        return asdict(self)


_UNKNOWN = hub_model("")

_SWITCHES = ("gradient_checkpointing", "frozen_backbone", "compile", "gradient_as_bucket_view")
_NOT_ON_SHARDS = (Optimizer.ADAFACTOR, Optimizer.ADAMW_8BIT)
# transformers' Adafactor mixes shards with whole tensors; bitsandbytes' kernels read past a shard's
# end (https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1633).

_CHOICES: dict[str, type[StrEnum]] = {
    "precision": Precision,
    "optimizer": Optimizer,
    "mode": Mode,
    "attention": Attention,
    "parallelism": Parallelism,
}
