"""A person's own training code: found, measured in processes of its own, traced where it can be."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import engine
from engine.cli.main import main
from engine.errors import DoesNotFit, InvalidInput, MeasurementFailed
from engine.events import Event, Log
from engine.examples import my_training
from engine.measurement import cpu, parent
from engine.measurement.protocol import DeviceFacts, TrialOrder
from engine.own import measured as own_measured
from engine.own.factory import Factory, OwnCodeFailed
from engine.own.request import OwnCodeRequest
from engine.own.trace import CannotTrace, trace_own, trace_own_at_every_batch_size
from engine.request import AnalysisRequest
from engine.result import AnalysisResult, Source, Trial
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Trace

EXAMPLE = "engine.examples.my_training:make_step"
A10 = cuda_behaviour(8.6)
CPU = DeviceFacts("cpu", "CPU (test)", 2**36, 0, 0.0)

LINEAR = """
import torch
from torch import nn

def make_step(batch_size):
    model = nn.Linear(64, 64)
    optimizer = torch.optim.{optimizer}
    x = torch.randn(batch_size, 64)
    def step():
        optimizer.zero_grad()
        loss = model(x).relu().sum()
        loss.backward()
        optimizer.step()
        {last}
    return step
"""
ADAM = "AdamW(model.parameters())"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which modules are found, and forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def written(folder: Path, code: str, name: str = "mine") -> Factory:
    (folder / f"{name}.py").write_text(code)
    return Factory.of(f"{name}:make_step")


def linear(folder: Path, optimizer: str = ADAM, last: str = "pass") -> Factory:
    return written(folder, LINEAR.format(optimizer=optimizer, last=last))


class TestTheFactory:
    """How it is named and loaded."""

    def test_a_function_of_a_module_is_known_by_its_name(self) -> None:
        assert Factory.of(my_training.make_step).name == EXAMPLE
        assert Factory.of(EXAMPLE).load() is my_training.make_step

    @pytest.mark.parametrize(
        "name",
        ["", "mine", "mine.py:make", "mine:", ":make", "a b:c", "m:f()", "../m:f", "x" * 999],
    )
    def test_what_is_no_name_is_told_how_to_write_one(self, name: str) -> None:
        with pytest.raises(InvalidInput, match="write module:function"):
            Factory.of(name)

    def test_a_function_that_no_other_process_can_import_is_refused(self) -> None:
        def nested(batch_size: int) -> object: ...

        for function in (nested, lambda batch_size: None, my_training.SmallConvNet.forward):
            with pytest.raises(InvalidInput, match="top level of a module"):
                Factory.of(function)  # type: ignore[arg-type]  # that is what is tested

    def test_a_missing_module_is_told_where_it_is_looked_for(self) -> None:
        with pytest.raises(InvalidInput, match=r"no module mine_not.*holds mine_not\.py"):
            Factory.of("mine_not:make_step")

    def test_a_missing_function_is_named(self, folder: Path) -> None:
        factory = written(folder, "make_steps = 1")
        with pytest.raises(InvalidInput, match="mine has no function make_step"):
            factory.load()

    @pytest.mark.parametrize("code", ["x = 1 / 0", "import sys; sys.exit(0)", "def ("])
    def test_a_module_that_fails_is_told_from_a_missing_one(self, folder: Path, code: str) -> None:
        with pytest.raises(OwnCodeFailed, match="importing mine failed"):
            written(folder, code).load()

    def test_importing_it_must_not_start_an_analysis(self, folder: Path) -> None:
        code = "import engine\nengine.analyze('mine:make_step', gpu='a10')\n"
        with pytest.raises(InvalidInput, match=r"under `if __name__ == \"__main__\":`"):
            written(folder, code).load()

    def test_a_script_may_hand_over_its_own_function(self, folder: Path) -> None:
        code = LINEAR.format(optimizer=ADAM, last="pass") + (
            "if __name__ == '__main__':\n"
            "    import engine\n"
            "    print(engine.analyze(make_step, gpu='t4', batch_multiple=1024).verdict)\n"
        )
        (folder / "script.py").write_text(code)
        done = subprocess.run(
            [sys.executable, str(folder / "script.py")],
            capture_output=True,
            text=True,
            timeout=120,
            env={"PYTHONPATH": str(Path(engine.__file__).parent.parent)},
        )
        assert "(predicted)" in done.stdout, done.stderr


class TestTheTrace:
    """What is predicted of code that can be followed, and what is said of code that cannot."""

    def test_it_equals_real_steps_to_the_byte(self, folder: Path) -> None:
        for factory in (Factory.of(EXAMPLE), linear(folder)):
            measured = cpu.run_trial(TrialOrder(factory, 8))
            peak, breakdown = trace_own(factory, 8, None).peak_by_category()
            assert peak == measured.peak_allocated_bytes
            assert breakdown == measured.breakdown

    def test_two_traces_give_every_batch_size(self) -> None:
        at = trace_own_at_every_batch_size(Factory.of(EXAMPLE), A10, pytest.fail)
        whole = trace_own(Factory.of(EXAMPLE), 37, A10)
        assert at(37).sizes == whole.sizes
        assert at(37).replay() == whole.replay()

    def test_categories_are_found_out_without_being_told(self, folder: Path) -> None:
        found = trace_own(linear(folder), 8, None).peak_by_category()[1]
        parameters = 4 * (64 * 64 + 64)
        assert found["parameters"] == parameters
        assert found["gradients"] == parameters
        # Two moments, and a count of steps for the weight and for the bias.
        assert found["optimizer_state"] == 2 * parameters + 2 * 4
        assert found["inputs"] == 8 * 64 * 4

    def test_tensors_are_told_by_the_persons_own_module_names(self) -> None:
        trace = trace_own(Factory.of(EXAMPLE), 4, A10)
        assert {"features.0", "classifier.2"} <= set(trace.modules)

    def test_cudas_defaults_hold(self, folder: Path) -> None:
        """Dropout keeps a mask of bytes, and AdamW runs in foreach kernels."""
        names = [op.name for op in trace_own(Factory.of(EXAMPLE), 8, A10).operations]
        assert "aten.native_dropout" in names
        assert "aten._foreach_sqrt" in names

    def test_a_model_may_be_cast_and_moved(self, folder: Path) -> None:
        code = LINEAR.format(optimizer=ADAM, last="pass")
        half = code.replace("nn.Linear(64, 64)", "nn.Linear(64, 64).to('cpu', torch.bfloat16)")
        half = half.replace("(batch_size, 64)", "(batch_size, 64, dtype=torch.bfloat16)")
        found = trace_own(written(folder, half), 8, A10).peak_by_category()[1]
        assert found["parameters"] == 2 * (64 * 64 + 64)

    @pytest.mark.parametrize(
        ("last", "says"),
        [
            ("print(loss.item())", r"at mine\.py, line 14 \(print\(loss\.item\(\)\)\): .* value"),
            ("loss[loss > 0]", "depends on a tensor's value"),
            ("model.to('cuda')", "cuda"),
            ("torch.autocast('cuda', torch.float16)", "CUDA is not available"),
            ("raise KeyError('x')", "KeyError: 'x'"),
            ("exit(0)", "SystemExit"),
        ],
    )
    def test_code_that_cannot_be_followed_gets_its_line_and_no_number(
        self, folder: Path, last: str, says: str
    ) -> None:
        with pytest.raises(CannotTrace, match=says) as refusal:
            trace_own(linear(folder, last=last), 2, A10)
        assert "nothing is predicted: measure it" in str(refusal.value)

    def test_tensors_made_by_the_import_are_told(self, folder: Path) -> None:
        code = LINEAR.format(optimizer=ADAM, last="w + x") + "w = torch.ones(1)\n"
        with pytest.raises(CannotTrace, match="a tensor that was not made by the factory"):
            trace_own(written(folder, code), 2, A10)

    @pytest.mark.parametrize(
        ("code", "says"),
        [
            ("def make_step(b): pass", "returned a NoneType; it must return a function"),
            ("def make_step(b): return lambda: None", "runs nothing on tensors made by the fact"),
        ],
    )
    def test_a_factory_of_something_else_is_refused(
        self, folder: Path, code: str, says: str
    ) -> None:
        with pytest.raises(OwnCodeFailed, match=says):
            trace_own(written(folder, code), 2, A10)

    def test_steps_that_differ_by_batch_size_are_traced_one_by_one(self, folder: Path) -> None:
        warned: list[str] = []
        code = LINEAR.format(optimizer=ADAM, last="[x + i for i in range(batch_size)]")
        at = trace_own_at_every_batch_size(written(folder, code), A10, warned.append)
        assert at(5).sizes == trace_own(written(folder, code), 5, A10).sizes
        assert "tracing each batch size by itself" in warned[0]

    def test_nothing_stays_behind(self, folder: Path) -> None:
        """No hook, no patch: a model of the caller's own trains on as before."""
        optimizer = importlib.import_module("torch.optim.optimizer")
        kernels = optimizer._get_foreach_kernels_supported_devices
        hooks = list(optimizer._global_optimizer_post_hooks)
        trace_own(Factory.of(EXAMPLE), 2, A10)
        my_training.make_step(2)()
        assert not torch.nn.modules.module._global_parameter_registration_hooks
        assert list(optimizer._global_optimizer_post_hooks) == hooks
        assert optimizer._get_foreach_kernels_supported_devices is kernels


