"""The analyses of texts: how many can be generated, and how long they may be in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...answer.text_answer import conclude_generation, conclude_longest
from ...core.choices import OFFLOADED_CACHES, PACKED_CACHES, RESIDUAL_LENGTH, Goal
from ...events import Emit, Log, Stage
from ...hub import resolve
from ...interface.request import AnalysisRequest
from ...interface.texts import GenerationAnswer, TextResult, Texts
from ...step.building import code_caveats
from ..caveats import ALONE, NOTHING_RUN
from ..refusals import does_not_fit
from ..requested_gpu import catalogue_gpu, gpu_facts
from ..timing.host import offloaded_cache_caveat
from .generation import reads_text
from .inference import predict_generation
from .longest import STRIDE, longest_sequence

_PADDED = "All prompts are taken to be of one length, since shorter ones are padded to it."
_ON_TOP = "Tokens that images or sound make come on top of the prompt's."
_NO_PROMPT = (
    "The model reads no prompt beside what it encodes, so the prompt length does not count."
)
_PACKED = (
    f"The cache is packed after every {RESIDUAL_LENGTH} new tokens, in groups of 64 numbers: "
    "transformers' defaults. Each token makes the keys and values of one layer after another anew, "
    "and time is predicted for PyTorch's own kernels."
)
_STEPS_OF_LENGTH = f"Only multiples of {STRIDE} tokens are tried."


def analyze_texts(request: AnalysisRequest, emit: Emit) -> TextResult:
    """Find how many texts can be generated, or the longest sequence that fits in training.

    Args:
        request: Its goal is one of the two.
        emit: Receives log lines.

    Raises:
        InvalidInput: If the model does not generate, or takes no sequence.
        DoesNotFit: If not even one text does, or not even the shortest.
    """
    request = replace(request, workload=resolve(request.workload))
    used = request.workload.versions_here
    unlike = request.workload.software_caveats
    for caveat in unlike:
        emit(Log(caveat, "warning"))
    emit(Stage("trace"))
    caveats = [*unlike, NOTHING_RUN, ALONE, *code_caveats(request.workload)]
    found = _generation if request.goal is Goal.GENERATION else _longest
    return replace(found(request, emit, caveats), software=used)


def _generation(request: AnalysisRequest, emit: Emit, caveats: Sequence[str]) -> TextResult:
    found = predict_generation(request, request.texts, emit)
    workload = request.workload
    reads = reads_text(workload)
    of_prompts = [_PADDED] if reads else [_NO_PROMPT]
    if reads and (workload.image_count or workload.audio_seconds):
        of_prompts.append(_ON_TOP)
    of_cache = _cache_caveats(request.texts, found)
    return conclude_generation(request, found, _read(request), [*caveats, *of_prompts, *of_cache])


def _cache_caveats(texts: Texts, found: GenerationAnswer) -> list[str]:
    """Caveats about a cache that is not whole on the GPU, or not as it was computed."""
    if texts.cache_format in OFFLOADED_CACHES:
        return [offloaded_cache_caveat(found.host_bytes, found.copied_bytes)]
    return [_PACKED] if texts.cache_format in PACKED_CACHES else []


def _read(request: AnalysisRequest) -> str:
    """Inputs read for each text, as text."""
    workload, prompt = request.workload, f"{request.texts.prompt_length:,} prompt tokens"
    parts = []
    if (images := workload.image_count) is not None:
        parts.append(f"{images:,} image{'s' if images > 1 else ''}")
    if workload.audio_seconds is not None:
        parts.append(f"{workload.audio_seconds:,} s of sound")
    if reads_text(workload):
        parts.append(prompt)
    return ", ".join(parts)


def _longest(request: AnalysisRequest, emit: Emit, caveats: Sequence[str]) -> TextResult:
    found = longest_sequence(request, emit)
    if found.trial is None:
        smallest = found.lengths[0].trial
        raise does_not_fit(request, smallest, gpu_facts(catalogue_gpu(request)))
    return conclude_longest(request, found, found.trial, [*caveats, _STEPS_OF_LENGTH])
