"""Memory of decompositions on a GPU, and how sure that is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.gpus import GPUS
from engine.interface.trial import Source
from engine.prediction.probe import predict_trial
from engine.script.machine import pretended_machine
from engine.tests.shared import slow, small_workload
from engine.traces.tracer import trace
from engine.tracing.decompositions import workspace_bytes
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.unsure import peak_interval

pytestmark = pytest.mark.usefixtures("small_models")

SVD = torch.ops.aten._linalg_svd.default
EIGH = torch.ops.aten._linalg_eigh.default
QR = torch.ops.aten.linalg_qr.default
LEAST_SQUARES = torch.ops.aten.linalg_lstsq.default


@pytest.mark.parametrize(
    ("func", "shape", "expected"),
    [
        (SVD, (40, 10), 4 * (40 * 10 + 4 * 100 + 70 + 262 * 40)),
        (SVD, (10, 40), 4 * (40 * 10 + 4 * 100 + 70 + 262 * 40)),
        (EIGH, (10, 10), 4 * (200 + 60 + 1)),
        (QR, (10, 10), 4 * 33 * 10),
        (LEAST_SQUARES, (40, 10), 4 * (40 * 10 + 33 * 10)),
        (torch.ops.aten.mm.default, (10, 10), 0),
    ],
)
def test_workspaces_are_as_large_as_those_of_lapack(
    func: object, shape: tuple[int, int], expected: int
) -> None:
    assert workspace_bytes(func, (torch.zeros(shape),)) == expected


@pytest.mark.parametrize(
    ("optimizer", "source"),
    [
        ("galore", Source.COMPUTED),
        slow("galore-8bit", Source.COMPUTED),
        slow("soap", Source.COMPUTED),
        ("apollo", Source.PREDICTED),
        slow("shampoo", Source.PREDICTED),
        ("adamw", Source.PREDICTED),
    ],
)
def test_a_peak_with_a_decomposition_is_computed(optimizer: str, source: Source) -> None:
    gpu = GPUS["a100-80gb"]
    workload = small_workload("bert", optimizer=optimizer)
    step = trace(workload, 1, cuda_behaviour(gpu.compute_capability))
    trial = predict_trial(workload, gpu, step)
    lower, higher = peak_interval(step)
    assert trial.source is source
    assert bool(higher) == (source is Source.COMPUTED)
    assert 0 <= lower <= higher


@pytest.mark.longer
def test_a_decomposition_below_the_peak_leaves_it_predicted() -> None:
    """Where activations decide, no workspace matters."""
    gpu = GPUS["a100-80gb"]
    workload = small_workload("bert", optimizer="galore")
    step = trace(workload, 512, cuda_behaviour(gpu.compute_capability))
    assert peak_interval(step) == (0, 0)
    assert predict_trial(workload, gpu, step).source is Source.PREDICTED


@pytest.mark.parametrize("left", [(40, 10), (10, 40), (3, 40, 10)])
@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd"])
def test_least_squares_have_the_sizes_of_real_ones(left: tuple[int, ...], driver: str) -> None:
    def solve() -> Any:
        return torch.linalg.lstsq(torch.randn(left), torch.randn(*left[:-1], 6), driver=driver)

    real = solve()
    with pretended_machine(cuda_behaviour(8.6), GPUS["a10"]):
        found = solve()
    for one, other in zip(found, real, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
    assert found.solution.stride() == real.solution.stride()
