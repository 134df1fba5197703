"""Follows a program past its traced steps: its loading, its evaluation and its checkpoints.

The loaders that feed its steps are empty after the last one, and all others after a few batches. So
an epoch ends at once, and what a script does after it is there to see. Later epochs have one step
each, as long as there is time. Where the script reads the same data at another place than its steps
do, it is taken to evaluate, until a pass with gradients shows that it does not. A Trainer of
transformers is asked to evaluate and to save, where it will. Before it would change anything that
lasts, it ends.
"""

from __future__ import annotations

import gc
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from ..core.errors import EngineError
from ..gpus import Gpu
from ..interface.result import PhaseName
from ..tracing.apart import runs_apart
from ..tracing.beside import runs_beside
from ..tracing.lowering import CudaBehaviour
from ..tracing.operations import tensors_in
from ..versions.loaded_modules import namespace
from ..versions.patches import patch_for_good
from .data.early_evaluation import EVALUATED_BATCHES
from .data.evaluated import batches_of
from .data.largest_draws import Draws
from .data.largest_samples import MAX_DIFFERENT
from .data.later_epochs import LaterEpochs
from .live import Live
from .machine import Machine, pretended_machine
from .on_import import when_imported
from .phase_peaks import Peak, Saved, WholeRun
from .process.deepspeed import follow_deepspeed
from .process.fork import watch
from .process.lasting_changes import before_lasting_changes
from .process.preloading import preload
from .process.unlike_steps import STEPS
from .program import Program
from .program_trace import End, Refuse, Tracing, begin_cutting
from .values.placeholders import Values, first_that_runs
from .values.reading_places import ReadingPlaces, reading_place

FOLLOWED_SECONDS = 120.0
"""Time that a program may take after its traced steps."""
QUIET_SECONDS = 10.0
"""Time of the processor that forward passes may take after them with no higher peak."""
_NEWS = 1.01
"""Factor by which a peak has to be higher to count: a text that is generated grows by some bytes a
token."""
GROWING_SECONDS = 20.0
"""Time of the processor for all batches of an evaluation of which each keeps something; what the
rest of them keep is added up."""
STEPS_AFTER = 3
"""Training steps after which a program is left that goes on training on other data."""
EPOCHS, EPOCHS_EVALUATED = 1_000, 3
"""Empty epochs after which a program is left that has not evaluated, and one that has."""

_FILE, _TENSOR = "file", "tensor"
_SAVING = {
    "torch": {"save": _TENSOR},
    "safetensors.torch": {"save_file": _FILE, "save_model": _FILE},
    "transformers.modeling_utils:PreTrainedModel": {"save_pretrained": _FILE},
    "transformers.trainer:Trainer": {"_save_checkpoint": _FILE, "save_model": _FILE},
    "peft:PeftModel": {"save_pretrained": _FILE},
    "accelerate:Accelerator": {"save": _TENSOR, "save_state": _FILE, "save_model": _FILE},
    "lightning.pytorch:Trainer": {"save_checkpoint": _TENSOR},
    "pytorch_lightning:Trainer": {"save_checkpoint": _TENSOR},
}
"""Functions that save, by ``module`` or ``module:class``: whether all of a file is on the host
before it is written (safetensors), or one tensor at a time (``torch.save``)."""


def follow_run(
    program: Program | Live,
    batch_size: int,
    behaviour: CudaBehaviour | None,
    gpu: Gpu | None,
    refuse: Refuse,
) -> WholeRun:
    """Follow a program to its evaluation and its checkpoints, as far as it comes to them.

    Args:
        program: The program to run.
        batch_size: Samples per step.
        behaviour: Behaviour of the GPU; ``None`` traces what the CPU does.
        gpu: The GPU that the script sees.
        refuse: Converts an error of the script into ours.

    Raises:
        EngineError: If it does not get to the end of the steps that are traced.
    """

    def with_values(values: Values) -> WholeRun:
        def work(end: End[WholeRun], cuts: bool) -> None:
            whole = isinstance(program, Program)
            with pretended_machine(
                behaviour, gpu, values, shows_gpu=shows_gpu, takes_real=whole
            ) as machine:
                follow_deepspeed(machine)
                _Following(program, batch_size, values, machine, end, cuts).run(refuse)

        return begin_cutting(values, work)()

    for shows_gpu in (True, False) if behaviour is not None else (False,):
        if isinstance(program, Program) and shows_gpu and behaviour is not None:
            preload(program, behaviour, gpu)
        found, _ = first_that_runs(with_values)
        if found.peaks[PhaseName.STEP].device:
            break
    return found


