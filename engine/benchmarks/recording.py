"""What recording a training costs: ``python -m engine.benchmarks.recording``.

Real trainings on the CPU, with and without the recorder in turn, step by step: in each pair of
neighbouring steps one is recorded and one is not, in random order, so that whatever else the
machine does falls on both alike. The callback is put into the trainer's list and taken out again,
so all that it costs is counted: its hooks, and that the trainer calls them at all.

Counted are the seconds that the processor works for this process, on one thread: recording on a CPU
waits for nothing, and the time that other programs take away says nothing of it. The steps are of a
few milliseconds, far shorter than those of a real training, so that a cost would show.
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
"""The most that recording may add to the time of a step."""

_PAIRS = 2000
_WARM_UP_PAIRS = 10
_CALLS = 100_000
_BATCH_SIZE = 4
_SEQUENCE_LENGTH = 32

Switch = Callable[[bool], None]
"""Puts the recorder in, or takes it out."""


@dataclass(frozen=True)
class Overhead:
    """What recording costs one kind of loop, measured.

    Attributes:
        loop: ``plain``, ``trainer`` or ``lightning``.
        pairs: So many steps with the recorder, and as many without.
        step_cpu_seconds: Median of a step without it.
        ratio: Median over the pairs of the time with the recorder over that without.
        low, high: Between which the true median lies, 95 times of 100.
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
    """What the times of steps say, two by two.

    The interval is that of the sign test: it takes no distribution for granted.

    Args:
        loop: Its name.
        times: CPU seconds of each step.
        recorded: Whether it was recorded; one of each pair is.
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
    """Switches the recorder before each step, and takes the CPU time between two switches."""

    def __init__(self, pairs: int, switch: Switch) -> None:
        chosen = random.Random(0)  # noqa: S311  # no secret
        orders = [chosen.choice([(True, False), (False, True)]) for _ in range(pairs)]
        self.recorded = [recorded for order in orders for recorded in order]
        self.times: list[float] = []
        self._switch = switch
        self._last: float | None = None

    def between_steps(self) -> None:
        """End a step, if there was one, and begin the next, if there is one left."""
        if self._last is not None:
            self.times.append(time.process_time() - self._last)
        if len(self.times) < len(self.recorded):
            self._switch(self.recorded[len(self.times)])
        self._last = time.process_time()

    def overhead(self, loop: str) -> Overhead:
        """What was found, the first pairs left out."""
        begin = 2 * _WARM_UP_PAIRS
        return overhead(loop, self.times[begin:], self.recorded[begin : len(self.times)])


def _presence(present: list[Any], callback: object) -> Switch:
    """A switch for a trainer's list of callbacks, which has the callback last or not at all."""

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
    """A loop of one's own."""
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
    """The Hugging Face Trainer."""
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    from engine.recording.trainer import MemoryMarkCallback

    class Alternating(TrainerCallback):  # type: ignore[misc]  # transformers is not read by mypy
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
        training.remove_callback(PrinterCallback)  # stdout is for the answer
        alternation = Alternation(pairs, _presence(training.callback_handler.callbacks, callback))
        training.train()
    return alternation.overhead("trainer")


def lightning(pairs: int) -> Overhead:
    """Lightning's Trainer."""
    import lightning as tool
    import torch

    from engine.recording.lightning import MemoryMarkCallback

    class Classifier(tool.LightningModule):  # type: ignore[misc]  # Lightning is not read by mypy
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
        alternation = Alternation(pairs, _presence(training.callbacks, callback))
        training.fit(Classifier(), _loader(2 * pairs + 1))
    return alternation.overhead("lightning")


LOOPS: dict[str, Callable[[int], Overhead]] = {
    "plain": plain,
    "trainer": trainer,
    "lightning": lightning,
}


def step_seconds(calls: int = _CALLS) -> float:
    """What ``recording.step()`` takes by itself on the CPU, the least of five rounds."""
    import torch

    from engine.recording import record_training

    with record_training(batch_size=_BATCH_SIZE, device=torch.device("cpu")) as recording:
        return min(timeit.repeat(recording.step, number=calls, repeat=5)) / calls


def _use_one_thread() -> None:
    import torch

    torch.set_num_threads(1)  # several that share work spin while they wait for each other


def render(found: Sequence[Overhead], seconds: float) -> Table:
    """What was found, as a table."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("loop", style="cyan")
    for heading in ("pairs of\nsteps", "step\nCPU, ms", "with / without\nmedian", "95 % interval"):
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
        prog="python -m engine.benchmarks.recording",
        description="Measure what recording adds to a step of training, on this machine's CPU.",
    )
    parser.add_argument("loops", nargs="*", help=f"of {', '.join(LOOPS)}; default all of them")
    parser.add_argument(
        "--pairs", type=int, default=_PAIRS, help=f"of steps for each loop; default {_PAIRS}"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    chosen = parser.parse_args(arguments)
    if unknown := [name for name in chosen.loops if name not in LOOPS]:
        parser.error(f"no loop is called {', '.join(unknown)}; choose of {', '.join(LOOPS)}")
    if chosen.pairs < 1:
        parser.error("give --pairs 1 or more")
    pairs = chosen.pairs + _WARM_UP_PAIRS
    _use_one_thread()
    found = [LOOPS[name](pairs) for name in chosen.loops or LOOPS]
    seconds = step_seconds()
    if chosen.json:
        plain_form = {"source": "measured", "step_call_seconds": seconds}
        plain_form["overheads"] = [asdict(one) for one in found]
        sys.stdout.write(json.dumps(plain_form, indent=2) + "\n")
    else:
        Console().print(render(found, seconds))
    return 0 if all(one.within_aim for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