@pytest.mark.slow
class TestMeasured:
    """On the local device, each trial in a fresh process."""

    @pytest.fixture
    def here(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Trials run in this process, for speed; returns the batch sizes tried."""
        tried: list[int] = []

        def measure(order: TrialOrder) -> Trial:
            tried.append(order.batch_size)
            return cpu.run_trial(order)

        monkeypatch.setattr(own_measured, "measure", measure)
        monkeypatch.setattr(own_measured, "record", cpu.record)
        monkeypatch.setattr(own_measured, "local_device", lambda: CPU)
        return tried

    def needed(self, factory: Factory, batch_size: int) -> int:
        return trace_own(factory, batch_size, None).peak_by_category()[0]

    def answer(self, factory: Factory, **given: object) -> AnalysisResult:
        from engine.own.analysis import analyze_own_code

        return analyze_own_code(OwnCodeRequest.parse(factory, given), lambda _: None)

    def test_the_limit_is_certified_in_four_trials(self, here: list[int]) -> None:
        factory = Factory.of(EXAMPLE)
        result = self.answer(factory, memory_limit_bytes=self.needed(factory, 21))
        assert (result.largest_batch_size, result.next_batch_size_fails) == (21, True)
        assert here[:3] == [16, 21, 22]
        assert len(here) <= 4
        assert result.source is Source.MEASURED
        assert result.model_name == EXAMPLE
        assert result.workload is None
        assert result.timeline
        assert result.largest_tensors

    def test_code_that_cannot_be_traced_is_searched(self, folder: Path, here: list[int]) -> None:
        followed = linear(folder)
        limit = self.needed(followed, 2003)
        (folder / "values.py").write_text(LINEAR.format(optimizer=ADAM, last="loss.item()"))
        log: list[Event] = []
        from engine.own.analysis import analyze_own_code

        asked = {"memory_limit_bytes": limit, "current_batch_size": 4}
        request = OwnCodeRequest.parse(Factory.of("values:make_step"), asked)
        result = analyze_own_code(request, log.append)
        assert result.largest_batch_size == 2003
        assert len(here) <= 10
        warnings = [event for event in log if isinstance(event, Log) and event.level == "warning"]
        assert "Searching without a prediction" in warnings[0].message

    def test_a_current_batch_that_does_not_fit(self, here: list[int]) -> None:
        factory = Factory.of(EXAMPLE)
        limit = self.needed(factory, 9)
        result = self.answer(factory, memory_limit_bytes=limit, current_batch_size=64)
        assert result.largest_batch_size == 9
        assert result.speedup is None

    def test_what_does_not_fit_at_all_is_told_with_the_line(self, here: list[int]) -> None:
        with pytest.raises(DoesNotFit, match=r"batch 1 ends with out of memory at my_training\.py"):
            self.answer(Factory.of(EXAMPLE), memory_limit_bytes=2**20)

    def test_the_certificate_repeats_a_trial(
        self, here: list[int], capsys: pytest.CaptureFixture[str]
    ) -> None:
        factory = Factory.of(EXAMPLE)
        result = self.answer(factory, memory_limit_bytes=self.needed(factory, 21))
        for command, fits in zip(result.certificate, (True, False), strict=True):
            assert command.startswith("python -m engine measure --factory ")
            assert main([*command.split()[3:], "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["fits"] is fits

    def test_each_trial_is_a_process_of_its_own(self, folder: Path) -> None:
        last = "print('a step'); import os; os.write(1, b'raw')"
        factory = linear(folder, last=last)
        trial = parent.measure(TrialOrder(factory, 8))
        assert trial.fits
        assert trial.peak_allocated_bytes == self.needed(linear(folder), 8)
        assert "mine" not in sys.modules or sys.modules["mine"].__file__

    @pytest.mark.parametrize(
        ("last", "says"),
        [
            ("raise ValueError('shapes')", r"at mine\.py, line 14 .*: ValueError: shapes"),
            ("exit(0)", "SystemExit"),
        ],
    )
    def test_an_error_of_theirs_comes_with_its_line(
        self, folder: Path, last: str, says: str
    ) -> None:
        with pytest.raises(MeasurementFailed, match=says):
            parent.measure(TrialOrder(linear(folder, last=last), 8))

    def test_an_order_survives_json(self) -> None:
        order = TrialOrder(Factory.of(EXAMPLE), 3, 2**30)
        assert TrialOrder.from_json(order.to_json()) == order


class TestPredicted:
    """For a GPU of the catalogue."""

    def test_python_gets_the_same_answer_as_for_a_model(self) -> None:
        result = engine.analyze(my_training.make_step, gpu="t4", batch_multiple=256)
        assert result.source is Source.PREDICTED
        assert result.next_batch_size_fails
        assert result.next_batch_size == result.largest_batch_size + 256
        assert result.recommended_batch_size <= (result.safe_batch_size or 0)
        assert result.recommended_batch_size % 256 == 0
        assert result.savings is not None
        assert result.curve
        assert any("Nothing was run" in caveat for caveat in result.caveats)
        json.dumps(result.to_dict())

    def test_where_it_cannot_be_predicted_there_is_no_number(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        linear(folder, last="loss.item()")
        assert main(["analyze", "--factory", "mine:make_step", "--gpu", "a10", "--json"]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert "nothing is predicted: measure it" in err.splitlines()[-1]

    def test_what_does_not_fit_at_all(self, folder: Path) -> None:
        factory = linear(folder)
        with pytest.raises(DoesNotFit, match="mine:make_step does not fit on NVIDIA T4 limited"):
            engine.analyze(factory.name, gpu="t4", memory_limit_bytes=150 * 2**20)


class TestTheCommandLine:
    """``analyze --factory``."""

    def test_a_person_gets_tables(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert (
            main(["analyze", "--factory", EXAMPLE, "--gpu", "t4", "--batch-multiple", "512"]) == 0
        )
        out = capsys.readouterr().out
        assert f"{EXAMPLE} (own code), on NVIDIA T4" in out
        assert "Largest batch" in out

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ("--factory mine", "--factory: 'mine' names no function"),
            (f"bert --factory {EXAMPLE}", "model: the code of a factory says this itself"),
            (f"--factory {EXAMPLE} --precision fp32", "--precision: the code of a factory"),
            (f"--factory {EXAMPLE} --sequence-length 9", "--sequence-length: the code of a"),
            (f"--factory {EXAMPLE} --gpu b10", "--gpu: unknown gpu 'b10'"),
            (f"--factory {EXAMPLE} --current-batch-size 0", "--current-batch-size: '0' is not"),
        ],
    )
    def test_bad_input_is_one_line_and_status_2(
        self, arguments: str, says: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["analyze", *arguments.split()]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"error: {says}")
        assert err.count("\n") == 1


class TestTheWebNeverRunsIt:
    """No request that comes in over the page, the API or the worker can name code."""

    def test_a_request_has_no_field_for_it(self) -> None:
        assert "factory" not in AnalysisRequest.parse({"model": "bert", "gpu": "a10"}).to_dict()
        assert "factory" not in {field.name for field in fields(AnalysisRequest)}
        with pytest.raises(InvalidInput, match="unknown field"):
            AnalysisRequest.parse({"model": "bert", "gpu": "a10", "factory": EXAMPLE})

    def test_the_workers_protocol_refuses_it(self) -> None:
        asked = {"model": "bert", "gpu": "a10", "factory": EXAMPLE}
        with subprocess.Popen(
            [sys.executable, "-m", "engine", "run"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()  # and stays open: its end would end the engine
            said = process.stdout.read().splitlines()
        assert json.loads(said[-1])["fields"].keys() == {"factory"}
        assert process.returncode == 2


def test_a_trace_that_cannot_repeat_its_last_step_is_replayed_as_it_is() -> None:
    trace = Trace(1, events=[(0, 0), (1, 0), (0, 1)], sizes=[512, 512], last_step=1)
    assert not trace.repeatable
    assert trace.replay().peak_allocated_bytes == 512
