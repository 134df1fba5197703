"""The answer about generating text on a GPU: the memory, the most texts and the longest ones."""

from __future__ import annotations

from dataclasses import replace

from ..allocator.options import AllocatorOptions
from ..answer.search import find_largest
from ..errors import DoesNotFit
from ..events import Log
from ..hub import resolve
from ..request import AnalysisRequest
from ..result import Trial
from ..step.building import blaming_the_config
from ..texts import GenerationAnswer, Texts
from ..tracing.lowering import cuda_behaviour
from ..tracing.trace import Trace
from .analysis import catalogue_gpu, gpu_facts
from .generation import generation_traces
from .longest import Emit, Search
from .probe import predict_memory


def predict_generation(request: AnalysisRequest, texts: Texts, emit: Emit) -> GenerationAnswer:
    """Predict generating so many texts at once, the most that fit, and the longest ones.

    Args:
        request: Its GPU is one of the catalogue; its batch size is the number of texts.
        texts: How long they are.
        emit: Receives log lines.

    Raises:
        InvalidInput: If the model does not generate, or does not take such lengths.
        DoesNotFit: If not even the weights do.
    """
    request = replace(request, workload=resolve(request.workload))
    workload, gpu, batch_size = request.workload, catalogue_gpu(request), request.known_batch_size
    behaviour = cuda_behaviour(gpu.compute_capability)
    allocator = AllocatorOptions.parse(request.allocator)

    def trial_of(traced: Trace) -> Trial:
        return predict_memory(gpu_facts(gpu), traced, allocator)

    def trace_at(prompt_length: int) -> Trace:
        longer = replace(texts, prompt_length=prompt_length)
        return generation_traces(workload, longer, behaviour, alone=True)(batch_size)

    with blaming_the_config(workload):
        emit(Log(f"Tracing {workload.preset.display_name} while it generates"))
        at = generation_traces(workload, texts, behaviour)
        trial = trial_of(at(batch_size))
        if trial.breakdown["parameters"] > gpu.usable_bytes:
            weights = trial.breakdown["parameters"] / 2**30
            raise DoesNotFit(
                f"The weights alone take {weights:,.2f} GiB, and {gpu.display_name} has "
                f"{gpu.usable_bytes / 2**30:,.2f}. Try bf16-true, or a GPU with more memory."
            )
        largest = find_largest(lambda size: trial_of(at(size)), limit_bytes=gpu.usable_bytes)
        limits = workload.preset.sequence_length
        most = (limits.largest if limits else texts.whole_length) - texts.new_tokens
        found = Search(trace_at, trial_of, gpu, emit).longest(texts.prompt_length, most)
    return GenerationAnswer(
        gpu=gpu_facts(gpu),
        trial=trial,
        largest_batch_size=largest.largest_batch_size,
        longest_length=found.length + texts.new_tokens if found.length else 0,
        longest_is_the_models=found.next_length is None,
    )
