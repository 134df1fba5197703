"""The texts that a model generates: how long they are, and how their keys and values are kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

from .border import settle
from .choices import CacheFormat
from .errors import InvalidInput
from .fields import Described, Group, Interval
from .models.tasks import LARGEST_SEQUENCE_LENGTH
from .result import GpuFacts, Trial


@dataclass(frozen=True)
class Texts:
    """How long generated texts are, in tokens.

    Raises:
        InvalidInput: On construction, with a message for each wrong field.
    """

    prompt_length: Annotated[
        int,
        Interval(ge=1, le=LARGEST_SEQUENCE_LENGTH),
        Described("Prompt length", "Tokens of each prompt.", Group.PHASES, unit="tokens"),
    ] = 1024
    new_tokens: Annotated[
        int,
        Interval(ge=1, le=LARGEST_SEQUENCE_LENGTH),
        Described("New tokens", "Generated for each prompt.", Group.PHASES, unit="tokens"),
    ] = 256
    cache_format: Annotated[
        CacheFormat,
        Described(
            "Cache format",
            "How keys and values are kept.",
            Group.PHASES,
            flag="--cache-format",
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


@dataclass(frozen=True)
class LongestThatFits:
    """The longest text of a batch that fits on a GPU, and the next longer one that was tried.

    Attributes:
        gpu: Where.
        batch_size: Texts at once.
        length: In tokens; 0 if not even the shortest fits.
        next_length: The next one tried, which does not fit; ``None`` where the model takes none
            longer.
        trial: That of the longest; ``None`` if none fits.
        next_trial: That of the next one.
    """

    gpu: GpuFacts
    batch_size: int
    length: int
    next_length: int | None
    trial: Trial | None
    next_trial: Trial | None

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class GenerationAnswer:
    """What generating texts takes on a GPU.

    Attributes:
        gpu: Where.
        trial: Of so many texts at once.
        largest_batch_size: Texts at once that fit; 0 if not even one does.
        longest_length: Of prompt and answer together, at the batch of the trial; 0 if none fits.
        longest_is_the_models: Whether only the model ends it.
    """

    gpu: GpuFacts
    trial: Trial
    largest_batch_size: int
    longest_length: int
    longest_is_the_models: bool

    def to_dict(self) -> dict[str, object]:
        return asdict(self)
