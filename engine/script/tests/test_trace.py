"""Tracing a user's training code: what is predicted, and the errors where nothing is."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

from engine.examples import my_training
from engine.measurement import cpu
from engine.measurement.protocol import TrialOrder
from engine.script.batch_sizes import trace_script_at_every_batch_size
from engine.script.factory import Factory, ScriptFailed
from engine.script.tests.scripts import A10, ADAM, BY_VALUE, EXAMPLE, LINEAR, linear, written
from engine.script.trace import CannotTrace, trace_script
from engine.tracing.trace import Trace


class TestTheTrace:
    """Predictions for code that can be traced, and errors for code that cannot."""

    @pytest.mark.longer
    def test_a_trace_equals_real_steps_to_the_byte(self, folder: Path) -> None:
        for factory in (Factory.of(EXAMPLE), linear(folder)):
            measured = cpu.run_trial(TrialOrder(factory, 8))
            peak, breakdown = trace_script(factory, 8, None).peak_by_category()
            assert peak == measured.peak_allocated_bytes
            assert breakdown == measured.breakdown

    @pytest.mark.longer
    def test_copied_modules_equal_real_steps_too(self, folder: Path) -> None:
        """nn.TransformerEncoder copies its layer, and so do models that keep an average."""
        code = LINEAR.format(optimizer=ADAM, last="pass").replace(
            "nn.Linear(64, 64)",
            "nn.TransformerEncoder("
            "nn.TransformerEncoderLayer(64, 2, 64, batch_first=True), 2).to('cpu')",
        )
        code = code.replace("(batch_size, 64)", "(batch_size, 4, 64)")
        code = code.replace(
            "    def step", "    import copy; mean = copy.deepcopy(model)\n    def step"
        )
        factory = written(folder, code)
        measured = cpu.run_trial(TrialOrder(factory, 8))
        assert trace_script(factory, 8, None).peak_by_category()[1] == measured.breakdown

    @pytest.mark.longer
    def test_two_traces_give_every_batch_size(self) -> None:
        traces = trace_script_at_every_batch_size(Factory.of(EXAMPLE), A10, pytest.fail)
        whole = trace_script(Factory.of(EXAMPLE), 37, A10)
        assert traces.at(37).sizes == whole.sizes
        assert traces.at(37).replay() == whole.replay()

    @pytest.mark.longer
    @pytest.mark.parametrize(
        "last",
        [
            "nn.functional.cross_entropy(model(x) @ model(x).T, torch.arange(len(x))).backward()",
            pytest.param(
                "model(x[: batch_size // 2]).exp().sum().backward()", marks=pytest.mark.slow
            ),
            pytest.param("model(x[:8]).exp().sum().backward()", marks=pytest.mark.slow),
            pytest.param(
                "[model(part).exp().sum().backward() for part in x.split(16)]",
                marks=pytest.mark.slow,
            ),
        ],
    )
    def test_operations_across_the_batch_are_traced(self, folder: Path, last: str) -> None:
        """Code may compare samples with each other, or halve, cut and split the batch."""
        factory = linear(folder, last=last)
        traces = trace_script_at_every_batch_size(factory, A10, lambda _warning: None)
        for batch_size in (1, 5, 40, 500):
            assert traces.at(batch_size).sizes == trace_script(factory, batch_size, A10).sizes

    def test_categories_are_found_automatically(self, folder: Path) -> None:
        found = trace_script(linear(folder), 8, None).peak_by_category()[1]
        parameters = 4 * (64 * 64 + 64)
        assert found["parameters"] == parameters
        assert found["gradients"] == parameters
        # Two moments, and a step counter for the weight and for the bias.
        assert found["optimizer_state"] == 2 * parameters + 2 * 4
        assert found["inputs"] == 8 * 64 * 4

    @pytest.mark.longer
    def test_tensors_have_the_scripts_module_names(self) -> None:
        trace = trace_script(Factory.of(EXAMPLE), 4, A10)
        assert {"features.0", "classifier.2"} <= set(trace.modules)

    @pytest.mark.longer
    def test_cudas_defaults_apply(self, folder: Path) -> None:
        """Dropout saves a mask of bytes, and AdamW uses foreach kernels."""
        names = [op.name for op in trace_script(Factory.of(EXAMPLE), 8, A10).operations]
        assert "aten.native_dropout" in names
        assert "aten._foreach_sqrt" in names

    def test_a_model_may_be_cast_and_moved(self, folder: Path) -> None:
        code = LINEAR.format(optimizer=ADAM, last="pass")
        half = code.replace("nn.Linear(64, 64)", "nn.Linear(64, 64).to('cpu', torch.bfloat16)")
        half = half.replace("(batch_size, 64)", "(batch_size, 64, dtype=torch.bfloat16)")
        found = trace_script(written(folder, half), 8, A10).peak_by_category()[1]
        assert found["parameters"] == 2 * (64 * 64 + 64)

    @pytest.mark.parametrize(
        ("last", "says"),
        [
            (BY_VALUE, r"value, read at mine\.py, line 14 \(torch\.zeros\(int\(loss\.item"),
            ("torch.bincount(x.long()[0])", r"at mine\.py, line 14 .*: it depends on a tensor's"),
            ("model.to('cuda')", r"at mine\.py, line 11 .* at least two devices, cuda:0 and cpu"),
            ("raise KeyError('x')", "KeyError: 'x'"),
            ("exit(0)", "SystemExit"),
        ],
    )
    def test_code_that_cannot_be_traced_gets_its_line_and_no_number(
        self, folder: Path, last: str, says: str
    ) -> None:
        with pytest.raises(CannotTrace, match=says) as refusal:
            trace_script(linear(folder, last=last), 2, A10)
        assert ". There is no prediction: " in str(refusal.value)
        assert "measure it (--gpu local)" in str(refusal.value)

    def test_tensors_created_on_import_are_reported(self, folder: Path) -> None:
        code = LINEAR.format(optimizer=ADAM, last="w + x") + "w = torch.ones(1)\n"
        with pytest.raises(CannotTrace, match="a tensor that was made before"):
            trace_script(written(folder, code), 2, A10)

    @pytest.mark.parametrize(
        ("code", "says"),
        [
            ("def make_step(b): pass", "returned a NoneType; it must return a function"),
            (
                "def make_step(b): return lambda: None",
                "does nothing with tensors created by the fact",
            ),
        ],
    )
    def test_a_factory_that_returns_no_step_is_refused(
        self, folder: Path, code: str, says: str
    ) -> None:
        with pytest.raises(ScriptFailed, match=says):
            trace_script(written(folder, code), 2, A10)

    def test_steps_that_differ_by_batch_size_are_traced_at_each_size(self, folder: Path) -> None:
        warned: list[str] = []
        code = LINEAR.format(optimizer=ADAM, last="[x + i for i in range(batch_size)]")
        traces = trace_script_at_every_batch_size(written(folder, code), A10, warned.append)
        assert traces.at(5).sizes == trace_script(written(folder, code), 5, A10).sizes
        assert "tracing each batch size separately" in warned[0]

    @pytest.mark.longer
    def test_a_trace_leaves_nothing_behind(self, folder: Path) -> None:
        """No hook and no patch: the caller's own model trains as before."""
        optimizer = importlib.import_module("torch.optim.optimizer")
        kernels = optimizer._get_foreach_kernels_supported_devices
        hooks = list(optimizer._global_optimizer_post_hooks)
        trace_script(Factory.of(EXAMPLE), 2, A10)
        my_training.make_step(2)()
        assert not torch.nn.modules.module._global_parameter_registration_hooks
        assert list(optimizer._global_optimizer_post_hooks) == hooks
        assert optimizer._get_foreach_kernels_supported_devices is kernels


def test_a_trace_that_cannot_repeat_its_last_step_is_replayed_without_repeating() -> None:
    trace = Trace(1, events=[(0, 0), (1, 0), (0, 1)], sizes=[512, 512], last_step=1)
    assert not trace.repeatable
    assert trace.replay().peak_allocated_bytes == 512
