"""What a prediction leaves out is said where it matters."""

from __future__ import annotations

import pytest

from engine.prediction.analysis import analyze_predicted
from engine.request import AnalysisRequest
from engine.tests.conftest import small_workload

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("small_models")]


@pytest.mark.parametrize(
    ("model", "convolves"),
    [("bert", False), ("resnet", True), ("vit-b", True), ("whisper", True), ("clip", True)],
)
def test_what_convolves_says_that_cudnns_workspaces_are_not_predicted(
    model: str, convolves: bool
) -> None:
    request = AnalysisRequest(
        small_workload(model), "t4", batch_multiple=256, memory_limit_bytes=2**30
    )
    caveats = " ".join(analyze_predicted(request, lambda _: None).caveats)
    assert ("cuDNN's convolution workspaces are not predicted" in caveats) is convolves
