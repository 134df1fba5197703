"""Training that is set up in this process: predicted as it is, and left as it was.

This file is outside of the rooms whose lines are never taken for a user's.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import engine
from engine.core.errors import EngineError, InvalidInput
from engine.script.live import Live
from engine.script.program import Program
from engine.script.tests.scripts import ADAM, LINEAR, real
from engine.script.tests.test_program_traced import loop
from engine.script.trace import CannotTrace, trace_script

BATCH = 32


def training(**options: Any) -> tuple[nn.Module, Callable[[int], None]]:
    """A model, and a training step of it: as in :func:`loop`."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    optimizer = torch.optim.AdamW(model.parameters(), **options)

    def step(batch_size: int) -> None:
        x, y = torch.randn(batch_size, 64), torch.randn(batch_size, 64)
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()

    return model, step


def peak(script: Live | Program, batch_size: int = BATCH) -> int:
    return trace_script(script, batch_size, None).peak_by_category()[0]


class TestAFunction:
    @pytest.mark.longer
    def test_it_takes_as_much_as_the_script_that_does_the_same(self, tmp_path: Path) -> None:
        _, step = training()
        data = 2 * 64 * 64 * 4  # the script's own, which stay on the CPU like all the rest
        assert peak(Live.of(step)) == peak(loop(tmp_path)) - data

    def test_nothing_changes_in_this_process(self) -> None:
        model, step = training()
        before = [parameter.clone() for parameter in model.parameters()]
        trace_script(Live.of(step), 8, None)
        for now, then in zip(model.parameters(), before, strict=True):
            assert type(now) is nn.Parameter
            assert torch.equal(now, then)
            assert now.grad is None

    @pytest.mark.longer
    def test_steps_that_ran_before_make_no_difference(self) -> None:
        _, fresh = training()
        _, trained = training()
        trained(4)
        assert peak(Live.of(trained)) == peak(Live.of(fresh))

    @pytest.mark.longer
    def test_it_may_return_the_step(self) -> None:
        def make_step(batch_size: int) -> Callable[[], None]:
            _, step = training()
            return lambda: step(batch_size)

        assert peak(Live.of(make_step)) == peak(Live.of(training()[1]))

    @pytest.mark.slow
    def test_a_trial_for_each_batch_size(self) -> None:
        _, step = training()
        predicted = engine.predict(step, gpu="a10", batch_sizes=[16, 4096])
        small, large = predicted.trials
        assert (small.batch_size, large.batch_size) == (16, 4096)
        assert small.peak_allocated_bytes
        assert large.peak_allocated_bytes
        more = (4096 - 16) * 64 * 4
        assert large.peak_allocated_bytes - small.peak_allocated_bytes > more
        assert str(predicted).startswith("Batch 16 fits on NVIDIA A10: 0.")
        assert "AdamW" in predicted.caveats[0]
        assert f"- {predicted.caveats[0]}" in str(predicted).splitlines()

    def test_a_whole_analysis(self) -> None:
        """A function that no other process could import is predicted where it is."""
        limit = 2**30
        result = engine.analyze(
            training()[1], gpu="a10", current_batch_size=16, memory_limit_bytes=limit
        )
        assert result.largest_batch_size > 16
        assert result.certificate == []

    def test_a_function_that_has_a_name_is_predicted_by_it(self, tmp_path: Path) -> None:
        (tmp_path / "named_step.py").write_text(LINEAR.format(optimizer=ADAM, last="pass"))
        with pytest.MonkeyPatch.context() as patched:
            patched.syspath_prepend(tmp_path)
            predicted = engine.predict("named_step:make_step", gpu="a10", batch_sizes=[8])
        assert [trial.batch_size for trial in predicted.trials] == [8]

    def test_variables_of_its_module_are_found(self) -> None:
        assert peak(Live.of(_global_step)) > 3 * 64 * 64 * 4

    def test_a_tensor_in_4_bits_is_refused(self) -> None:
        class Packed(nn.Parameter):
            pass

        model, step = training()
        model.packed = Packed(torch.zeros(4))
        with pytest.raises(EngineError, match="holds a Packed, which cannot be followed"):
            peak(Live.of(step))

    def test_a_tensor_that_cannot_be_replaced_is_refused_with_its_line(self) -> None:
        weights = (torch.ones(64),)
        model, _ = training()
        optimizer = torch.optim.SGD(model.parameters())

        def step(batch_size: int) -> None:
            (model(torch.randn(batch_size, 64)) * weights[0]).mean().backward()
            optimizer.step()

        with pytest.raises(CannotTrace, match=r"weights\[0\].*made before"):
            peak(Live.of(step))


