"""A recorder of shards hears of storages that are emptied and filled again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from engine.parallel.fsdp import recording_shards
from engine.parallel.group_recorder import GroupRecorder

pytestmark = pytest.mark.torch


def _recorder() -> GroupRecorder:
    training = SimpleNamespace(model=torch.nn.Linear(4, 4), optimizer=None, phase="forward")
    return GroupRecorder(training, 1, None, lambda: None)


def test_a_storage_is_counted_while_it_is_filled() -> None:
    with FakeTensorMode():
        recorder = _recorder()
        before = recorder.live_bytes
        with recorder, recording_shards(lambda: recorder):
            gathered = torch.empty(256)
            assert recorder.live_bytes == before + 1024
            gathered.untyped_storage().resize_(0)
            assert recorder.live_bytes == before
            gathered.untyped_storage().resize_(1024)
            assert recorder.live_bytes == before + 1024
            del gathered
            assert recorder.live_bytes == before


def test_a_storage_that_no_operator_made_is_not_counted() -> None:
    """PyTorch 2.14 resizes those of the fakes that it makes of real tensors."""
    with FakeTensorMode():
        recorder = _recorder()
        before = recorder.live_bytes
        unseen = torch.empty(256, device="meta")
        with recorder, recording_shards(lambda: recorder):
            for size in (0, 1024):
                unseen.untyped_storage().resize_(size)
            assert recorder.live_bytes == before
            del unseen
            kept = [torch.empty(256) for _ in range(100)]
            assert recorder.live_bytes == before + 1024 * len(kept)
