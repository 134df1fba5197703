"""The answer about generating text on a GPU: the memory, the most texts and the longest ones."""

from __future__ import annotations

from dataclasses import replace

from ...allocator.options import AllocatorOptions
from ...answer.search import SearchOutcome, find_largest
from ...answer.text_answer import limited_by
from ...core.choices import Attention, Precision
from ...core.errors import DoesNotFit
from ...events import Emit, Log
from ...gpus import Gpu
from ...hub import resolve
from ...interface.request import AnalysisRequest
from ...interface.texts import GenerationAnswer, Texts
from ...interface.trial import Probe, Trial
from ...interface.workload import Workload
from ...step.building import blaming_the_config
from ...tracing.lowering import behaviour_of
from ...tracing.trace import Trace
from ..memory.growing import at_more_lengths
from ..memory.weights import check_weights
from ..probe import predict_memory
from ..requested_gpu import catalogue_gpu, gpu_facts
from ..timing.host import copied_bytes
from .decoding import SPEED_RANGE, generation_speed
from .generation import (
    generating_workload,
    generation_traces,
    longest_read,
    longest_written,
    reads_text,
)
from .longest import Search


def predict_generation(request: AnalysisRequest, texts: Texts, emit: Emit) -> GenerationAnswer:
    """Predict generating the requested number of texts at once, the most that fit, and the longest.

    Args:
        request: Its GPU is one of the catalogue; its batch size is the number of texts.
        texts: Lengths of the texts.
        emit: Receives log lines.

    Raises:
        InvalidInput: If the model does not generate, or does not take such lengths.
        DoesNotFit: If not even the weights do, or not even one text.
    """
    request = replace(request, workload=resolve(request.workload))
    workload, gpu, batch_size = request.workload, catalogue_gpu(request), request.known_batch_size
    behaviour = behaviour_of(gpu)
    allocator = AllocatorOptions.parse(request.allocator)

    def trial_of(traced: Trace) -> Trial:
        return predict_memory(gpu_facts(gpu), at_more_lengths(traced), allocator)

    reads = reads_text(workload)

    def trace_at(length: int) -> Trace:
        longer = (
            replace(texts, prompt_length=length) if reads else replace(texts, new_tokens=length)
        )
        return generation_traces(workload, longer, behaviour, alone=True).at(batch_size)

    with blaming_the_config(workload):
        check_weights(generating_workload(workload, texts), gpu)
        emit(Log(f"Tracing {workload.preset.display_name} while it generates"))
        traces = generation_traces(workload, texts, behaviour)
        trial = trial_of(traces.at(batch_size))
        largest = find_largest(lambda size: trial_of(traces.at(size)), limit_bytes=gpu.usable_bytes)
        if not largest.largest_batch_size:
            raise _not_even_one(workload, texts, trial_of(traces.at(1)), gpu)
        # What is written has few tokens at most, which are looked at first.
        most = longest_read(workload, texts) if reads else longest_written(workload, texts)
        begin = texts.prompt_length if reads else most
        found = Search(trace_at, trial_of, gpu, emit).longest(begin, most)
    beside = texts.new_tokens if reads else 0
    answer = GenerationAnswer(
        gpu=gpu_facts(gpu),
        trial=trial,
        largest_batch_size=largest.largest_batch_size,
        longest_length=found.length + beside if found.length else 0,
        longest_is_the_models=found.next_length is None,
        lengths=[replace(one, length=one.length + beside) for one in found.lengths],
        batches=_batches(lambda size: trial_of(traces.at(size)), largest, batch_size),
        host_bytes=traces.at(batch_size).host_bytes,
        copied_bytes=copied_bytes(traces.at(batch_size).operations),
    )
    if not trial.fits:
        return answer
    speed = generation_speed(traces.at(batch_size), texts, gpu, workload.precision)
    return replace(
        answer,
        prompt_seconds=speed.prompt_seconds,
        token_seconds=speed.token_seconds,
        tokens_per_second=speed.tokens_per_second,
        tokens_per_second_low=speed.tokens_per_second * SPEED_RANGE.low,
        tokens_per_second_high=speed.tokens_per_second * SPEED_RANGE.high,
        waits_for_host=speed.waits_for_host,
        waits_for_link=speed.waits_for_link,
    )


def _not_even_one(workload: Workload, texts: Texts, trial: Trial, gpu: Gpu) -> DoesNotFit:
    """The error where one text is too long, with what takes the memory and what to try."""
    limits = limited_by(trial, gpu_facts(gpu), f"With one text of {texts.whole_length:,} tokens")
    hints = []
    is_whole = workload.precision in (Precision.FP32, Precision.TF32)
    if is_whole and gpu.bf16_flops is not None:
        hints.append("bf16-true")
    if workload.attention is Attention.EAGER:
        hints.append("sdpa attention, which keeps no scores")
    hints += ["shorter texts", "a GPU with more memory"]
    return DoesNotFit(
        f"Not even one text fits on {gpu.display_name}. {limits} Try "
        f"{', '.join(hints[:-1])} or {hints[-1]}."
    )


def _batches(probe: Probe, found: SearchOutcome, asked: int) -> list[Trial]:
    """The trials of each power of two that fits, the requested one and both sides of the limit."""
    sizes = {2**power for power in range(found.largest_batch_size.bit_length())}
    sizes |= {asked, found.largest_batch_size, found.next_batch_size}
    known = {trial.batch_size: trial for trial in found.trials}
    return [known.get(size) or probe(size) for size in sorted(sizes) if size]
