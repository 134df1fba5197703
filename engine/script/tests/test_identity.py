"""The hash of a script: of its step, wherever and on whatever GPU it is traced."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.core.choices import Goal
from engine.core.errors import InvalidInput
from engine.interface.program import ProgramRequest, TracedProgram, read_request, workload_request
from engine.interface.request import AnalysisRequest
from engine.script.batch_sizes import trace_script_at_every_batch_size
from engine.script.factory import Factory
from engine.script.identity import hash_of_source, hash_of_traces
from engine.script.program import Program
from engine.script.request import ScriptRequest
from engine.script.tests.scripts import ADAM, LINEAR, linear, written
from engine.tests.shared import slow
from engine.tracing.lowering import cuda_behaviour

ATTENTION = """
import torch
from torch import nn

def make_step(batch_size):
    model = nn.TransformerEncoderLayer({width}, 4, {width}, batch_first=True).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr={rate})
    x = torch.randn(batch_size, 16, {width}, device="cuda")
    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            model(x).square().mean().backward()
        optimizer.step()
    return step
"""
HASH = "0" * 64


def _hash(factory: Factory, capability: float = 8.6) -> str:
    traces = trace_script_at_every_batch_size(factory, cuda_behaviour(capability), print)
    return hash_of_traces(traces, 16)


@pytest.mark.torch
class TestHash:
    """Edits of a script that change its hash, and those that do not."""

    @pytest.mark.longer
    @pytest.mark.parametrize("capability", [7.5, slow(9.0)])
    def test_the_same_step_has_the_same_hash_everywhere(
        self, folder: Path, capability: float
    ) -> None:
        first = _hash(written(folder, ATTENTION.format(width=64, rate=1e-3), "first"))
        renamed = written(folder, "# edited\n" + ATTENTION.format(width=64, rate=1e-4), "second")

        assert len(first) == 64
        assert first == _hash(renamed, capability)

    @pytest.mark.longer
    def test_an_edited_step_has_another_hash(self, folder: Path) -> None:
        edits = [
            linear(folder),
            written(folder, LINEAR.format(optimizer="SGD(model.parameters())", last="pass"), "b"),
            written(
                folder, LINEAR.format(optimizer=ADAM, last="pass").replace("relu", "tanh"), "c"
            ),
            written(folder, LINEAR.format(optimizer=ADAM, last="pass").replace("64", "96"), "d"),
        ]
        assert len({_hash(edit) for edit in edits}) == len(edits)

    def test_what_cannot_be_traced_is_hashed_by_its_text(self, tmp_path: Path) -> None:
        texts = {"one.py": "pass", "two.py": "pass", "three.py": "edited"}
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
        one, two, three = (hash_of_source(Program.of(tmp_path / name), []) for name in texts)

        assert one == two != three


class TestRequest:
    """A script as a lab stores it."""

    def test_it_survives_json(self) -> None:
        program = TracedProgram("train.py", HASH, ("train.py",), ("--lr", "1"))
        request = ProgramRequest(program, 4, gpu="a10", current_batch_size=32)

        assert read_request(request.to_dict()) == request
        assert (request.goal, request.gradient_accumulation) == (Goal.BATCH, 4)
        assert request.subject.program_name == "train.py"

    def test_a_model_has_no_program(self) -> None:
        request = read_request({"model": "bert", "gpu": "a10"})

        assert isinstance(request, AnalysisRequest)
        assert request.subject.program_name == ""
        assert request.subject.name == "bert"

    def test_its_command_has_its_name_and_what_was_changed(self) -> None:
        program = TracedProgram("my net", HASH, ("train.py", "--batch-flag=b"), ("--x", "a b"))
        request = ProgramRequest(program, gpu="a10", current_batch_size=32, batch_multiple=8)

        assert request.analyze_command == (
            "memorymark analyze train.py --batch-flag=b --gpu a10 --current-batch-size 32 "
            "--batch-multiple 8 --push --name 'my net' -- --x 'a b'"
        )
        assert request.plan_command.startswith("memorymark plan train.py --batch-flag=b --gpu a10")
        assert ProgramRequest(TracedProgram("live", HASH), gpu="a10").analyze_command == ""

    def test_nothing_of_it_is_run_by_a_lab(self) -> None:
        program = TracedProgram("train.py", HASH, ("train.py",))
        stored = ProgramRequest(program, gpu="a10", current_batch_size=32).to_dict()

        with pytest.raises(InvalidInput, match="never runs scripts") as refused:
            workload_request(stored)
        assert "run `memorymark analyze train.py" in refused.value.fields["program"]
        assert workload_request({"model": "bert", "gpu": "a10"}).gpu == "a10"

    def test_a_name_is_checked_before_the_work(self, tmp_path: Path) -> None:
        (tmp_path / "bert.py").write_text("")
        script = ScriptRequest.parse(Program.of(tmp_path / "bert.py"), {"gpu": "a10"})

        assert script.lab_name() == "bert.py"
        with pytest.raises(InvalidInput, match="name of a model"):
            script.lab_name("bert")
