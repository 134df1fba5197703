"""Losses of tasks whose models have none of their own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from engine.models.tasks import Task
from engine.step.losses import loss_for

pytestmark = pytest.mark.torch


def test_a_pair_of_like_texts_costs_nothing_among_unlike_ones() -> None:
    tokens = torch.eye(4)[[0, 1, 2, 0, 1, 2]].unsqueeze(1).expand(6, 5, 4).clone()
    tokens[-1, -1] = 100  # padding, which is not counted

    def loss_of(tokens: torch.Tensor) -> float:
        halves = iter(tokens.chunk(2))

        def model(**batch: torch.Tensor) -> SimpleNamespace:
            return SimpleNamespace(last_hidden_state=next(halves))

        mask = torch.ones(6, 5, dtype=torch.int64)
        mask[-1, -1] = 0
        batch = {"input_ids": torch.zeros(6, 5, dtype=torch.int64), "attention_mask": mask}
        return loss_for(Task.SENTENCE_EMBEDDING)(model, batch).item()

    assert loss_of(tokens) < 1e-6
    assert loss_of(tokens[[0, 1, 2, 1, 2, 5]]) > 1


def test_a_reward_is_higher_for_the_chosen_text() -> None:
    def loss_of(chosen: float, rejected: float) -> float:
        def model(**batch: torch.Tensor) -> SimpleNamespace:
            return SimpleNamespace(logits=torch.tensor([[chosen], [rejected]], dtype=torch.float32))

        return loss_for(Task.REWARD_MODELLING)(model, {}).item()

    assert loss_of(1, 1) == pytest.approx(0.6931, abs=1e-4)
    assert loss_of(5, -5) < 0.001 < 1 < loss_of(-5, 5)
