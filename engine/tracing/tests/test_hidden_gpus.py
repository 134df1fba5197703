"""Predicting hides the GPUs from CUDA, and forks trace only where autograd lets them."""

from __future__ import annotations

import os
import signal
import threading

import pytest
import torch

import engine
from engine import script_analysis
from engine.cli.main import main
from engine.core.errors import EngineError
from engine.prediction.plans.side_by_side import processes_here
from engine.script import program_trace
from engine.tracing import hidden_gpus
from engine.tracing.hidden_gpus import backward_runs, forks_can_trace, hide_gpus
from engine.tracing.kept_values import KeptValues


def test_cuda_counts_no_gpu_and_processes_started_later_see_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str | None] = []

    def count() -> int:
        seen.append(os.environ.get("CUDA_VISIBLE_DEVICES"))
        return 0

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", count, raising=False)
    hide_gpus()
    assert seen == [""]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1,2"


def test_a_process_that_uses_its_gpu_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def count() -> int:
        raise AssertionError("it was counted")

    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", count, raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    hide_gpus()


def test_a_backward_pass_that_pytorch_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("Unable to handle autograd's threading in combination with fork")

    assert backward_runs()
    monkeypatch.setattr(torch.Tensor, "backward", refuse)
    assert not backward_runs()
    assert not forks_can_trace()


@pytest.fixture
def counted_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is a fork of a process in which CUDA has found a GPU."""
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", lambda: 1, raising=False)
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)


@pytest.mark.longer
@pytest.mark.usefixtures("counted_gpus")
def test_a_backward_pass_that_ends_the_process_is_tried_in_another_fork(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail_in_a_thread(*_: object, **__: object) -> None:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()

    assert backward_runs()
    monkeypatch.setattr(torch.Tensor, "backward", fail_in_a_thread)
    assert not backward_runs()


def test_training_on_a_gpu_is_told_how_it_can_be_predicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program_trace, "backward_runs", lambda: False)
    with pytest.raises(EngineError, match="CUDA_VISIBLE_DEVICES="):
        engine.predict(lambda batch_size: None, gpu="a10", batch_sizes=[2])


def test_where_forks_cannot_trace_there_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden_gpus, "forks_can_trace", lambda: False)
    assert processes_here() == 1


def test_fake_tensors_do_not_pretend_that_there_are_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    name = "_ensureCUDADeviceGuardSet"
    monkeypatch.setattr(torch._C, name, lambda: called.append(name), raising=False)
    with KeptValues():
        torch.zeros(2, requires_grad=True).sum().backward()
    assert called == []
    assert forks_can_trace()


@pytest.mark.parametrize(
    ("command", "function", "hidden"),
    [
        ("predict --batch-size 8 --gpu a10", "predict_script", True),
        ("analyze --current-batch-size 8 --gpu a10", "analyze_script", True),
        ("plan --current-batch-size 8 --gpu a10", "plan_script", True),
        ("analyze --current-batch-size 8", "analyze_script", False),
    ],
)
def test_a_command_that_predicts_a_factory_sees_no_gpu(
    command: str, function: str, hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is traced in that process; what is measured needs the GPU."""
    told: list[str] = []

    def run(*_: object, **__: object) -> None:
        told.append("runs")
        raise EngineError("that is enough")

    monkeypatch.setattr(hidden_gpus, "hide_gpus", lambda: told.append("hides"))
    monkeypatch.setattr(script_analysis, function, run)
    name, *flags = command.split()
    assert main([name, "--factory", "engine.examples.my_training:make_step", *flags]) == 1
    assert told == (["hides", "runs"] if hidden else ["runs"])
