"""The callbacks in real training runs with Hugging Face's Trainer and Lightning, on the CPU."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, Trainer, TrainingArguments

from engine.core.errors import InvalidInput
from engine.recording import Loop, TrainingRecord
from engine.recording.trainer import MemoryMarkCallback

pytestmark = pytest.mark.torch

SAMPLES = [{"input_ids": torch.arange(8), "labels": torch.tensor(0)} for _ in range(32)]


def _trainer(folder: Path, callback: MemoryMarkCallback, **arguments: Any) -> Trainer:
    config = BertConfig(
        vocab_size=10,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=8,
    )
    quiet = {"report_to": [], "use_cpu": True, "save_strategy": "no", "disable_tqdm": True}
    return Trainer(
        AutoModelForSequenceClassification.from_config(config),
        TrainingArguments(str(folder), **quiet | arguments),
        train_dataset=SAMPLES,
        eval_dataset=SAMPLES[:4],
        callbacks=[callback],
    )


@pytest.fixture
def taken() -> list[TrainingRecord]:
    return []


def test_the_trainer_is_recorded_with_its_arguments(
    tmp_path: Path, taken: list[TrainingRecord]
) -> None:
    callback = MemoryMarkCallback(taken.append, analysis_id=7)
    _trainer(
        tmp_path,
        callback,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        num_train_epochs=3,
    ).train()
    (record,) = taken
    assert callback.recording is not None
    assert callback.recording.record == record
    assert (record.batch_size, record.gradient_accumulation, record.world_size) == (2, 4, 1)
    assert (record.steps, record.samples, record.timed_steps) == (12, 96, 7)
    assert (record.loop, record.interrupted, record.analysis_id) == (Loop.TRAINER, False, 7)
    assert (record.device, record.precision, record.model_name) == ("cpu", "fp32", "bert")


def test_evaluations_and_checkpoints_are_left_out(
    tmp_path: Path, taken: list[TrainingRecord]
) -> None:
    _trainer(
        tmp_path,
        MemoryMarkCallback(taken.append, warm_up_steps=0, model_name="ours"),
        per_device_train_batch_size=2,
        num_train_epochs=1,
        eval_strategy="steps",
        eval_steps=4,  # after steps 4, 8, 12 and 16
        save_strategy="steps",
        save_steps=6,  # after steps 6, 12 and, as the last, 16
    ).train()
    (record,) = taken
    assert (record.steps, record.timed_steps) == (16, 16 - len({4, 8, 12, 6}))
    assert record.model_name == "ours"


def test_autocast_is_distinguished_from_number_formats(
    tmp_path: Path, taken: list[TrainingRecord]
) -> None:
    _trainer(tmp_path, MemoryMarkCallback(taken.append), bf16=True, max_steps=1).train()
    assert taken[0].precision == "bf16-mixed"


def _raising_at(step: int) -> Callable[..., None]:
    def on_step_begin(args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step == step:
            raise RuntimeError("out of memory")

    return on_step_begin


@pytest.mark.longer
def test_a_failed_run_is_reported_when_the_next_begins(
    tmp_path: Path, taken: list[TrainingRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    callback = MemoryMarkCallback(taken.append)
    trainer = _trainer(tmp_path, callback, max_steps=5)
    with monkeypatch.context() as patched:
        patched.setattr(callback, "on_step_begin", _raising_at(3))
        with pytest.raises(RuntimeError, match="out of memory"):
            trainer.train()
    assert taken == []
    trainer.train()
    assert [(record.interrupted, record.steps) for record in taken] == [(True, 3), (False, 5)]


def test_a_failed_run_is_reported_when_the_process_ends(
    tmp_path: Path, taken: list[TrainingRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_exit: list[Callable[[], None]] = []
    monkeypatch.setattr("atexit.register", at_exit.append)
    callback = MemoryMarkCallback(taken.append)
    monkeypatch.setattr(callback, "on_step_begin", _raising_at(2))
    with pytest.raises(RuntimeError, match="out of memory"):
        _trainer(tmp_path, callback, max_steps=5).train()
    for handler in at_exit:
        handler()
    assert [(record.interrupted, record.steps) for record in taken] == [(True, 2)]


def test_missing_trainer_attributes_do_not_break_training(
    tmp_path: Path, taken: list[TrainingRecord], caplog: pytest.LogCaptureFixture
) -> None:
    callback = MemoryMarkCallback(taken.append)
    state = SimpleNamespace(is_world_process_zero=True)
    callback.on_train_begin(SimpleNamespace(), state, None, model=None)
    callback.on_step_end(None, state, None)
    callback.on_evaluate(None, state, None)
    callback.on_train_end(None, state, None)
    assert taken == []
    assert "recording did not start (AttributeError" in caplog.text


def test_only_the_trainers_first_process_records(taken: list[TrainingRecord]) -> None:
    callback = MemoryMarkCallback(taken.append)
    state = SimpleNamespace(is_world_process_zero=False)
    callback.on_train_begin(None, state, None, model=None)
    callback.on_step_end(None, state, None)
    callback.on_train_end(None, state, None)
    assert callback.recording is None
    assert taken == []


@pytest.mark.parametrize(
    ("found", "n_gpu", "world_size", "expected"),
    [(None, 0, 1, (8, 1)), (None, 1, 4, (8, 4)), (4, 1, 2, (4, 2)), (8, 2, 1, (4, 2))],
    ids=["alone", "distributed", "batch size found", "DataParallel"],
)
def test_batch_and_devices_are_those_of_the_training_run(
    found: int | None,
    n_gpu: int,
    world_size: int,
    expected: tuple[int, int],
    taken: list[TrainingRecord],
) -> None:
    arguments = SimpleNamespace(
        per_device_train_batch_size=8,
        gradient_accumulation_steps=1,
        auto_find_batch_size=found is not None,
        n_gpu=n_gpu,
        world_size=world_size,
        device=torch.device("cpu"),
        bf16=False,
        fp16=False,
    )
    state = SimpleNamespace(is_world_process_zero=True, train_batch_size=found)
    callback = MemoryMarkCallback(taken.append)
    callback.on_train_begin(arguments, state, None, model=torch.nn.Linear(1, 1))
    callback.on_train_end(arguments, state, None)
    assert (taken[0].batch_size, taken[0].world_size) == expected
    assert taken[0].model_name == "Linear"


def test_invalid_callback_arguments_are_refused_immediately() -> None:
    with pytest.raises(InvalidInput) as refusal:
        MemoryMarkCallback(warm_up_steps=-1, analysis_id=0)
    assert refusal.value.fields.keys() == {"warm_up_steps", "analysis_id"}


def _loader(samples: int, **how: Any) -> Any:
    data: Any = torch.ones(samples, 4)
    return torch.utils.data.DataLoader(data, **how)


class TestLightning:
    """The same with Lightning."""

    def _fit(self, folder: Path, callback: Any, loader: Any = None, **arguments: Any) -> None:
        lightning = pytest.importorskip("lightning")

        class Regression(lightning.LightningModule):  # type: ignore[misc, name-defined]  # it is imported without types
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(4, 1)

            def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
                if batch_idx == arguments.get("fails_at"):
                    raise RuntimeError("out of memory")
                return self.layer(batch).square().mean()  # type: ignore[no-any-return]  # a module's call is Any

            def validation_step(self, batch: torch.Tensor) -> None:
                self.layer(batch)

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return torch.optim.SGD(self.parameters(), 0.1)

        if loader is None:
            loader = _loader(32, batch_size=2)
        quiet: dict[str, Any] = {
            "accelerator": "cpu",
            "logger": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "enable_checkpointing": False,
            "default_root_dir": folder,
            "max_epochs": 1,
        }
        validation = arguments.pop("validation", None)
        given = {name: value for name, value in arguments.items() if name != "fails_at"}
        callbacks = callback if isinstance(callback, list) else [callback]
        lightning.Trainer(callbacks=callbacks, **quiet | given).fit(
            Regression(), loader, validation
        )

    def _callback(self, *given: Any, **named: Any) -> Any:
        pytest.importorskip("lightning")
        return importlib.import_module("engine.recording.lightning").MemoryMarkCallback(
            *given, **named
        )

    def test_it_is_recorded_with_its_arguments(
        self, tmp_path: Path, taken: list[TrainingRecord]
    ) -> None:
        callback = self._callback(taken.append, analysis_id=7)
        self._fit(tmp_path, callback, accumulate_grad_batches=2, max_epochs=3)
        (record,) = taken
        assert callback.recording.record == record
        assert (record.batch_size, record.gradient_accumulation, record.world_size) == (2, 2, 1)
        assert (record.steps, record.samples, record.timed_steps) == (24, 96, 19)
        assert (record.loop, record.interrupted, record.analysis_id) == (Loop.LIGHTNING, False, 7)
        assert (record.device, record.precision) == ("cpu", "fp32")
        assert record.model_name == "Regression"

    def test_validations_and_checkpoints_are_left_out(
        self, tmp_path: Path, taken: list[TrainingRecord]
    ) -> None:
        callbacks = pytest.importorskip("lightning.pytorch.callbacks")
        checkpoint = callbacks.ModelCheckpoint(every_n_train_steps=6)  # after steps 6 and 12
        self._fit(
            tmp_path,
            [self._callback(taken.append, warm_up_steps=0), checkpoint],
            enable_checkpointing=True,
            val_check_interval=4,  # after steps 4, 8, 12 and 16
            validation=_loader(2),
        )
        (record,) = taken
        assert (record.steps, record.timed_steps) == (16, 16 - len({4, 8, 12, 6}))

    def test_autocast_is_distinguished_from_number_formats(
        self, tmp_path: Path, taken: list[TrainingRecord]
    ) -> None:
        self._fit(tmp_path, self._callback(taken.append), precision="bf16-mixed")
        assert taken[0].precision == "bf16-mixed"

    def test_an_exception_propagates_and_the_record_so_far_is_reported(
        self, tmp_path: Path, taken: list[TrainingRecord]
    ) -> None:
        with pytest.raises(RuntimeError, match="out of memory"):
            self._fit(tmp_path, self._callback(taken.append), fails_at=3)
        assert [(record.interrupted, record.steps) for record in taken] == [(True, 3)]

    def test_a_batch_sampler_gives_the_batch_size_too(
        self, tmp_path: Path, taken: list[TrainingRecord]
    ) -> None:
        sampler = torch.utils.data.BatchSampler(range(32), 4, drop_last=True)
        loader = _loader(32, batch_sampler=sampler)
        self._fit(tmp_path, self._callback(taken.append), loader)
        assert taken[0].batch_size == 4

    def test_a_loader_without_a_batch_size_says_what_to_pass(
        self, tmp_path: Path, taken: list[TrainingRecord], caplog: pytest.LogCaptureFixture
    ) -> None:
        class Batches:
            def __iter__(self) -> Iterator[torch.Tensor]:
                return iter([torch.ones(2, 4)] * 8)

        batches = Batches()
        self._fit(tmp_path, self._callback(taken.append), batches)
        assert taken == []
        assert "set MemoryMarkCallback(batch_size=…)" in caplog.text
        self._fit(tmp_path, self._callback(taken.append, batch_size=2), batches)
        assert (taken[0].batch_size, taken[0].samples) == (2, 16)

    def test_without_lightning_it_says_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delitem(sys.modules, "engine.recording.lightning", raising=False)
        monkeypatch.setitem(sys.modules, "lightning.pytorch.callbacks", None)
        with pytest.raises(ImportError, match="pip install lightning"):
            importlib.import_module("engine.recording.lightning")
