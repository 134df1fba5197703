"""Training scripts traced unchanged, each in a fork: what is predicted, and what is told if not."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
import torch

from engine.cli.main import main
from engine.core.errors import EngineError, InvalidInput
from engine.script import program_trace
from engine.script.batch_sizes import trace_script_at_every_batch_size
from engine.script.factory import ScriptFailed
from engine.script.process import scratch
from engine.script.program import Program
from engine.script.request import ScriptRequest
from engine.script.tests.scripts import A10, real
from engine.script.trace import (
    CannotTrace,
    found_loaders,
    trace_script,
)
from engine.script_analysis import predict_script
from engine.tests.shared import slow

LOOP = """
import argparse, os, sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=int(os.environ.get("BATCH", 8)))
parser.add_argument("--epochs", type=int, default=2)
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"
data = TensorDataset(torch.randn(64, 64), torch.randn(64, 64))
loader = DataLoader(data, args.batch_size, shuffle=True, num_workers=2)
{before}
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
{made}
for epoch in range(args.epochs):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        {last}
"""


def loop(
    folder: Path,
    last: str = "pass",
    *,
    before: str = "",
    made: str = "",
    arguments: tuple[str, ...] = (),
    flag: str | None = "--batch-size",
    variable: str | None = None,
) -> Program:
    path = folder / "train.py"
    path.write_text(LOOP.format(last=last, before=before, made=made))
    return Program.of(path, arguments, flag, variable)


class TestTheTrace:
    @pytest.mark.longer
    def test_it_equals_a_real_run_to_the_byte(self, tmp_path: Path) -> None:
        program = loop(tmp_path, "print(loss.item())")
        trial = real(program, 16)
        peak, breakdown = trace_script(program, 16, None).peak_by_category()
        assert peak == trial.peak_allocated_bytes
        assert breakdown == trial.breakdown
        assert trial.step_seconds

    @pytest.mark.slow
    def test_two_traces_give_every_batch_size(self, tmp_path: Path) -> None:
        program = loop(tmp_path)
        traces = trace_script_at_every_batch_size(program, A10, pytest.fail)
        assert traces.at(37).sizes == trace_script(program, 37, A10).sizes

    @pytest.mark.longer
    def test_batches_are_full_however_little_data_there_is(self, tmp_path: Path) -> None:
        traces = trace_script_at_every_batch_size(loop(tmp_path), None, pytest.fail)
        assert traces.at(1000).peak_by_category()[0] > traces.at(500).peak_by_category()[0] * 1.5

    @pytest.mark.slow
    def test_so_are_those_of_a_real_run(self, tmp_path: Path) -> None:
        program = loop(tmp_path)
        peak, _ = trace_script(program, 1000, None).peak_by_category()
        assert real(program, 1000).peak_allocated_bytes == peak

    @pytest.mark.longer
    @pytest.mark.parametrize(
        ("flag", "variable"), [slow("--batch-size", None), (None, "BATCH"), (None, None)]
    )
    def test_the_batch_size_is_set_in_three_ways(
        self, tmp_path: Path, flag: str | None, variable: str | None
    ) -> None:
        program = loop(tmp_path, flag=flag, variable=variable)
        if program.automatic:
            program, own = found_loaders(program, A10)
            assert own == 8
        expected = trace_script(loop(tmp_path), 12, A10)
        assert trace_script(program, 12, A10).sizes == expected.sizes

    def test_the_loader_that_feeds_the_steps_is_told_from_others(self, tmp_path: Path) -> None:
        other = "other = DataLoader(TensorDataset(torch.randn(9, 9)), 3); next(iter(other))"
        program, own = found_loaders(loop(tmp_path, before=other, flag=None), A10)
        assert (program.loaders, own) == ((0,), 8)

    @pytest.mark.longer
    def test_optimizers_take_turns(self, tmp_path: Path) -> None:
        """A step ends when the last of them has stepped: three times the first, once the second."""
        made = "second = torch.optim.SGD([torch.ones(7, requires_grad=True)]); turn = 0"
        last = "turn += 1; second.step() if turn % 3 == 0 else torch.ones(9)"
        trace = trace_script(loop(tmp_path, last, made=made), 4, None)
        names = [operation.name for operation in trace.operations]
        assert sum(name == "aten.ones" for name in names) == 2
        assert sum(name == "aten.relu" for name in names) == 3

    @pytest.mark.longer
    def test_an_unused_optimizer_is_not_waited_for(self, tmp_path: Path) -> None:
        made = "unused = torch.optim.SGD([torch.ones(7, requires_grad=True)])"
        assert trace_script(loop(tmp_path, made=made), 4, None).operations

    @pytest.mark.longer
    def test_steps_that_grow_are_told(self, tmp_path: Path) -> None:
        program = loop(tmp_path, "kept.append(loss)", made="kept = []")
        assert not trace_script(program, 2, None).caveats[1:]
        program = loop(tmp_path, "kept.append(torch.ones(10**6))", made="kept = []")
        caveat = trace_script(program, 2, None).caveats[1]
        assert caveat.startswith("Steps differ: at batch 2 the tensors of step 3 take")

    def test_evaluation_is_told(self, tmp_path: Path) -> None:
        made = "evaluation = DataLoader(TensorDataset(torch.ones(9, 64)), 3)"
        caveat = trace_script(loop(tmp_path, made=made), 2, None).caveats[1]
        assert caveat.startswith("The script also evaluates")

    @pytest.mark.slow
    def test_an_evaluation_between_steps_does_not_feed_them(self, tmp_path: Path) -> None:
        made = "held_out = DataLoader(TensorDataset(torch.ones(96, 64)), 32)"
        last = "with torch.no_grad(): [model(one.to(device)) for (one,) in held_out]"
        program = loop(tmp_path, f"\n        {last}", made=made, flag=None)
        program, own = found_loaders(program, A10)
        assert (program.loaders, own) == ((0,), 8)
        trace = trace_script(program, 8, A10)
        assert trace.micro_batches == 1
        assert any("evaluates between its first steps" in one for one in trace.caveats)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "item",
        [
            slow("self.x[i] + torch.from_numpy(numpy.ones(64, numpy.float32)), torch.ones(64)"),
            "torch.full((64,), self.x[i].sum().item()), self.y[i] * torch.rand(64)",
        ],
    )
    def test_data_may_mix_what_was_made_before_with_what_is_loaded(
        self, tmp_path: Path, item: str
    ) -> None:
        before = (
            "import numpy\nclass Data(torch.utils.data.Dataset):\n"
            "    def __init__(self): self.x, self.y = torch.randn(64, 64), torch.rand(64, 1)\n"
            f"    def __len__(self): return 64\n    def __getitem__(self, i): return {item}\n"
            "loader = DataLoader(Data(), args.batch_size, shuffle=True)"
        )
        program = loop(tmp_path, before=before)
        expected = trace_script(loop(tmp_path), 16, None)
        assert trace_script(program, 16, None).peak_by_category() == expected.peak_by_category()

    @pytest.mark.slow
    def test_where_only_even_batches_are_taken_two_give_all_of_them(self, tmp_path: Path) -> None:
        program = loop(tmp_path, "assert len(x) % 2 == 0, 'odd'")
        said: list[str] = []
        traces = trace_script_at_every_batch_size(program, A10, said.append)
        assert said == ["train.py takes no batch of 3, so only even ones are tried."]
        assert said[0] in traces.at(16).caveats
        assert traces.at(16).batch_multiple == 2
        assert traces.at(16).slopes
        assert traces.at(16).sizes == trace_script(program, 16, A10).sizes
        with pytest.raises(CannotTrace, match="AssertionError: odd"):
            traces.at(17)

    def test_a_stream_of_data_has_no_end(self, tmp_path: Path) -> None:
        before = (
            "class Stream(torch.utils.data.IterableDataset):\n"
            "    def __iter__(self):\n"
            "        while True: yield torch.ones(64), torch.ones(64)\n"
            "loader = DataLoader(Stream(), args.batch_size)"
        )
        assert trace_script(loop(tmp_path, before=before), 16, None).operations

    @pytest.mark.slow
    def test_lengths_computed_from_values_that_nobody_knows_are_refused(
        self, tmp_path: Path
    ) -> None:
        last = "kept = torch.ones(100, 1000)[loss.long():].clone()"
        with pytest.raises(CannotTrace, match=r"train\.py, line 25"):
            trace_script(loop(tmp_path, last), 2, None)

    def test_modules_beside_the_script_are_found(self, tmp_path: Path) -> None:
        (tmp_path / "beside.py").write_text("import torch\nhalf = torch.ones(3) / 2\n")
        program = loop(tmp_path, "x * beside.half.sum()", before="import beside")
        assert trace_script(program, 2, None).operations


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("before", "last", "says"),
        [
            ("raise KeyError('x')", "pass", r"train\.py, line 14 \(raise KeyError.*KeyError: 'x'"),
            ("sys.exit('no data')", "pass", r"ended with an error at train\.py, line 14.*no data"),
            ("sys.exit()", "pass", "ended without a training step: no"),
            ("", "sys.exit() if epoch == 0 and len(x) else 0", "ended after 1 of the 3 training"),
            ("os._exit(5)", "pass", "ended its process with status 5"),
            ("import subprocess; subprocess.run(['torchrun', 'x'])", "pass", r"\(torchrun\)"),
        ],
    )
    def test_a_script_that_does_not_train_is_told_why(
        self, tmp_path: Path, before: str, last: str, says: str
    ) -> None:
        with pytest.raises(EngineError, match=says):
            trace_script(loop(tmp_path, last, before=before), 2, None)

    def test_wrong_arguments_are_told_in_the_scripts_own_words(self, tmp_path: Path) -> None:
        program = loop(tmp_path, arguments=("--wrong",))
        with pytest.raises(ScriptFailed, match=r"error: unrecognized arguments: --wrong"):
            trace_script(program, 2, None)

    @pytest.mark.longer
    def test_a_flag_that_changes_nothing_is_told(self, tmp_path: Path) -> None:
        program = loop(tmp_path, before="args.batch_size = 4; loader = DataLoader(data, 4)")
        with pytest.raises(ScriptFailed, match="--batch-size does not set its batch size"):
            trace_script_at_every_batch_size(program, None, pytest.fail)

    def test_without_a_loader_the_flag_is_asked_for(self, tmp_path: Path) -> None:
        program = loop(tmp_path, before="loader = [(torch.ones(4, 64),) * 2] * 9", flag=None)
        with pytest.raises(InvalidInput, match=r"no DataLoader feeds the steps .*--batch-flag"):
            found_loaders(program, None)

    @pytest.mark.longer
    def test_what_takes_too_long_is_stopped_and_its_line_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(program_trace, "MAX_WAIT_SECONDS", 0.5)
        program = loop(tmp_path, before="while True: pass")
        with pytest.raises(ScriptFailed, match=r"the first training step.*train\.py, line 14"):
            trace_script(program, 2, None)

    @pytest.mark.slow
    @pytest.mark.parametrize("size", ["10 + int(loss * 100)", "1 + 9 * (loss.item() > 0.5)"])
    def test_a_value_that_decides_is_told_with_its_line(self, tmp_path: Path, size: str) -> None:
        program = loop(tmp_path, f"torch.ones({size})")
        with pytest.raises(CannotTrace, match=r"train\.py, line 25"):
            trace_script(program, 2, None)
        with pytest.raises(CannotTrace, match=r"train\.py, line 25"):
            trace_script_at_every_batch_size(program, None, pytest.fail)

    @pytest.mark.slow
    def test_a_value_that_ends_the_run_decides_nothing(self, tmp_path: Path) -> None:
        program = loop(tmp_path, "assert loss < 100, 'diverged'")
        traces = trace_script_at_every_batch_size(program, None, pytest.fail)
        assert traces.at(37).sizes == trace_script(program, 37, None).sizes


class TestNothingStaysBehind:
    def test_no_files_no_output_no_settings(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        work = tmp_path / "work"
        work.mkdir()
        (work / "log.txt").write_text("kept")
        monkeypatch.chdir(work)
        monkeypatch.setattr(scratch, "temporary_folder", lambda: "/nowhere")  # this one is in it
        before = (
            "os.makedirs('out'); open('out/a', 'w').write('a'); print(open('out/a').read());"
            "open('log.txt', 'a').write(' more'); assert open('log.txt').read() == 'kept more';"
            "torch.set_default_dtype(torch.float64); os.environ['LEFT'] = '1'; os.chdir('/')"
        )
        last = (
            "torch.save(model.state_dict(), 'model.pt'); import numpy; one = numpy.ones(1);"
            f"one.tofile({str(work / 'raw')!r}); numpy.save({str(work / 'one')!r}, one);"
            f"assert numpy.fromfile({str(work / 'raw')!r}) == 1"
        )
        trace_script(loop(tmp_path, last, before=before), 2, None)
        assert [path.name for path in work.iterdir()] == ["log.txt"]
        assert (work / "log.txt").read_text() == "kept"
        assert torch.get_default_dtype() is torch.float32
        assert "LEFT" not in os.environ
        assert capfd.readouterr() == ("", "")

    def test_nothing_of_a_real_run_either(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        work = tmp_path / "work"
        work.mkdir()
        monkeypatch.chdir(work)
        monkeypatch.setattr(scratch, "temporary_folder", lambda: "/nowhere")  # this one is in it
        before = "os.makedirs('out'); open('out/a', 'w').write('a')"
        assert real(loop(tmp_path, before=before), 2).fits
        assert list(work.iterdir()) == []

    def test_no_network(self, tmp_path: Path) -> None:
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            before = f"import socket; socket.create_connection({server.getsockname()})"
            with pytest.raises(CannotTrace, match="keeps a script off the network"):
                trace_script(loop(tmp_path, before=before), 2, None)

    def test_sockets_of_this_machine_are_no_network(self, tmp_path: Path) -> None:
        """A loader's workers hand over their tensors by them."""
        name = str(tmp_path / "listener")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(name)
            server.listen()
            before = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})"
            assert trace_script(loop(tmp_path, before=before), 2, None).sizes


