"""Texts that are generated or trained on: how long they are, and how many and how long fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated

from ..core.border import settle
from ..core.choices import OFFLOADED_CACHES, QUANTIZED_CACHES, CacheFormat, Goal
from ..core.errors import InvalidInput
from ..core.fields import Described, Group, Interval
from ..features.contradiction import Contradiction, one_of
from ..models.tasks import MAX_SEQUENCE_LENGTH, Task, spoken
from .trial import GpuFacts, Source, Trial
from .workload import Workload

_READ_IMAGES_ALONE = ("pix2struct", "vision-encoder-decoder")
"""Types of models that read no text beside an image, such as TrOCR's and Donut's."""


def _has_an_encoder(workload: Workload) -> bool:
    """Whether the decoder looks at what an encoder read, and keeps keys and values of it."""
    is_given = workload.preset.config().get("is_encoder_decoder", False)
    return workload.task is Task.SEQUENCE_TO_SEQUENCE or bool(is_given)


GENERATED = (
    Contradiction(
        {"cache_format": one_of(*OFFLOADED_CACHES)},
        "transformers leaves the keys of what an encoder read on the host, where attention fails; "
        "choose dynamic or static",
        _has_an_encoder,
    ),
    Contradiction(
        {"cache_format": one_of(*QUANTIZED_CACHES)},
        "transformers quantizes no cache of a decoder that has an encoder; choose dynamic or "
        "static",
        _has_an_encoder,
    ),
)
"""Settings that cannot be combined with caches of generated texts."""


SUGGESTED: Mapping[Goal, tuple[str, ...]] = {
    Goal.GENERATION: ("llama-3.1-8b", "t5-base", "whisper"),
    Goal.LENGTH: ("llama-3.1-8b", "bert", "t5-base"),
}
"""Presets of several kinds, to choose from where a model does not suit the goal."""


@dataclass(frozen=True)
class Texts:
    """Lengths of generated texts, in tokens.

    Raises:
        InvalidInput: On construction, with a message for each wrong field.
    """

    prompt_length: Annotated[
        int,
        Interval(ge=1, le=MAX_SEQUENCE_LENGTH),
        Described(
            "Prompt length",
            "Tokens of each prompt, or of the source that an encoder reads, without those that "
            "images or sound make.",
            Group.TEXTS,
            unit="tokens",
            chip="prompts of {:,} tokens",
        ),
    ] = 1024
    new_tokens: Annotated[
        int,
        Interval(ge=1, le=MAX_SEQUENCE_LENGTH),
        Described(
            "New tokens",
            "Generated for each prompt.",
            Group.TEXTS,
            unit="tokens",
            chip="{:,} new tokens",
        ),
    ] = 256
    num_beams: Annotated[
        int,
        Interval(ge=1, le=64),
        Described(
            "Beams",
            "How many continuations of each prompt are followed at once (num_beams); with 1, words "
            "are drawn.",
            Group.TEXTS,
            unit="beams",
            chip="{:,} beams",
        ),
    ] = 1
    cache_format: Annotated[
        CacheFormat,
        Described(
            "Cache format",
            "How keys and values are kept.",
            Group.TEXTS,
            flag="--cache-format",
            chip="{} cache",
        ),
    ] = CacheFormat.DYNAMIC

    def __post_init__(self) -> None:
        wrong: dict[str, str] = {}
        settle(self, wrong)
        if wrong:
            raise InvalidInput(wrong)

    @property
    def whole_length(self) -> int:
        """The length of prompt and answer together."""
        return self.prompt_length + self.new_tokens


def unsuited(workload: Workload, goal: Goal) -> dict[str, str]:
    """Why a goal has no answer for a model and its task, by the field to change; empty if it has.

    Nothing is said of a model on the Hub before its config is known.
    """
    if workload.task is None:
        return {}
    if goal is Goal.GENERATION:
        return _writes_nothing(workload, workload.task)
    if goal is Goal.LENGTH and (why := _one_length(workload)):
        return {"model": f"{why}; choose a model that reads texts, {_such_as(goal)}"}
    return {}


def _writes_nothing(workload: Workload, task: Task) -> dict[str, str]:
    if task.facts.caches:
        return {}
    model, such_as = workload.preset, _such_as(Goal.GENERATION)
    if writing := [one.value for one in model.tasks if one.facts.caches]:
        message = (
            f"{model.display_name} writes no text when trained for {spoken(task)}; to generate, "
            f"choose the task {' or '.join(writing)}, or another model, {such_as}"
        )
        return {"task": message}
    message = f"{model.display_name} has no decoder, so it generates no text; choose a model that "
    return {"model": f"{message}does, {such_as}"}


def _one_length(workload: Workload) -> str:
    """Why there is no longest sequence; empty if there is one."""
    model = workload.preset
    limits = model.sequence_length
    if workload.sequence_length is None or limits is None:
        return f"{model.display_name} reads no text, so it has no sequence length"
    if limits.smallest == limits.largest:
        always = f"{model.display_name} reads {limits.largest:,} tokens always"
        return f"{always}, so there is no longest sequence"
    return ""


def _such_as(goal: Goal) -> str:
    *names, last = SUGGESTED[goal]
    return f"such as {', '.join(names)} or {last}"


def refused(workload: Workload, texts: Texts) -> dict[str, str]:
    """Why a workload does not generate such texts, by the field to change; empty if it does."""
    if wrong := unsuited(workload, Goal.GENERATION):
        return wrong
    if workload.task is None:
        return {}
    wrong = {one.field: one.message for one in GENERATED if one.holds(workload, texts)}
    return wrong or _too_long(workload, texts, workload.task)


def _too_long(workload: Workload, texts: Texts, task: Task) -> dict[str, str]:
    """Errors for lengths that a model does not take."""
    model = workload.preset
    if (limits := model.limits("sequence_length", task)) is None:
        return {}
    name, most = model.display_name, limits.largest
    reads_images_alone = model.config().get("model_type") in _READ_IMAGES_ALONE
    by_encoder = (Task.SPEECH_RECOGNITION, Task.SEQUENCE_TO_SEQUENCE)
    if task in by_encoder or reads_images_alone:
        given = {"new_tokens": texts.new_tokens}
        if task is Task.SEQUENCE_TO_SEQUENCE:
            given["prompt_length"] = texts.prompt_length
        message = f"{name} takes at most {most:,} tokens"
        return {field: message for field, length in given.items() if length > most}
    if texts.whole_length > most:
        message = f"{name} takes at most {most:,} tokens, prompt and answer together"
        return {"prompt_length": message}
    return {}


@dataclass(frozen=True)
class LengthTrial:
    """Memory of a batch of texts of one length.

    Attributes:
        length: Length in tokens; of generated texts, of prompt and answer together, where there is
            a prompt.
        trial: Trial of the batch.
    """

    length: int
    trial: Trial


def _surely(sized: Iterable[tuple[int, Trial]], gpu: GpuFacts) -> int:
    """The largest size whose trial fits even at the high end of the prediction; 0 if none does."""
    most = gpu.total_bytes
    sure = [size for size, one in sized if one.fits and (one.device_used_high_bytes or 0) <= most]
    return max(sure, default=0)


@dataclass(frozen=True)
class LongestThatFits:
    """The longest text of a batch that fits on a GPU, and the next longer one that was tried.

    Attributes:
        gpu: The GPU.
        batch_size: Texts at once.
        length: Length in tokens; 0 if not even the shortest fits.
        next_length: The next one tried, which does not fit; ``None`` where the model takes none
            longer.
        trial: Trial of the longest; ``None`` if none fits.
        next_trial: Trial of the next one.
        lengths: Lengths up to a little beyond, growing, for a chart.
    """

    gpu: GpuFacts
    batch_size: int
    length: int
    next_length: int | None
    trial: Trial | None
    next_trial: Trial | None
    lengths: list[LengthTrial] = field(default_factory=list)

    @property
    def surely_fits(self) -> int:
        """The longest, of those tried, that fits at the high end; 0 if none does."""
        own = [(self.length, self.trial)] if self.trial else []
        return _surely([*own, *((one.length, one.trial) for one in self.lengths)], self.gpu)

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class GenerationAnswer:
    """Memory and time of generating texts on a GPU.

    Attributes:
        gpu: The GPU.
        trial: Trial of the requested number of texts at once.
        largest_batch_size: Texts at once that fit; 0 if not even one does.
        longest_length: Length of prompt and answer together, at the batch of the trial; 0 if none
            fits.
        longest_is_the_models: Whether only the model ends it.
        lengths: Lengths up to a little beyond the longest, growing, for a chart.
        batches: The powers of two that fit, the trial, the largest batch and the next, growing.
        prompt_seconds: Predicted time until the first token of each text; ``None`` where they do
            not fit.
        token_seconds: Time for each further token of all texts, on average; 0 where there is none.
        tokens_per_second: New tokens of all texts, over the whole time.
        tokens_per_second_low, tokens_per_second_high: Its interval.
        waits_for_host: Whether tokens take as long as the host takes to launch their operations.
        waits_for_link: Whether copies of an offloaded cache take longer than a token's kernels.
        host_bytes: Bytes of an offloaded cache on the host; 0 for others.
        copied_bytes: Bytes copied to the host for the last token, and as much back.
    """

    gpu: GpuFacts
    trial: Trial
    largest_batch_size: int
    longest_length: int
    longest_is_the_models: bool
    lengths: list[LengthTrial] = field(default_factory=list)
    batches: list[Trial] = field(default_factory=list)
    prompt_seconds: float | None = None
    token_seconds: float | None = None
    tokens_per_second: float | None = None
    tokens_per_second_low: float | None = None
    tokens_per_second_high: float | None = None
    waits_for_host: bool = False
    waits_for_link: bool = False
    host_bytes: int = 0
    copied_bytes: int = 0

    @property
    def surely_fits(self) -> int:
        """The most texts at once, of those tried, that fit at the high end; 0 if none do."""
        return _surely(((one.batch_size, one) for one in (self.trial, *self.batches)), self.gpu)

    @property
    def longest_that_surely_fits(self) -> int:
        """The longest text, of those tried, that fits at the high end; 0 if none does."""
        return _surely(((one.length, one.trial) for one in self.lengths), self.gpu)

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class TextResult:
    """The result of an analysis of generating texts, or of the longest that fit in training.

    Attributes:
        goal: One of the two.
        model_name: The model's display name.
        workload: The workload that generates or is trained.
        source: Source of all numbers.
        decision: The decision in one sentence: what fits.
        verdict: The decision, where the limits are, and what sets them.
        limited_by: Sentences about what sets the limits.
        caveats: Caveats about these numbers.
        software: The versions that memory depends on, by package.
        generation: The answer, if it is about generating.
        longest: The answer, if it is about training.
    """

    goal: Goal
    model_name: str
    workload: Workload
    source: Source
    decision: str
    verdict: str
    limited_by: str
    caveats: list[str]
    software: dict[str, str] = field(default_factory=dict)
    generation: GenerationAnswer | None = None
    longest: LongestThatFits | None = None

    @property
    def longest_tokens(self) -> int:
        """The longest text that fits at the current batch; 0 if none does."""
        if self.generation is not None:
            return self.generation.longest_length
        return self.longest.length if self.longest else 0

    def to_dict(self) -> dict[str, object]:
        return asdict(self)
