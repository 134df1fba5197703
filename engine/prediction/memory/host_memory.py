"""Host memory while a model is loaded and saved: arithmetic on the bytes of its weights.

The rules follow transformers 5.23 (``core_model_loading.py``, ``PreTrainedModel.from_pretrained``,
``save_pretrained``, ``Trainer.save_model``; 4.46 and 4.57 load alike), safetensors 0.8
(``torch.py``), accelerate 1.15 (``Accelerator.get_state_dict``, ``fsdp_utils.py``), DeepSpeed 0.19
(``_zero3_consolidated_16bit_state_dict``, ``clone_tensors_for_torch_save``), peft 0.21 and PyTorch
2.13 (``torch/serialization.py``). Checkpoints are safetensors, which are mapped: their pages belong
to the kernel, which takes them back when memory is short. They count where they are all there is of
the weights, and not where those are converted to another format.

``python -m benchmarks.host_memory`` holds the rules against real processes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.choices import Parallelism, Precision, Quantization
from ...core.sizes import gib
from ...interface.workload import Workload

GPUS_PER_NODE = 8
"""Assumed: so many processes, one for each GPU, share the memory of a host."""
LOADING_THREADS = 4
"""Tensors that transformers 5 reads at once (``GLOBAL_WORKERS``)."""
FILE_BYTES, FILE_BYTES_BEFORE_5 = 50 * 10**9, 5 * 10**9
"""Default ``max_shard_size`` of ``save_pretrained`` in transformers 5, and before."""


@dataclass(frozen=True)
class Weights:
    """Weights as they are loaded and saved, in bytes.

    Attributes:
        loaded: Of all models that are loaded, whole, in the format of training.
        kept: Of the trained model in training, with adapters, on all GPUs together.
        saved: Of what a checkpoint has: the adapters if there are any, else the model.
        largest: Of the largest tensor that is loaded.
        largest_quantized: Of the largest weight that is quantized while it is loaded; 0 if none is.
    """

    loaded: int
    kept: int
    saved: int
    largest: int
    largest_quantized: int = 0


@dataclass(frozen=True)
class State:
    """State of the optimizer, in bytes.

    Attributes:
        whole: On all GPUs that share it.
        largest: The largest tensor of one GPU.
    """

    whole: int = 0
    largest: int = 0


@dataclass(frozen=True)
class HostNeed:
    """Host memory of a phase, beside Python and its libraries.

    Attributes:
        bytes: Of one process.
        processes: Processes on a node that need it at once.
        how: The rule, in a sentence.
    """

    bytes: int
    processes: int
    how: str


def processes_on_a_node(workload: Workload) -> int:
    return min(workload.world_size, GPUS_PER_NODE)


def while_loading(workload: Workload, weights: Weights) -> HostNeed:
    """Host memory of ``from_pretrained`` until the weights are on the GPUs."""
    every = processes_on_a_node(workload)
    if workload.parallelism is Parallelism.ZERO_3:
        said = "Rank 0 maps all weights and gives each GPU its part, module by module."
        return HostNeed(weights.loaded, 1, said)
    if workload.parts_of_model > 1:
        said = "Each process reads its part from the files, whose pages all share (assumed)."
        return HostNeed(weights.loaded, 1, said)
    if workload.parallelism is Parallelism.FSDP:
        said = (
            "Each process loads all weights and keeps its shards. With cpu_ram_efficient_loading "
            "only the first one of a node does."
        )
        return HostNeed(weights.loaded, every, said)
    if workload.quantization is not Quantization.NONE:
        said = "Weights go to the GPU and are quantized there, one tensor at a time."
        return HostNeed(weights.largest, every, said)
    most = min(weights.loaded, LOADING_THREADS * weights.largest)
    said = (
        "All weights are read on the host, then moved to the GPU; low_cpu_mem_usage changes "
        f"nothing. With device_map they go straight there, up to {gib(most)} at a time."
    )
    return HostNeed(weights.loaded, every, said)


def while_saving(
    workload: Workload, weights: Weights, state: State, transformers: str = "5"
) -> HostNeed:
    """Host memory of a checkpoint of the Trainer: its model and the state of its optimizer.

    Args:
        workload: The workload.
        weights: Its weights.
        state: State of its optimizer.
        transformers: The version.
    """
    if workload.parallelism is Parallelism.FSDP or workload.parts_of_model > 1:
        said = (
            "Rank 0 gathers the whole model, then the whole optimizer state (FULL_STATE_DICT). "
            "With SHARDED_STATE_DICT each process writes its own part."
        )
        return HostNeed(max(weights.kept, state.whole), 1, said)
    if workload.parallelism is Parallelism.ZERO_3:
        said = (
            "Rank 0 gathers the weights in 16 bits (stage3_gather_16bit_weights_on_model_save); "
            "each process writes its optimizer state, one tensor at a time."
        )
        return HostNeed(max(weights.saved, state.largest), 1, said)
    if workload.parallelism in (Parallelism.ZERO_1, Parallelism.ZERO_2):
        said = "Each process copies the whole model to the host, and rank 0 writes it."
        need = max(weights.kept, state.largest)
        return HostNeed(need, processes_on_a_node(workload), said)
    limit = FILE_BYTES if int(transformers.partition(".")[0]) >= 5 else FILE_BYTES_BEFORE_5
    file = min(weights.saved, max(limit, weights.largest))
    what = "Only the adapters are saved" if workload.lora_rank is not None else "One process saves"
    said = (
        f"{what}: all of a file is on the host when it is written (max_shard_size, "
        f"{limit // 10**9} GB), and the optimizer state one tensor at a time."
    )
    return HostNeed(max(file, state.largest), 1, said)


def of_evaluation(workload: Workload, kept_bytes: int, kept_rows: int) -> HostNeed:
    """Host memory of an evaluation, to which the kept logits come in the end.

    ``nested_numpify`` of transformers makes bf16 fp32, and what arrives later is concatenated to
    what is there, old and new copy at once.

    Args:
        workload: Its evaluation may keep logits.
        kept_bytes: Bytes of logits and labels on the GPU when they are moved.
        kept_rows: Samples that they are of.
    """
    every = processes_on_a_node(workload)
    if not (workload.eval_samples and kept_rows):
        return HostNeed(0, every, "Only the loss of each batch is kept.")
    whole = kept_bytes * workload.eval_samples // kept_rows
    if workload.precision is Precision.BF16_TRUE:
        whole *= 2
    if kept_rows < workload.eval_samples:
        whole *= 2
    return HostNeed(whole, every, "The logits of all samples end on the host, for the metrics.")
