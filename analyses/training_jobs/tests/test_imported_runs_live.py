"""Runs of a real MLflow and of W&B, made and imported as their users do it.

Both are in an environment of their own (``make trackers``). There is no GPU: MLflow samples a
stand-in for NVIDIA's driver, and W&B writes the samples that it is given.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from pytest_django.live_server_helper import LiveServer

from analyses.models import TrainingJob
from drills.lab import until
from e2e.running import free_port
from engine.core.sizes import GIB
from memorymark_site.accounts import tokens
from memorymark_site.accounts.models import Scope

pytestmark = [pytest.mark.database, pytest.mark.slow]

PYTHON = Path(settings.BASE_DIR) / "var" / "trackers" / "bin" / "python"
CONFIG = {
    "per_device_train_batch_size": 16,
    "bf16": True,
    "fp16": False,
    "_name_or_path": "google-bert/bert-base-uncased",
}
DRIVER = f"""
from types import SimpleNamespace

USED = [26 * {GIB}, 30 * {GIB}, {GIB} // 2]

class NVMLError(Exception):
    pass

def nvmlInit():
    pass

def nvmlDeviceGetCount():
    return len(USED)

def nvmlDeviceGetHandleByIndex(index):
    return index

def nvmlDeviceGetMemoryInfo(index):
    return SimpleNamespace(used=USED[index], total=80 * {GIB})

def nvmlDeviceGetUtilizationRates(index):
    raise NVMLError("not supported")

nvmlDeviceGetPowerUsage = nvmlDeviceGetUtilizationRates
"""
MLFLOW_RUN = f"""
import sys, time
import mlflow

mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment("fine-tuning")
mlflow.set_system_metrics_sampling_interval(0.2)
mlflow.set_system_metrics_samples_before_logging(1)
with mlflow.start_run(run_name="bert", log_system_metrics=True):
    mlflow.log_params({CONFIG})
    mlflow.log_metric("train_samples_per_second", 99.5)
    time.sleep(1.5)
with mlflow.start_run(run_name="without a GPU"):
    pass
"""
WANDB_RUN = f"""
import wandb
from wandb.proto.wandb_internal_pb2 import EnvironmentRecord

with wandb.init(project="lab", name="bert", mode="offline", config={CONFIG}) as run:
    machine = EnvironmentRecord(gpu_count=4, username="grace")
    for _ in range(4):
        machine.gpu_nvidia.add(name="NVIDIA A100-SXM4-80GB", memory_total=80 * {GIB})
    run._interface._publish_environment(machine)
    for used in (20, 26, 24):
        run._interface.publish_stats({{
            "gpu.0.memoryAllocatedBytes": used * {GIB},
            "gpu.1.memoryAllocatedBytes": 70 * {GIB},
            "gpu.process.0.memoryAllocatedBytes": used * {GIB},
        }})
    for step in range(300):  # several blocks of the file
        run.log({{"train/train_samples_per_second": 99.5, "text": "x" * 300}})
"""


@pytest.fixture
def lab(live_server: LiveServer, member: User, tmp_path: Path) -> dict[str, str]:
    """The variables of a shell that knows the lab and the trackers."""
    if not PYTHON.exists():
        pytest.skip("MLflow and W&B are not installed; run: make trackers")
    (tmp_path / "pynvml.py").write_text(DRIVER)
    return os.environ | {
        "MEMORYMARK_URL": live_server.url,
        "MEMORYMARK_TOKEN": tokens.create(member, "a timer", Scope.WRITE, 7)[1],
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(settings.BASE_DIR)]),
        "WANDB_DIR": str(tmp_path),
    }


def _run(lab: dict[str, str], folder: Path, *words: str) -> str:
    done = subprocess.run(
        [str(PYTHON), *words], cwd=folder, env=lab, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr


def _imported(lab: dict[str, str], folder: Path, *words: str) -> TrainingJob:
    """The job that two imports store."""
    assert "1 new" in _run(lab, folder, "-m", "engine", "import", *words)
    assert "1 as before" in _run(lab, folder, "-m", "engine", "import", *words)
    return TrainingJob.objects.get()


@contextmanager
def _server(lab: dict[str, str], folder: Path) -> Iterator[str]:
    port = free_port()
    command = [
        str(PYTHON), "-m", "mlflow", "server", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{folder}/server.db",
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            with urlopen(f"{url}/health", timeout=5) as response:  # noqa: S310  # our own server
                return bool(response.status == 200)
        except (URLError, OSError):
            return False

    log = (folder / "server.log").open("wb")
    with log, subprocess.Popen(command, cwd=folder, env=lab, stdout=log, stderr=log) as server:
        try:
            until(answers, 180)
            yield url
        finally:
            server.terminate()


def _check_mlflow(job: TrainingJob, member: User) -> None:
    assert (job.reporter, job.name, job.owner) == ("mlflow", "bert", member)
    assert job.gpus == 2  # the third has nothing in use
    assert job.used_bytes == pytest.approx(30 * GIB, rel=1e-4)
    assert job.total_bytes == pytest.approx(80 * GIB, rel=1e-3)
    assert job.samples_per_second == 99.5
    assert job.request == {
        "model": "bert", "current_batch_size": 16, "precision": "bf16-mixed",
    }  # fmt: skip


def test_a_run_of_an_mlflow_server_is_imported_once(
    lab: dict[str, str], member: User, tmp_path: Path
) -> None:
    with _server(lab, tmp_path) as url:
        _run(lab, tmp_path, "-c", MLFLOW_RUN, url)
        _check_mlflow(
            _imported(lab, tmp_path, "mlflow", url, "--experiment", "fine-tuning"), member
        )


@pytest.mark.parametrize("store", ["sqlite:///{}/runs.db", "file://{}/runs"])
def test_a_run_of_an_mlflow_store_is_imported_once(
    lab: dict[str, str], member: User, tmp_path: Path, store: str
) -> None:
    uri = store.format(tmp_path)
    _run(lab, tmp_path, "-c", MLFLOW_RUN, uri)
    _check_mlflow(_imported(lab, tmp_path, "mlflow", uri), member)


def test_an_offline_run_of_wandb_is_imported_once(
    lab: dict[str, str], member: User, tmp_path: Path
) -> None:
    _run(lab, tmp_path, "-c", WANDB_RUN)
    job = _imported(lab, tmp_path, "wandb", str(tmp_path))
    assert (job.reporter, job.name, job.owner, job.user) == ("wandb", "bert", member, "grace")
    assert (job.gpu, job.gpus, job.is_running) == ("a100-80gb", 1, False)
    assert (job.used_bytes, job.total_bytes) == (26 * GIB, 80 * GIB)
    assert job.samples_per_second == 99.5
    assert job.request == {
        "model": "bert", "current_batch_size": 16, "precision": "bf16-mixed",
    }  # fmt: skip


def test_an_mlflow_experiment_that_does_not_exist_is_named(
    lab: dict[str, str], tmp_path: Path
) -> None:
    words = ["-m", "engine", "import", "mlflow", f"sqlite:///{tmp_path}/x.db", "--experiment", "x"]
    done = subprocess.run(
        [str(PYTHON), *words], env=lab, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 2
    assert "there is no experiment x" in done.stderr
