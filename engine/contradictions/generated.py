"""What caches of generated texts do not combine with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..choices import OFFLOADED_CACHES, QUANTIZED_CACHES
from ..models.tasks import Task
from .contradiction import Contradiction, one_of

if TYPE_CHECKING:
    from ..workload import Workload


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
