"""The workload: what is trained and how, everything but the batch size and the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from . import software
from .border import read, settle
from .choices import Adapter, Attention, Mode, Optimizer, Parallelism, Precision, Quantization
from .contradictions import contradictions
from .errors import InvalidInput
from .fields import Described, Group, Interval, described_fields
from .models.config import LARGEST_LABEL_COUNT, parse_config
from .models.model import Model, hub_model
from .models.presets import PRESETS, choose_a_model, find_model
from .models.tasks import LARGEST_IMAGE_SIZE, LARGEST_SEQUENCE_LENGTH, SIZES, Kind, Task, spoken
from .parsing import collect, unknown_fields

LARGEST_ACCUMULATION = 1024

OWN_CONFIG = "own-config"
"""Name of a model that is known only by its config."""


@dataclass(frozen=True)
class Workload:
    """One way of training one model.

    Fields left at ``None`` take the model's defaults, so a constructed workload is concrete. Only
    for a Hub model they stay empty, until ``engine.hub.resolve`` has its config.

    Raises:
        InvalidInput: On construction, with a message for each wrong field.
    """

    model: Annotated[
        str,
        Described(
            "Model",
            "A preset's name or the ID of a model on the Hugging Face Hub (org/name); with a "
            "config, any name for it.",
            Group.MODEL,
        ),
    ]
    precision: Annotated[
        Precision,
        Described(
            "Precision",
            "Match your training script. bf16 needs Ampere or newer.",
            Group.TRAINING,
            is_column=True,
        ),
    ] = Precision.FP32
    optimizer: Annotated[
        Optimizer,
        Described(
            "Optimizer",
            "AdamW stores two extra values per weight; plain SGD stores none.",
            Group.TRAINING,
            is_column=True,
        ),
    ] = Optimizer.ADAMW
    mode: Annotated[
        Mode,
        Described("Mode", "Use train for training; eval only turns dropout off.", Group.OPTIONS),
    ] = Mode.TRAIN
    sequence_length: Annotated[
        int | None,
        Interval(ge=1, le=LARGEST_SEQUENCE_LENGTH),
        Described(
            "Sequence length",
            "Tokens per sample, for a model that reads or writes text.",
            Group.TRAINING,
            unit="tokens",
            empty="the model's own",
            metavar="TOKENS",
        ),
    ] = None
    image_size: Annotated[
        int | None,
        Interval(ge=1, le=LARGEST_IMAGE_SIZE),
        Described(
            "Image size",
            "Pixels per side, for a model that reads images.",
            Group.TRAINING,
            unit="pixels per side",
            empty="the model's own",
            metavar="PIXELS",
        ),
    ] = None
    image_count: Annotated[
        int | None,
        Interval(ge=1, le=SIZES["image_count"]),
        Described(
            "Images",
            "Images per sample, for a model that writes about images. They take tokens of their "
            "own, besides those of the text.",
            Group.TRAINING,
            unit="images per sample",
            empty="1",
            metavar="IMAGES",
        ),
    ] = None
    target_count: Annotated[
        int | None,
        Interval(ge=1, le=SIZES["target_count"]),
        Described(
            "Objects",
            "Objects or segments per image, for detection and segmentation.",
            Group.TRAINING,
            unit="objects per image",
            empty="7, as in COCO",
            metavar="OBJECTS",
        ),
    ] = None
    frame_count: Annotated[
        int | None,
        Interval(ge=1, le=SIZES["frame_count"]),
        Described(
            "Frames",
            "Frames per sample, for a model that reads videos.",
            Group.TRAINING,
            unit="frames per sample",
            empty="the model's own",
            metavar="FRAMES",
        ),
    ] = None
    audio_seconds: Annotated[
        int | None,
        Interval(ge=1, le=SIZES["audio_seconds"]),
        Described(
            "Audio length",
            "Seconds of sound per sample, for a model that listens. Whisper's extractor fills up "
            "to 30.",
            Group.TRAINING,
            unit="seconds per sample",
            empty="the task's own",
            metavar="SECONDS",
        ),
    ] = None
    task: Annotated[
        Task | None,
        Described(
            "Task",
            "What the model is trained to do. It decides the head and the loss.",
            Group.TASK,
            empty="the model's own",
        ),
    ] = None
    label_count: Annotated[
        int | None,
        Interval(ge=1, le=LARGEST_LABEL_COUNT),
        Described(
            "Labels",
            "Classes of a classifier; one makes it a regression.",
            Group.TASK,
            empty="the model's own",
        ),
    ] = None
    attention: Annotated[
        Attention,
        Described(
            "Attention",
            "How attention scores are computed. transformers uses sdpa by default.",
            Group.OPTIONS,
        ),
    ] = Attention.SDPA
    gradient_checkpointing: Annotated[
        bool,
        Described(
            "Gradient checkpointing",
            "Recomputes activations in backward, layer by layer: less memory, slower.",
            Group.OPTIONS,
        ),
    ] = False
    use_cache: Annotated[
        bool | None,
        Described(
            "Key-value cache",
            "Whether a decoder returns keys and values in training too. A loop of your own does "
            "unless config.use_cache is false.",
            Group.OPTIONS,
            empty="as in Hugging Face's Trainer: off since transformers 5",
        ),
    ] = None
    gradient_accumulation: Annotated[
        int,
        Interval(ge=1, le=LARGEST_ACCUMULATION),
        Described(
            "Gradient accumulation",
            "Micro-batches per optimizer step. Batch sizes here are per micro-batch.",
            Group.OPTIONS,
            unit="micro-batches per step",
        ),
    ] = 1
    lora_rank: Annotated[
        int | None,
        Interval(ge=1, le=1024),
        Described(
            "LoRA rank",
            "Trains small adapters of this rank, such as 8 or 16, and freezes the rest.",
            Group.OPTIONS,
            empty="no LoRA",
        ),
    ] = None
    lora_targets: Annotated[
        str,
        Described(
            "LoRA targets",
            "Names of the modules that get adapters, separated by commas, or all-linear.",
            Group.OPTIONS,
            metavar="NAMES",
        ),
    ] = "all-linear"
    adapter: Annotated[
        Adapter,
        Described(
            "Adapter",
            "DoRA often learns more at the same rank; it needs more memory and time.",
            Group.OPTIONS,
        ),
    ] = Adapter.LORA
    modules_to_save: Annotated[
        str | None,
        Described(
            "Modules trained whole",
            "Names of modules that are trained whole beside the adapters, separated by commas, "
            "such as embed_tokens,lm_head for new tokens.",
            Group.OPTIONS,
            empty="none",
            metavar="NAMES",
        ),
    ] = None
    quantization: Annotated[
        Quantization,
        Described(
            "Quantization",
            "How the frozen weights below LoRA are kept. nf4 keeps linear layers in 4 bits, as "
            "bitsandbytes does for QLoRA.",
            Group.OPTIONS,
        ),
    ] = Quantization.NONE
    frozen_backbone: Annotated[
        bool,
        Described(
            "Frozen backbone",
            "Trains only the head: no gradients for the rest.",
            Group.OPTIONS,
        ),
    ] = False
    compile: Annotated[
        bool,
        Described(
            "torch.compile",
            "A compiled step can only be measured, on a GPU of your lab.",
            Group.OPTIONS,
        ),
    ] = False
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
        settle(self, wrong, but=("model", "config", "task", "label_count", "software", *SIZES))
        self._settle_model(wrong)
        self._settle_software(wrong)
        if not wrong:
            wrong = contradictions(self)
        if wrong:
            raise InvalidInput(wrong)

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
                self._set(name, limits.default)

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

    @property
    def preset(self) -> Model:
        """The model's preset, or the facts from its config."""
        return find_model(self.model, self.config)

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