class _Following(Tracing):
    """A program that is followed past its traced steps, in the fork."""

    def __init__(
        self,
        program: Program | Live,
        batch_size: int,
        values: Values,
        machine: Machine,
        end: End[WholeRun],
        cuts: bool,
    ) -> None:
        super().__init__(program, batch_size, values, machine, end, STEPS, cuts)
        self._hand_over = end
        self._run = WholeRun(batch_size, {})
        self._phase = PhaseName.LOADING
        self._fed: set[int] = set()  # ids of the data that feeds the steps
        self._empty = 0  # times that the script has asked for more of it
        self._later = LaterEpochs()
        self._places = ReadingPlaces()
        self._read_elsewhere = False  # than its steps, the latest batch of that data
        self._undecided = False  # whose phase it is that a batch was read for
        self._steps_after = 0  # of no later epoch
        self._evaluation = _Evaluation()
        self._finished = False
        self._draws = Draws()
        self._quiet_since, self._highest = 0.0, 0
        register_module_forward_pre_hook(self._forward)
        register_optimizer_step_post_hook(self._stepped)
        self._loaders.before_read = self._before_read
        when_imported(
            {place.partition(":")[0]: partial(self._watch_saving, place) for place in _SAVING}
        )

    def run(self, refuse: Refuse) -> None:
        """Run the program; ends the process."""

        def refused(error: BaseException) -> EngineError:
            if self._empty and StopIteration in (type(error), type(error.__cause__)):
                self._finish("its training loop wants data without end")
            return refuse(error)

        with self._draws:
            super().run(refused)

    def _traces_on(self) -> bool:
        return self._steps.ended >= STEPS

    def _step_ended(self) -> None:
        self._patience.renew()
        self._passes.end()
        self._recorder.settle()
        self._close(self._training)
        if not self._evaluation.reads:  # those forward passes without gradients were of the step
            self._run.peaks.pop(PhaseName.EVALUATION, None)
        if self._steps.ended == 1:
            self._draws.lines.clear()  # what is drawn once, as a seed, is no size of a step
        if self._steps.ended == STEPS:
            self._fed = set(self._loaders.fed)
            self._later.batches = self._batches
            self._loaders.most_batches = EVALUATED_BATCHES
            watch(FOLLOWED_SECONDS, self._too_late)
            before_lasting_changes(self._before_change)
            self._later.goes_on = bool(self._draws.lines)
            self._draws.give_largest()
            self._ask_trainers()
        elif self._steps.ended > STEPS and not self._later.owes_step:
            self._steps_after += 1
            if self._steps_after == STEPS_AFTER:
                self._finish("it went on training")
        self._later.owes_step = False
        self._micro_batches.of_step = 0
        self._loaders.step_ended()

    @property
    def _training(self) -> PhaseName:
        """The phase of what trains now."""
        return PhaseName.LATER_STEP if self._traces_on() else PhaseName.STEP

    def _forward(self, module: torch.nn.Module, args: object) -> None:
        if runs_beside() or runs_apart() or torch._C._current_graph_task_id() != -1:
            return
        if self._phase is PhaseName.LOADING:
            self._close(PhaseName.STEP)
        learns = torch.is_grad_enabled()
        self._places.forward(learns=learns)
        if self._read_elsewhere and learns:
            self._later.owes_step = True
        if self._traces_on() and not self._later.owes_step:
            evaluates = not learns or not self._steps.model.training
            now = PhaseName.EVALUATION if evaluates else self._training
            if now is not self._phase:
                if self._undecided:
                    self._phase = now
                else:
                    self._close(now)
            self._undecided = False
        if self._traces_on():
            self._end_where_quiet()

    def _stepped(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        """An optimizer has stepped: the passes before it trained, in whatever mode the model is."""
        if self._phase is PhaseName.EVALUATION and self._traces_on() and not runs_beside():
            self._phase = PhaseName.LATER_STEP

    def _end_where_quiet(self) -> None:
        """End the program where its forward passes have long shown nothing new, as of a text."""
        now, peak = time.process_time(), self._recorder.peak_bytes
        if peak > _NEWS * self._highest or not self._quiet_since:
            self._quiet_since, self._highest = now, max(peak, self._highest)
        elif now - self._quiet_since > QUIET_SECONDS:
            where = self._steps.program.line(traceback.extract_stack())
            self._finish(f"it is{where}, whose forward passes take no more memory than before")

    def _before_read(self, iterator: Any) -> None:
        """A batch is wanted; raises ``StopIteration`` where there shall be no more."""
        place = reading_place()
        self._places.read_at(place)
        self._loaders.largest.different = None
        if not self._traces_on():
            self._later.reads_before(iterator)
            self._early.before_read(iterator)
            return
        of_steps = id(iterator._dataset) in self._fed
        self._read_elsewhere = of_steps and not self._places.learns_at(place)
        if of_steps and not self._read_elsewhere:
            self._read_of_steps(iterator)
            return
        if self._phase is not PhaseName.EVALUATION or not self._evaluation.reads_on(iterator):
            self._close(self._phase)
            self._undecided = True
        self._later.owes_step = False
        self._quiet_since = 0.0  # a batch is news
        if not self._evaluation.wants(iterator, Peak(*self._recorder.kept())):
            self._passes.end()
            self._take()
            self._run = self._evaluation.told(self._run)
            raise StopIteration
        self._loaders.largest.different = MAX_DIFFERENT

    def _read_of_steps(self, iterator: Any) -> None:
        """Data that feeds steps is wanted: there is some for one step of each later epoch."""
        if self._later.gives(iterator):
            if self._phase is not PhaseName.LATER_STEP:
                self._close(PhaseName.LATER_STEP)
            return
        self._empty += 1
        if self._empty > self._patience_with_epochs() and self._later.are_over:
            self._finish("")
        raise StopIteration

    def _patience_with_epochs(self) -> int:
        """Empty epochs that the program may have; more where they are all that it has."""
        if PhaseName.EVALUATION not in self._run.peaks:
            return EPOCHS
        return 1 if self._run.saved else EPOCHS_EVALUATED

    def _take(self) -> Peak:
        """The peak since the last time, which counts in the phase that it is in."""
        peak = Peak(*self._recorder.peaks_since())
        peaks = self._run.peaks
        peaks[self._phase] = peaks.get(self._phase, Peak(0, 0)) | peak
        return peak

    def _close(self, begins: PhaseName) -> None:
        """End a phase, and begin another."""
        self._passes.end()
        self._take()
        self._phase = begins

    def _ask_trainers(self) -> None:
        """Let Trainers evaluate and save after this step, if they ever do."""
        of_transformers = namespace("transformers.trainer").get("Trainer", ())
        of_lightning = tuple(
            namespace(name)["Trainer"]
            for name in ("lightning.pytorch", "pytorch_lightning")
            if "Trainer" in namespace(name)
        )
        for found in gc.get_objects():
            kind = type(found)  # objects may raise when asked for their class
            if issubclass(kind, of_transformers):
                _ask(found)
            elif issubclass(kind, of_lightning):
                found.val_check_batch = 1

    def _watch_saving(self, place: str) -> None:
        module, _, kind = place.partition(":")
        holder: Any = sys.modules[module]
        if kind and kind not in namespace(module):
            return
        for name, way in _SAVING[place].items():
            owner = getattr(holder, kind) if kind else holder
            named = f"{kind or module}.{name}".replace("_save_checkpoint", "save_checkpoint")
            patch_for_good(
                owner,
                name,
                self._saver(named, way, getattr(owner, name)),
                why="what it would save is counted",
            )

    def _saver(self, named: str, way: str, save: Callable[..., None]) -> Callable[..., None]:
        def saves(*args: Any, **kwargs: Any) -> None:
            if self._traces_on():
                self._save(named, way, (*args, *kwargs.values()))
            save(*args, **kwargs)

        return saves

    def _save(self, named: str, way: str, given: tuple[Any, ...]) -> None:
        before = self._phase
        self._close(PhaseName.SAVING)
        self._close(before)
        tensors = [one for value in given for one in tensors_in(value)] or self._weights_of(given)
        on_device = [one.untyped_storage().nbytes() for one in tensors if self._on_gpu(one)]
        file = sum(on_device) if way == _FILE else 0
        saved = Saved(named, file, max(on_device, default=0))
        known = self._run.saved
        if known is None or (saved.file, saved.largest) > (known.file, known.largest):
            self._run = replace(self._run, saved=saved)

    def _weights_of(self, given: tuple[Any, ...]) -> list[torch.Tensor]:
        """Weights that a function saves: of adapters alone, where the model has them."""
        owners = (getattr(value, "model", value) for value in given)
        model = next((one for one in owners if isinstance(one, torch.nn.Module)), self._steps.model)
        adapted = any(hasattr(part, "peft_config") for part in model.modules())
        return [one for one in model.parameters() if one.requires_grad or not adapted]

    def _on_gpu(self, tensor: torch.Tensor) -> bool:
        return not self._machine.shows_gpu or tensor.device.type == "cuda"

    def _finish(self, left: str) -> NoReturn:
        self._finished = True
        self._passes.end()
        self._take()
        self._hand_over(replace(self._evaluation.told(self._run), left=left))

    def _before_change(self, what: str) -> None:
        if not self._finished:  # our own files are removed at the end
            self._finish(what)

    def _too_late(self, stack: traceback.StackSummary) -> None:
        where = self._steps.program.line(stack)
        self._finish(f"it is{where} after {FOLLOWED_SECONDS:,.0f} s")

    def _stopped(self, error: EngineError) -> NoReturn:
        if not self._traces_on():
            self._hand_over(self._early.cause_of(error))
        self._finish("" if "ended after" in str(error) else getattr(error, "reason", str(error)))

    def _refused(self, error: EngineError) -> NoReturn:
        self._stopped(error)


def _ask(trainer: Any) -> None:
    """Let a Trainer of transformers evaluate and save at the end of its step."""
    for strategy, asked in (
        ("eval_strategy", "should_evaluate"),
        ("save_strategy", "should_save"),
    ):
        chosen = str(getattr(trainer.args, strategy, "no")).lower().rpartition(".")[2]
        if chosen != "no":
            setattr(trainer.control, asked, True)


class _Evaluation:
    """Batches that the program reads for its evaluation.

    Attributes:
        reads: Whether it has read any.
    """

    def __init__(self) -> None:
        self.reads = False
        self._iterator: object = None
        self._held: list[Peak] = []  # before each batch
        self._batches: int | None = None
        self._begun = 0.0
        self._read = 0

    def reads_on(self, iterator: Any) -> bool:
        """Whether it was this iterator that read last."""
        return iterator is self._iterator

    def wants(self, iterator: Any, held: Peak) -> bool:
        """Whether another batch is read, of what may be another evaluation.

        Args:
            iterator: The iterator that reads.
            held: Bytes that are held now.
        """
        if iterator is not self._iterator:
            self._iterator, self._held, self._read = iterator, [], 0
            self._batches = batches_of(iterator._index_sampler)
            self._begun = time.process_time()
        self.reads = True
        self._held.append(held)
        wanted = self._read < EVALUATED_BATCHES or self._grows_on()
        self._read += wanted
        return wanted

    def _grows_on(self) -> bool:
        """Whether the batches that are left can be read to see what they keep."""
        soon = time.process_time() - self._begun < GROWING_SECONDS
        return self._batches is not None and self._of_each() != Peak(0, 0) and soon

    def _of_each(self) -> Peak:
        """Bytes that each batch keeps."""
        before, after = self._held[-2:]
        return Peak(max(0, after.device - before.device), max(0, after.host - before.host))

    def told(self, run: WholeRun) -> WholeRun:
        """The run with what the rest of an evaluation's batches keep."""
        if not self._read or PhaseName.EVALUATION not in run.peaks:
            return run
        peak, of_each, grows = run.peaks[PhaseName.EVALUATION], Peak(0, 0), False
        if self._read >= EVALUATED_BATCHES and self._batches is not None:
            rest, of_each = self._batches - self._read, self._of_each()
            grows = of_each != Peak(0, 0)
            peak = Peak(peak.device + rest * of_each.device, peak.host + rest * of_each.host)
        batches = max(
            (one for one in (run.batches, self._batches) if one is not None), default=None
        )
        self._read = 0
        peaks = run.peaks | {PhaseName.EVALUATION: peak}
        return replace(run, peaks=peaks, batches=batches, grows=run.grows or grows)