_MODEL = nn.Linear(64, 64)
_OPTIMIZER = torch.optim.Adam(_MODEL.parameters())


def _global_step(batch_size: int) -> None:
    _MODEL(torch.randn(batch_size, 64)).mean().backward()
    _OPTIMIZER.step()


class TestRefused:
    @pytest.mark.parametrize(
        ("given", "field", "says"),
        [
            ({"training": 3}, "training", "int cannot run; pass a Trainer"),
            ({"training": nn.Linear(1, 1)}, "training", "Linear cannot run"),
            ({"training": lambda: None}, "training", "must take just a batch size"),
            ({"training": print, "loader": []}, "loader", "only a LightningModule"),
            ({"training": print, "trainer_options": {}}, "trainer_options", "LightningModule"),
        ],
    )
    def test_what_cannot_be_trained(self, given: dict[str, Any], field: str, says: str) -> None:
        with pytest.raises(InvalidInput) as refusal:
            Live.of(**given)
        assert says in refusal.value.fields[field]

    def test_a_function_without_batch_sizes(self) -> None:
        with pytest.raises(InvalidInput, match="such as"):
            engine.predict(training()[1], gpu="a10")

    def test_one_of_several_batch_sizes_that_is_none(self) -> None:
        with pytest.raises(InvalidInput, match=r"^batch_sizes: .*from 1 to"):
            engine.predict(training()[1], gpu="a10", batch_sizes=[8, 0])

    @pytest.mark.parametrize("given", [8, "8"])
    def test_a_batch_size_in_no_list(self, given: Any) -> None:
        with pytest.raises(InvalidInput, match=r"^batch_sizes: enter a list, such as \[8\]$"):
            engine.predict(training()[1], gpu="a10", batch_sizes=given)

    @pytest.mark.slow
    def test_a_batch_of_one_where_batch_norm_takes_none(self) -> None:
        def step(batch_size: int) -> None:
            model(torch.randn(batch_size, 64)).mean().backward()
            optimizer.step()

        model = nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8))
        optimizer = torch.optim.SGD(model.parameters())
        with pytest.raises(InvalidInput, match=r"^batch_sizes: batch norm needs"):
            engine.predict(step, gpu="a10", batch_sizes=[1])

    def test_what_only_a_lightning_module_takes(self) -> None:
        with pytest.raises(InvalidInput, match="only a LightningModule takes one"):
            engine.analyze("mine:make_step", loader=[], gpu="a10")

    def test_to_be_measured(self) -> None:
        with pytest.raises(InvalidInput, match="predicted in its own process"):
            engine.predict(training()[1], gpu="local", batch_sizes=[1])


TRAINER = """
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

config = BertConfig(
    vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=64,
)
trainer = Trainer(
    BertForSequenceClassification(config),
    TrainingArguments("{folder}/out", use_cpu=True, per_device_train_batch_size=4, {arguments}),
    train_dataset=[{{"input_ids": [5] * 16, "labels": n % 2}} for n in range(64)],
)
if __name__ == "__main__":
    trainer.train()
"""

MODULE = """
import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

data = TensorDataset(torch.randn(64, 64), torch.randint(10, (64,)))
module, loader = Classifier(), DataLoader(data, batch_size=4)
if __name__ == "__main__":
    lightning.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, max_epochs=9
    ).fit(module, loader)
"""


def written(folder: Path, code: str) -> tuple[Program, dict[str, Any]]:
    """A script, and what it sets up where it does not run."""
    path = folder / "train.py"
    path.write_text(code)
    return Program.of(path), runpy.run_path(str(path))


