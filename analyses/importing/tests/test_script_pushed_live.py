"""A script of one's own, from the command line to the lab and back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from analyses.models import Analysis, TrainingRun
from analyses.tests.factories import make_training
from engine.records.record import TrainingRecord
from memorymark_site.accounts import tokens
from memorymark_site.accounts.models import Scope

pytestmark = [pytest.mark.database, pytest.mark.slow, pytest.mark.torch]

SCRIPT = """
import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(512, {width}), nn.ReLU(), nn.Linear({width}, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
loader = torch.utils.data.DataLoader(torch.randn(4096, 512), batch_size=32)
for batch in loader:
    loss = model(batch.to(device)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
COMMAND = Path(sys.executable).with_name("memorymark")


def _run(words: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [str(COMMAND), *words],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_script_is_pushed_edited_and_verified(
    live_server: LiveServer, member: User, client: Client, tmp_path: Path
) -> None:
    environment = {
        "MEMORYMARK_URL": live_server.url,
        "MEMORYMARK_TOKEN": tokens.create(member, "a script", Scope.WRITE, 7)[1],
        "MEMORYMARK_OUTBOX": str(tmp_path / "outbox"),
    }
    push = ["analyze", "train.py", "--gpu", "a10", "--push"]
    for width in (256, 256, 512):
        (tmp_path / "train.py").write_text(SCRIPT.format(width=width))
        assert "pushed: " in _run(push, tmp_path, environment)
    edited, again, first = Analysis.objects.all()
    assert {edited.model, again.model, first.model} == {"train.py"}
    assert first.program_hash == again.program_hash != edited.program_hash
    assert first.workload_key == again.workload_key != edited.workload_key

    run = TrainingRecord.parse(make_training(edited).record).to_dict()
    TrainingRun.objects.all().delete()
    run |= {"batch_size": edited.recommended_batch_size, "analysis_id": None}
    run |= {"program": "train.py", "program_hash": edited.program_hash}
    record = TrainingRecord.parse(run)
    (tmp_path / "runs.jsonl").write_text(json.dumps(record.to_dict()))
    assert "sent 1, refused 0" in _run(["push", "runs.jsonl"], tmp_path, environment)
    assert TrainingRun.objects.get().analysis == edited
    assert TrainingRun.objects.get().verifies
    client.force_login(member)
    page = client.get(f"/{edited.pk}/").content.decode()
    assert "Verified" in page
    assert "memorymark analyze train.py --gpu a10" in page