class TestTheCommandLine:
    @pytest.mark.slow
    def test_an_optimizer_without_state_is_seen_too(self, tmp_path: Path) -> None:
        made = "optimizer = torch.optim.SGD(model.parameters())"
        request = ScriptRequest.parse(
            loop(tmp_path, made=made), {"gpu": "a10", "current_batch_size": 8}
        )
        caveats = predict_script(request, lambda _: None).caveats
        assert "SGD" in caveats[0]
        assert not any("No torch.optim.Optimizer" in caveat for caveat in caveats)

    @pytest.mark.slow
    def test_a_search_keeps_to_batches_that_the_script_takes(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = loop(tmp_path, "assert len(x) % 2 == 0, 'odd'").path
        given = [path, "--batch-flag", "--batch-size", "--current-batch-size", "16", "--gpu", "a10"]
        assert main(["analyze", *given, "--memory-limit", "1GiB", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert all(trial["batch_size"] % 2 == 0 for trial in found["trials"])
        assert found["trials"][-1]["batch_size"] > 16
        assert any("takes no batch of 3" in caveat for caveat in found["caveats"])

    @pytest.mark.longer
    def test_one_batch_size_is_predicted(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = loop(tmp_path, "print('a step')").path
        given = [path, "--batch-flag", "--batch-size", "--batch-size", "16", "--gpu", "a10"]
        assert main(["predict", *given, "--json", "--", "--epochs", "1"]) == 0
        out, err = capsys.readouterr()
        found = json.loads(out)
        assert (found["batch_size"], found["fits"]) == (16, True)
        assert "a step" not in err

    @pytest.mark.slow
    def test_speed_counts_the_samples_of_all_micro_batches(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "train.py"
        code = LOOP.replace("optimizer.zero_grad()", "seen = globals().get('seen', 0) + 1")
        code = code.replace("optimizer.step()", "if seen % 4 == 0: optimizer.step()")
        path.write_text(code.format(last="pass", before="", made=""))
        assert main(["predict", str(path), "--gpu", "a10", "--json", "--", "--epochs", "9"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["samples_per_second"] * found["step_seconds"] == pytest.approx(4 * 8)

    @pytest.mark.slow
    @pytest.mark.parametrize("given", [[], slow(["--batch-flag", "--batch-size"])])
    def test_without_a_batch_size_its_own_is_predicted(
        self, tmp_path: Path, given: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = loop(tmp_path).path
        assert main(["predict", path, *given, "--gpu", "a10", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["batch_size"] == 8
        assert found["caveats"][0].startswith("3 steps were traced.")

    def test_where_no_loader_tells_its_batch_size_it_has_to_be_said(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "train.py"
        path.write_text(LOOP.format(last="pass", before="loader = [(data[:4])]", made=""))
        assert main(["predict", str(path), "--batch-flag", "batch-size", "--gpu", "a10"]) == 2
        assert "error: --batch-size: no DataLoader tells" in capsys.readouterr().err

    @pytest.mark.longer
    @pytest.mark.parametrize(
        ("given", "status", "says"),
        [
            (["--gpu", "t4"], 0, "Batch 8 of train.py fits on NVIDIA T4"),
            slow(
                ["--gpu", "t4", "--batch-size", "2", "--min-share-of-recommended-speed", "0.9"],
                1,
                "Batch 2 of train.py is too slow on NVIDIA T4",
            ),
        ],
    )
    def test_a_script_is_checked(
        self,
        tmp_path: Path,
        given: list[str],
        status: int,
        says: str,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        assert main(["check", loop(tmp_path).path, *given]) == status
        assert says in capsys.readouterr().out

    @pytest.mark.slow
    def test_the_answer_can_be_repeated(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = loop(tmp_path).path
        given = [path, "--gpu", "t4", "--memory-limit", "1GiB", "--batch-multiple", "1024"]
        assert main(["analyze", *given, "--json", "--", "--epochs", "3"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["model_name"] == "train.py"
        assert found["current_batch_size"] == 8
        assert found["certificate"][0].endswith("-- --epochs 3")

    @pytest.mark.slow
    def test_a_file_describes_it(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        loop(tmp_path)
        file = tmp_path / "check.toml"
        file.write_text(
            'script = "train.py"\narguments = ["--epochs", "1"]\nbatch_flag = "--batch-size"\n'
            'batch_size = 16\ngpu = "t4"\n'
        )
        assert main(["check", "--config", str(file)]) == 0
        assert "Batch 16 of train.py fits on NVIDIA T4" in capsys.readouterr().out
