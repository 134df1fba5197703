"""Runs an estimator with the packages of this Python; :mod:`benchmarks.estimators` starts it.

It reads questions as JSON and writes the bytes that the estimator named for each.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from copy import deepcopy
from functools import cache
from importlib import import_module
from typing import Any

from benchmarks.torchvision_here import load_torchvision
from benchmarks.xmem_train import NETWORKS, language_model, network

_GIB = 2**30

Asked = Mapping[str, Any]


def kitsune(question: Asked, model: Any) -> int:
    import torch
    from kitsune.predict import predict_memory

    side = question["image_size"]
    shape = (3, side, side) if side else (question["sequence_length"],)
    half = question["precision"] == "bf16-true"
    # On the meta device it traces shapes; elsewhere it would run the model, for the same figures.
    with torch.device("meta"):
        predicted = predict_memory(
            deepcopy(model).bfloat16() if half else model,
            shape,
            batch_size=question["batch_size"],
            dtype="bf16" if half else "fp32",
            optimizer=question["optimizer"],
            training=True,
        )
    return int(predicted.total_bytes)


def gpu_estimator(question: Asked, model: Any) -> int:
    from gpu_estimator import GPUEstimator

    estimated = GPUEstimator().estimate(
        model_params=sum(parameter.numel() for parameter in model.parameters()),
        batch_size=question["batch_size"],
        sequence_length=question["sequence_length"],
        precision=question["precision"].removesuffix("-mixed"),
        optimizer=question["optimizer"],
        gpu_memory_gb=question["total_bytes"] / _GIB,
        gradient_checkpointing=question["checkpointing"],
    )
    return int(estimated.total_memory_gb * _GIB)


def accelerate(question: Asked, model: Any) -> int:
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    precision = "float32" if question["precision"] == "fp32" else "float16"
    total, _ = calculate_maximum_sizes(model)
    return int(max(estimate_training_usage(total, precision).values()))


ASK: dict[str, Callable[[Asked, Any], int]] = {
    "torch-kitsune": kitsune,
    "gpu-estimator": gpu_estimator,
    "accelerate": accelerate,
}


@cache
def build(model: str) -> Any:
    """The model of a question, which is given as JSON, without weights."""
    import torch

    from engine.interface.workload import Workload
    from engine.step.training import build_model

    known = json.loads(model)
    name = known.get("script", "")
    if name in NETWORKS:  # some compute their widths with tensors
        return network(name).to("meta")
    with torch.device("meta"):
        if name:
            return language_model(name)
        if "workload" in known:
            return build_model(Workload.parse(known["workload"]))
        module, _, name = known["module"].partition(":")
        return getattr(import_module(module), name)()


def main() -> None:
    warnings.simplefilter("ignore")
    load_torchvision()
    ask = ASK[sys.argv[1]]
    with redirect_stdout(sys.stderr):
        said = [
            ask(question, build(json.dumps(question["model"]))) for question in json.load(sys.stdin)
        ]
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main()
