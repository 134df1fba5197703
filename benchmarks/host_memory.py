"""Host memory of loading and saving a model, predicted and as real processes take it.

``python -m benchmarks.host_memory`` writes a Llama of random weights to a folder, loads and saves
it in processes of their own, and prints the most that each held beside what it held before, and
what :mod:`engine.prediction.memory.host_memory` says. It needs no GPU, and 8 GiB of memory. What
tensors of a GPU take on their way to a file is not measured: on the host they are there already.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from engine.core.sizes import gib_number
from engine.interface.workload import Workload
from engine.prediction.memory.host_memory import State, while_loading, while_saving
from engine.prediction.memory.weights import weights_of

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32_000,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "tie_word_embeddings": False,
}
"""271 million parameters: 1.01 GiB in fp32."""
GPUS = 2
"""Processes that share the model with FSDP, on the CPU."""
_SECONDS = 0.002
"""Time between two looks at a process."""


@dataclass(frozen=True)
class Case:
    """Something that a process does with the model.

    Attributes:
        name: Its name, for people.
        run: Does it, and returns the most bytes that were held meanwhile.
        predicted: The bytes that the rules say.
        processes: Processes that do it together; the first is measured.
    """

    name: str
    run: Callable[[Path], int]
    predicted: Callable[[], int]
    processes: int = 1


class Watch:
    """The most resident memory of this process over a stretch, less that at its beginning.

    Args:
        counts_pages: Whether pages of mapped files count, which the kernel may take back.
    """

    def __init__(self, *, counts_pages: bool) -> None:
        self._names = ("RssAnon", "RssFile") if counts_pages else ("RssAnon",)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.bytes = 0

    def __enter__(self) -> Watch:
        gc.collect()
        self._before = self._resident()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._note()

    def _look(self) -> None:
        while not self._ended.wait(_SECONDS):
            self._note()

    def _note(self) -> None:
        self.bytes = max(self.bytes, self._resident() - self._before)

    def _resident(self) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        sizes = dict(line.split(":", 1) for line in lines)
        return sum(1024 * int(sizes[name].split()[0]) for name in self._names)


def main() -> None:
    """Print a table of all cases, or measure one of them in this process."""
    parser = argparse.ArgumentParser(description="Host memory of loading and saving a model.")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        sys.stdout.write(json.dumps(CASES[options.case].run(options.folder)))
        return
    sys.stdout.write(
        "| phase | predicted, GiB | measured, GiB | error |\n| --- | --- | --- | --- |\n"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_models(folder)
        for key, case in CASES.items():
            predicted, measured = case.predicted(), measure(key, case, folder)
            off = f"{100 * (predicted / measured - 1):+.1f}%"
            sizes = f"{gib_number(predicted)} | {gib_number(measured)}"
            sys.stdout.write(f"| {case.name} | {sizes} | {off} |\n")


def write_models(folder: Path) -> None:
    """Write the model in 16 and in 32 bits."""
    import torch

    model = _new_model(torch.bfloat16)
    model.save_pretrained(folder / "bf16")
    model.float().save_pretrained(folder / "fp32")


def measure(key: str, case: Case, folder: Path) -> int:
    """The bytes that a case took in fresh processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": str(case.processes),
        # Pages that are freed go back at once, so that none of them hides what comes later.
        "MALLOC_TRIM_THRESHOLD_": "0",
    }
    command = [
        sys.executable,
        "-m",
        "benchmarks.host_memory",
        "--case",
        key,
        "--folder",
        str(folder),
    ]
    started = [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | shared | {"RANK": str(rank)},
        )
        for rank in range(case.processes)
    ]
    said = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise RuntimeError(f"{case.name}: a process failed")
    return int(json.loads(said[0]))


def _new_model(dtype: Any) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    fields = {name: value for name, value in CONFIG.items() if name != "model_type"}
    config = AutoConfig.for_model(CONFIG["model_type"], **fields)
    return AutoModelForCausalLM.from_config(config, dtype=dtype)


def _load(name: str, dtype: str, *, counts_pages: bool) -> Callable[[Path], int]:
    def run(folder: Path) -> int:
        import torch
        from transformers import AutoModelForCausalLM

        kind = getattr(torch, dtype)
        with Watch(counts_pages=counts_pages) as watch:
            model = AutoModelForCausalLM.from_pretrained(folder / name, dtype=kind)
            for parameter in model.parameters():  # read, as a copy to a GPU would
                parameter.sum()
        return watch.bytes

    return run


def _gather(folder: Path, *, optimizer: bool) -> int:
    """Gather what FSDP has divided, in the first process."""
    import torch
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        get_optimizer_state_dict,
    )
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from transformers import AutoModelForCausalLM

    dist.init_process_group("gloo")
    model = AutoModelForCausalLM.from_pretrained(folder / "fp32", dtype=torch.float32)
    mesh = init_device_mesh("cpu", (GPUS,))
    for block in model.model.layers:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    stepper = torch.optim.AdamW(model.parameters())
    if optimizer:
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        stepper.step()
        stepper.zero_grad()
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    with Watch(counts_pages=False) as watch:
        gathered: Any = (
            get_optimizer_state_dict(model, stepper, options=options)
            if optimizer
            else get_model_state_dict(model, options=options)
        )
        time.sleep(10 * _SECONDS)
        del gathered
    dist.destroy_process_group()
    return watch.bytes


def _workload(**fields: Any) -> Workload:
    return Workload.parse({"config": CONFIG, "sequence_length": 128} | fields)


def _loading(**fields: Any) -> Callable[[], int]:
    workload = _workload(**fields)
    return lambda: while_loading(workload, weights_of(workload)).bytes


def _saving(states: int) -> int:
    """Saving with FSDP, where the optimizer keeps so many numbers for each weight."""
    workload = _workload(parallelism="fsdp", world_size=GPUS)
    weights = weights_of(workload)
    return while_saving(workload, weights, State(whole=states * weights.kept)).bytes


CASES = {
    "as-it-is": Case(
        "loading bf16 as it is (pages of the file)",
        _load("bf16", "bfloat16", counts_pages=True),
        _loading(precision="bf16-true"),
    ),
    "whole": Case(
        "loading fp32 as it is (pages of the file)",
        _load("fp32", "float32", counts_pages=True),
        _loading(),
    ),
    "converted": Case(
        "loading bf16 as fp32",
        _load("bf16", "float32", counts_pages=False),
        _loading(precision="bf16-mixed"),
    ),
    "rounded": Case(
        "loading fp32 as bf16",
        _load("fp32", "bfloat16", counts_pages=False),
        _loading(precision="bf16-true"),
    ),
    "gathered": Case(
        "gathering FSDP's weights in rank 0",
        lambda folder: _gather(folder, optimizer=False),
        lambda: _saving(0),
        GPUS,
    ),
    "gathered-state": Case(
        "gathering FSDP's AdamW state in rank 0",
        lambda folder: _gather(folder, optimizer=True),
        lambda: _saving(2),
        GPUS,
    ),
}


if __name__ == "__main__":
    main()
