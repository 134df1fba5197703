"""The cost of recording a training run: ``python -m benchmarks.recording``.

Real training steps on the CPU. In each pair of neighbouring steps one is recorded and one is not,
in random order, so that other load on the machine affects both alike. The callback is added to the
trainer's list and removed again, so its whole cost counts, including the calls of its hooks.

The measure is CPU time on one thread: recording on a CPU waits for nothing, and time taken by other
programs does not count. Steps take a few milliseconds, far less than in a real training run, so
that a cost would show.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

AIM = 0.01
"""Recording may add at most this share to the time of a step."""

_PAIRS = 2000
_WARM_UP_PAIRS = 10
_CALLS = 100_000
_BATCH_SIZE = 4
_SEQUENCE_LENGTH = 32

Switch = Callable[[bool], None]
"""Adds or removes the recorder."""


@dataclass(frozen=True)
class Overhead:
    """The measured cost of recording for one kind of loop.

    Attributes:
        loop: ``plain``, ``trainer`` or ``lightning``.
        pairs: Pairs of a step with the recorder and one without.
        step_cpu_seconds: Median of the steps without it.
        ratio: Median over the pairs of the time with the recorder over that without.
        low, high: The 95% interval of the true median.
    """

    loop: str
    pairs: int
    step_cpu_seconds: float
    ratio: float
    low: float
    high: float

    @property
    def within_aim(self) -> bool:
        """Whether even the high end of the interval is below the aim."""
        return self.high < 1 + AIM


def overhead(loop: str, times: Sequence[float], recorded: Sequence[bool]) -> Overhead:
    """The overhead from the times of pairs of steps.

    The interval is that of the sign test, which assumes no distribution.

    Args:
        loop: Its name.
        times: CPU seconds of each step.
        recorded: Whether each step was recorded; one of each pair is.
    """
    ratios, plain = [], []
    for first in range(0, len(times) - 1, 2):
        pair = dict(zip(recorded[first : first + 2], times[first : first + 2], strict=True))
        ratios.append(pair[True] / pair[False])
        plain.append(pair[False])
    ratios.sort()
    half_width = 1.96 * math.sqrt(len(ratios)) / 2
    low = max(0, math.floor(len(ratios) / 2 - half_width) - 1)
    high = min(len(ratios) - 1, math.ceil(len(ratios) / 2 + half_width))
    return Overhead(
        loop,
        len(ratios),
        statistics.median(plain),
        statistics.median(ratios),
        ratios[low],
        ratios[high],
    )


class Alternation:
    """Switches the recorder before each step, and measures the CPU time between switches."""

    def __init__(self, pairs: int, switch: Switch) -> None:
        chosen = random.Random(0)  # noqa: S311  # no secret
        orders = [chosen.choice([(True, False), (False, True)]) for _ in range(pairs)]
        self.recorded = [recorded for order in orders for recorded in order]
        self.times: list[float] = []
        self._switch = switch
        self._last: float | None = None

    def between_steps(self) -> None:
        """End the current step, if any, and start the next, if any are left."""
        if self._last is not None:
            self.times.append(time.process_time() - self._last)
        if len(self.times) < len(self.recorded):
            self._switch(self.recorded[len(self.times)])
        self._last = time.process_time()

    def overhead(self, loop: str) -> Overhead:
        """The overhead without the warm-up pairs."""
        begin = 2 * _WARM_UP_PAIRS
        return overhead(loop, self.times[begin:], self.recorded[begin : len(self.times)])


def _switch_for(present: list[Any], callback: object) -> Switch:
    """A switch that appends the callback to a trainer's list, or removes it."""

    def switch(on: bool) -> None:
        if on and callback not in present:
            present.append(callback)
        elif not on and callback in present:
            present.remove(callback)

    return switch


def _model() -> Any:
    from transformers import AutoModelForSequenceClassification, BertConfig

    config = BertConfig(
        vocab_size=1000,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=256,
        max_position_embeddings=_SEQUENCE_LENGTH,
    )
    return AutoModelForSequenceClassification.from_config(config)


def _samples(steps: int) -> list[dict[str, Any]]:
    import torch

    sample = {
        "input_ids": torch.randint(1000, (_SEQUENCE_LENGTH,)),
        "labels": torch.tensor(0),
    }
    return [sample] * (steps * _BATCH_SIZE)


def _loader(steps: int) -> Iterable[Any]:
    import torch

    samples: Any = _samples(steps)
    return torch.utils.data.DataLoader(samples, batch_size=_BATCH_SIZE)