class TestATrainer:
    def test_it_keeps_the_accelerate_it_was_made_with(self, tmp_path: Path) -> None:
        _, made = written(tmp_path, TRAINER.format(folder=tmp_path, arguments=""))
        assert peak(Live.of(made["trainer"]), 4)

    @pytest.mark.slow
    def test_it_takes_as_much_as_a_real_run(self, tmp_path: Path) -> None:
        program, made = written(tmp_path, TRAINER.format(folder=tmp_path, arguments=""))
        assert peak(Live.of(made["trainer"]), 4) == real(program, 4).peak_allocated_bytes

    @pytest.mark.slow
    def test_its_own_batch_size_and_accumulation_are_known(self, tmp_path: Path) -> None:
        code = TRAINER.format(folder=tmp_path, arguments="gradient_accumulation_steps=4")
        predicted = engine.predict(written(tmp_path, code)[1]["trainer"], gpu="a10")
        (trial,) = predicted.trials
        assert trial.batch_size == 4
        assert trial.samples_per_second
        assert trial.step_seconds
        assert trial.samples_per_second * trial.step_seconds == pytest.approx(16)
        assert not list((tmp_path / "out").iterdir())

    @pytest.mark.slow
    def test_a_whole_analysis(self, tmp_path: Path) -> None:
        _, made = written(tmp_path, TRAINER.format(folder=tmp_path, arguments=""))
        result = engine.analyze(made["trainer"], gpu="t4")
        assert result.current_batch_size == 4
        assert result.largest_batch_size > 1000
        assert result.certificate == []


@pytest.mark.slow
class TestALightningModule:
    def test_it_takes_as_much_as_a_real_run(self, tmp_path: Path) -> None:
        program, made = written(tmp_path, MODULE)
        live = Live.of(made["module"], made["loader"], {"accelerator": "cpu"})
        data = 64 * 64 * 4 + 64 * 8
        assert peak(live, 4) == (real(program, 4).peak_allocated_bytes or 0) - data

    def test_its_precision_is_that_of_the_trainers_options(self, tmp_path: Path) -> None:
        _, made = written(tmp_path, MODULE)
        fp32, mixed = (
            engine.predict(
                *(made["module"], made["loader"]),
                gpu="a10",
                batch_sizes=[65_536],
                trainer_options=options,
            )
            for options in ({}, {"precision": "bf16-mixed"})
        )
        fp32_bytes, mixed_bytes = (one.trials[0].peak_allocated_bytes for one in (fp32, mixed))
        assert fp32_bytes is not None
        assert mixed_bytes is not None
        assert mixed_bytes < fp32_bytes

    def test_its_trainers_options_are_taken_and_nothing_is_written(self, tmp_path: Path) -> None:
        from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
        from lightning.pytorch.loggers import CSVLogger

        logs = 'self.logger.experiment.add_scalar("loss", loss); self.log("loss", loss)'
        _, made = written(tmp_path, MODULE.replace('self.log("loss", loss)', logs))
        files = sorted(tmp_path.rglob("*"))
        callbacks = [ModelCheckpoint(tmp_path / "saved", every_n_train_steps=1)]
        options = {
            "accumulate_grad_batches": 4,
            "callbacks": [*callbacks, LearningRateMonitor("step")],
            "default_root_dir": tmp_path,
            "devices": 2,
            "enable_checkpointing": True,
            "enable_progress_bar": True,
            "fast_dev_run": True,
            "logger": CSVLogger(tmp_path),
            "log_every_n_steps": 1,
        }
        predicted = engine.predict(
            made["module"], made["loader"], gpu="a10", trainer_options=options
        )
        (trial,) = predicted.trials
        assert trial.samples_per_second
        assert trial.step_seconds
        assert trial.samples_per_second * trial.step_seconds == pytest.approx(4 * 4)
        assert sorted(tmp_path.rglob("*")) == files

    def test_a_single_callback_is_taken_too(self, tmp_path: Path) -> None:
        from lightning.pytorch.callbacks import Callback

        class Larger(Callback):  # type: ignore[misc]  # it has no types
            def on_train_start(self, trainer: Any, module: Any) -> None:
                module.kept = torch.ones(2**20)

        _, made = written(tmp_path, MODULE)
        plain, larger = (
            peak(Live.of(made["module"], made["loader"], {"accelerator": "cpu"} | more), 4)
            for more in ({}, {"callbacks": Larger()})
        )
        assert larger - plain == 4 * 2**20

    def test_without_its_data_it_cannot_be_predicted(self, tmp_path: Path) -> None:
        _, made = written(tmp_path, MODULE)
        with pytest.raises(InvalidInput, match="pass the DataLoader"):
            engine.predict(made["module"], gpu="a10")
