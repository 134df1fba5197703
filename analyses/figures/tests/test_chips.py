from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from analyses.figures.chips import chips_of, name_of
from analyses.models import Status
from analyses.notifications.message import of_ended
from analyses.pages.analysis.sharing import create_link
from analyses.tests.factories import make_analysis, make_request, make_result
from analyses.tests.first_version import NEW_IN_WORKLOADS

A10 = "NVIDIA A10"

LLAMA: dict[str, Any] = {
    "model": "llama-3-8b", "gpu": "a100-80gb", "precision": "bf16-mixed", "sequence_length": 4096,
    "lora_rank": 16, "gradient_checkpointing": True, "gradient_accumulation": 4,
    "parallelism": "fsdp", "world_size": 8, "software": "transformers=4.51.3",
}  # fmt: skip
"""Everything that decides an analysis, set."""

CHIPS = [
    "bf16-mixed", "4,096 tokens", "LoRA 16", "checkpointing", "accumulation 4", "FSDP", "8 GPUs",
    "transformers 4.51.3", "NVIDIA A100 80GB",
]  # fmt: skip


def test_what_decides_an_analysis_is_shown_as_chips() -> None:
    assert chips_of(make_request(**LLAMA), "NVIDIA A100 80GB") == CHIPS


@pytest.mark.parametrize(
    ("model", "size"), [("bert", "128 tokens"), ("resnet", "224 px"), ("t5-small", "512 tokens")]
)
def test_usual_settings_are_left_out(model: str, size: str) -> None:
    assert chips_of(make_request(model=model), A10) == ["fp32", size, A10]


@pytest.mark.parametrize(
    ("changed", "chip"),
    [
        ({"task": "token-classification"}, "token classification"),
        ({"optimizer": "adamw-8bit"}, "adamw-8bit"),
        ({"frozen_backbone": True}, "frozen backbone"),
        ({"attention": "eager"}, "eager attention"),
        ({"mode": "eval"}, "eval mode"),
        ({"global_batch_size": 64}, "global batch 64"),
        ({"memory_limit_bytes": 8 * 2**30}, "8.00 GiB limit"),
    ],
)
def test_a_setting_that_is_not_usual_has_a_chip(changed: dict[str, Any], chip: str) -> None:
    assert chips_of(make_request(**changed), A10) == ["fp32", "128 tokens", chip, A10]


def test_layers_recomputed_by_turns_have_a_chip_beside_checkpointing() -> None:
    chips = chips_of(make_request(gradient_checkpointing=True, checkpoint_every=2), A10)
    assert chips[-3:-1] == ["checkpointing", "1 layer in 2 recomputed"]


def test_requests_of_the_first_version_have_chips_too() -> None:
    stored = {name: value for name, value in make_request().items() if name not in NEW_IN_WORKLOADS}
    assert chips_of(stored, A10) == ["fp32", "128 tokens", A10]


@pytest.mark.longer
@pytest.mark.django_db
def test_chips_stand_wherever_an_analysis_is_named(client: Client, member: User) -> None:
    client.force_login(member)
    request = make_request(**LLAMA | {"software": ""})
    analysis, other = (
        make_analysis(member, Status.SUCCEEDED, make_result(gpu="a100-80gb"), request=request)
        for _ in range(2)
    )
    detail = reverse("analyses:detail", args=[analysis.pk])
    both = f"?ids={analysis.pk},{other.pk}"
    _, token = create_link(analysis, member, 7)
    addresses = [
        detail,
        reverse("analyses:advice", args=[analysis.pk]),
        reverse("analyses:labels", args=[analysis.pk]),
        reverse("analyses:list"),
        reverse("analyses:compare") + both,
        reverse("analyses:overview"),
        reverse("analyses:selection") + f"{both}&action=tag",
        reverse("analyses:shared", args=[token]),
    ]
    for address in addresses:
        html = client.get(address, follow=True).content.decode()
        for chip in ("bf16-mixed", "4,096 tokens", "LoRA 16", "checkpointing", "FSDP"):
            assert f"<li>{chip}</li>" in html, (address, chip)
    assert f"<title>{name_of(analysis)} · #{analysis.pk}" in client.get(detail).content.decode()
    assert name_of(analysis) in of_ended(analysis).subject