def plain(pairs: int) -> Overhead:
    import torch

    from engine.recording import record_training

    model = _model()
    optimizer = torch.optim.AdamW(model.parameters())
    on = False

    def switch(recorded: bool) -> None:
        nonlocal on
        on = recorded

    alternation = Alternation(pairs, switch)
    with record_training(batch_size=_BATCH_SIZE) as recording:
        alternation.between_steps()
        for batch in _loader(2 * pairs):
            model(**batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if on:
                recording.step()
            alternation.between_steps()
    return alternation.overhead("plain")


def trainer(pairs: int) -> Overhead:
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    from engine.recording.trainer import MemoryMarkCallback

    class Alternating(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            alternation.between_steps()

    with tempfile.TemporaryDirectory() as folder:
        training = Trainer(
            _model(),
            TrainingArguments(
                folder,
                per_device_train_batch_size=_BATCH_SIZE,
                num_train_epochs=1,
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=_samples(2 * pairs + 1),
            callbacks=[Alternating(), callback := MemoryMarkCallback()],
        )
        training.remove_callback(PrinterCallback)  # stdout is for the result
        alternation = Alternation(pairs, _switch_for(training.callback_handler.callbacks, callback))
        training.train()
    return alternation.overhead("trainer")


def lightning(pairs: int) -> Overhead:
    import lightning as tool
    import torch

    from engine.recording.lightning import MemoryMarkCallback

    class Classifier(tool.LightningModule):  # type: ignore[misc]  # mypy does not follow Lightning
        def __init__(self) -> None:
            super().__init__()
            self.model = _model()

        def training_step(self, batch: dict[str, Any]) -> Any:
            return self.model(**batch).loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    class Alternating(tool.Callback):  # type: ignore[misc]  # of either library, chosen at run time
        def on_train_batch_start(self, *_: Any) -> None:
            alternation.between_steps()

    callback = MemoryMarkCallback()
    with tempfile.TemporaryDirectory() as folder:
        training = tool.Trainer(
            max_epochs=1,
            accelerator="cpu",
            default_root_dir=folder,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[Alternating(), callback],
        )
        alternation = Alternation(pairs, _switch_for(training.callbacks, callback))
        training.fit(Classifier(), _loader(2 * pairs + 1))
    return alternation.overhead("lightning")


LOOPS: dict[str, Callable[[int], Overhead]] = {
    "plain": plain,
    "trainer": trainer,
    "lightning": lightning,
}


def step_seconds(calls: int = _CALLS) -> float:
    """The CPU time of ``recording.step()`` alone, the fastest of five rounds."""
    import torch

    from engine.recording import record_training

    with record_training(batch_size=_BATCH_SIZE, device=torch.device("cpu")) as recording:
        return min(timeit.repeat(recording.step, number=calls, repeat=5)) / calls


def _use_one_thread() -> None:
    import torch

    torch.set_num_threads(1)  # several threads would spin while they wait for each other


def render(found: Sequence[Overhead], seconds: float) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("loop", style="cyan")
    for heading in ("pairs of\nsteps", "step\nCPU, ms", "with / without\nmedian", "95% interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in found:
        colour = "green" if one.within_aim else "red"
        table.add_row(
            one.loop,
            f"{one.pairs:,}",
            f"{1000 * one.step_cpu_seconds:.2f}",
            f"{one.ratio:.4f}",
            f"[{colour}]{one.low:.4f} to {one.high:.4f}[/{colour}]",
        )
    table.caption = (
        f"Measured on this machine's CPU. recording.step() by itself: {1e6 * seconds:.2f} µs. "
        f"Aim: the interval ends below {1 + AIM:.2f}."
    )
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the overhead, and print a table or JSON.

    Returns:
        0 if each interval ends below the aim, else 1.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recording",
        description="Measure how much recording adds to a training step on this machine's CPU.",
    )
    parser.add_argument("loops", nargs="*", help=f"any of {', '.join(LOOPS)}; default all")
    parser.add_argument(
        "--pairs", type=int, default=_PAIRS, help=f"pairs of steps per loop; default {_PAIRS}"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    chosen = parser.parse_args(arguments)
    if unknown := [name for name in chosen.loops if name not in LOOPS]:
        parser.error(f"no loop is called {', '.join(unknown)}; choose from {', '.join(LOOPS)}")
    if chosen.pairs < 1:
        parser.error("give --pairs 1 or more")
    pairs = chosen.pairs + _WARM_UP_PAIRS
    _use_one_thread()
    found = [LOOPS[name](pairs) for name in chosen.loops or LOOPS]
    seconds = step_seconds()
    if chosen.json:
        written = {"source": "measured", "step_call_seconds": seconds}
        written["overheads"] = [asdict(one) for one in found]
        sys.stdout.write(json.dumps(written, indent=2) + "\n")
    else:
        Console().print(render(found, seconds))
    return 0 if all(one.within_aim for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
