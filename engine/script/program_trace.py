"""Traces a program: it runs in a fork, on a pretended machine, until enough steps have ended."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import torch

from ..core.errors import EngineError
from ..gpus import Gpu
from ..tracing.beside import ThreadsBeside
from ..tracing.excerpts import snapshot
from ..tracing.hidden_gpus import backward_runs, hide_gpus
from ..tracing.lowering import CudaBehaviour
from ..tracing.trace import Category, Trace
from .data.early_evaluation import CutTooShort, EarlyEvaluations
from .data.loaders import Feeding, Loaders
from .devices.process_group import processes_joined
from .factory import ScriptFailed
from .libraries.micro_batches import MicroBatches
from .live import Live
from .machine import Machine, pretended_machine
from .moves.kinds import MoveNotMade
from .moves.making import MovesInScript
from .process.deepspeed import follow_deepspeed
from .process.fork import Done, Fork, last_words, watch
from .process.metrics import go_without_metrics
from .process.passes_in_a_row import PassesInARow
from .process.preloading import preload
from .process.running import ProgramSteps
from .process.sandbox import keep_quiet
from .process.unlike_steps import STEPS, unlike
from .program import Program
from .trace_report import classes_of, divided, fewer, of_evaluation, seen
from .values.placeholders import Values

MAX_WAIT_SECONDS = 600.0
"""Time that a script may take to its first step, and from one to the next. It loads its data, and
computes nothing on tensors."""

_Found = TypeVar("_Found")
End = Callable[[_Found | EngineError], NoReturn]
Refuse = Callable[[BaseException], EngineError]


def begin_trace(
    program: Program | Live,
    batch_size: int,
    behaviour: CudaBehaviour | None,
    gpu: Gpu | None,
    values: Values,
    shows_gpu: bool,
    refuse: Refuse,
    one_more: bool,
) -> Callable[[], Trace]:
    """Begin to trace the steps of a program, in a process of its own.

    Args:
        program: The program to run.
        batch_size: Samples per step.
        behaviour: Behaviour of the GPU; ``None`` traces what the CPU does.
        gpu: The GPU that the script sees.
        values: Values that it gets where it reads tensors; they record where it does.
        shows_gpu: Whether it sees a GPU.
        refuse: Converts an error of the script into ours.
        one_more: Whether to compare one more step with the last, and report if they differ.

    Returns:
        Waits for the trace. It raises :class:`ScriptFailed` if the program ends or hangs before
        enough steps have ended, and what ``refuse`` makes of an error of the script.
    """

    def work(end: End[Trace], cuts: bool) -> None:
        whole = isinstance(program, Program)
        with pretended_machine(
            behaviour, gpu, values, shows_gpu=shows_gpu, takes_real=whole
        ) as machine:
            follow_deepspeed(machine)
            steps = STEPS + one_more
            Tracing(program, batch_size, values, machine, end, steps, cuts).run(refuse)

    if isinstance(program, Program) and behaviour is not None and shows_gpu:
        preload(program, behaviour, gpu)
    return begin_cutting(values, work)


def find_loaders(
    program: Program,
    behaviour: CudaBehaviour | None,
    gpu: Gpu | None,
    values: Values,
    refuse: Refuse,
) -> Feeding:
    """Find the loaders that feed the steps of a program, which runs until two have ended.

    Args:
        program: The program to run, at its own batch size.
        behaviour: Behaviour of the GPU; ``None`` without one.
        gpu: The GPU that the script sees.
        values: Values that it gets where it reads tensors.
        refuse: Converts an error of the script into ours.

    Raises:
        InvalidInput: For ``batch_flag``, if no loader feeds it, or several that differ.
        ScriptFailed: If it ends or hangs before that.
        EngineError: What ``refuse`` makes of an error of the script.
    """

    def work(end: End[Feeding], cuts: bool) -> None:
        loaders = Loaders()

        def step_ended() -> None:
            # What was read before the first may have been for anything, unless it was one thing.
            if steps.ended == 2 or loaders.read_one_set:
                end(loaders.feeding())
            loaders.step_ended()

        shows_gpu = behaviour is not None
        with pretended_machine(
            behaviour, gpu, values, shows_gpu=shows_gpu, takes_real=True
        ) as machine:
            follow_deepspeed(machine)
            _Patience(program, end)
            steps = ProgramSteps(program, None, step_ended)
            early = EarlyEvaluations(
                loaders.evaluated, cuts, lambda: steps.ended > 0, lambda: (0, 0)
            )
            loaders.before_read = early.before_read
            try:
                with loaders.followed(at_home=True):
                    steps.run()
            except EngineError as error:
                end(early.cause_of(error))
            except SystemExit as error:
                end(early.cause_of(ScriptFailed(ended_with(steps, error))))
            except Exception as error:
                end(early.cause_of(refuse(error)))

    if behaviour is not None:
        preload(program, behaviour, gpu)
    return begin_cutting(values, work)()


def begin_cutting(
    values: Values, work: Callable[[End[_Found], bool], None]
) -> Callable[[], _Found]:
    """Begin to do something in a fork that cuts evaluations between the first steps short.

    Where a script cannot do without the rest of them, it is done again with all.

    Args:
        values: Values that the script gets where it reads tensors.
        work: As for :func:`begin_apart`; it is told whether to cut.
    """

    def begin(cuts: bool) -> Callable[[], _Found]:
        def work_so(end: End[_Found]) -> None:
            work(end, cuts)

        return begin_apart(values, work_so)

    cutting = begin(True)

    def found() -> _Found:
        try:
            return cutting()
        except CutTooShort:
            vars(values).update(vars(Values(values.placeholders, limit=values.limit)))
            return begin(False)()

    return found


def begin_apart(values: Values, work: Callable[[End[_Found]], None]) -> Callable[[], _Found]:
    """Begin to do something in a fork that is kept quiet.

    Args:
        values: Values that the script gets where it reads tensors.
        work: Function to run. It hands over what it found, or an error, and ends the process so.

    Returns:
        Waits for what was found; what the script read is recorded in ``values`` then.
    """

    def with_values(done: Done[tuple[_Found, dict[str, Any]]]) -> None:
        hide_gpus()
        if not backward_runs():
            done(EngineError(_TOO_LATE))
        # OpenMP's threads do not survive fork(), and code that asks for them would wait for ever.
        torch.set_num_threads(1)
        random.seed(0)  # Python seeds it anew in every fork, and traces are compared
        scratch = keep_quiet()
        go_without_metrics()

        def end(found: _Found | EngineError) -> NoReturn:
            scratch.remove()
            read = {name: value for name, value in vars(values).items() if name != "limit"}
            if isinstance(found, EngineError):
                vars(found)[_VALUES] = read
                done(found)
            done((found, read))

        work(end)

    fork = Fork(with_values)

    def found() -> _Found:
        try:
            answer, read = fork.answer()
        except EngineError as error:
            vars(values).update(vars(error).pop(_VALUES, {}))
            raise
        vars(values).update(read)
        return answer

    return found


_VALUES = "values_read"
_TOO_LATE = (
    "this process has used a GPU already, after which PyTorch allows no backward pass in a fork of "
    "it, and the step is traced in one; predict before anything is on the GPU, start Python with "
    "CUDA_VISIBLE_DEVICES= (nothing after the =), or predict the script: memorymark predict "
    "SCRIPT.py"
)


def ended_with(steps: ProgramSteps, error: SystemExit) -> str:
    """Why a script that ended itself cannot be predicted."""
    if error.code in (None, 0):
        return steps.ended_early()
    said = error.code if isinstance(error.code, str) else last_words()
    return f"{steps.program.name} ended with an error{steps.program.where(error)}: {said}"


class Tracing:
    """One trace of a program, in the fork.

    Args:
        program: The program to run.
        batch_size: Samples per step.
        values: Values that it gets where it reads tensors.
        machine: The machine that it runs on.
        end: Receives the trace, or what comes of it, or an error.
        steps: Steps to trace.
        cuts: Whether to cut evaluations between the first steps short.
    """

    def __init__(
        self,
        program: Program | Live,
        batch_size: int,
        values: Values,
        machine: Machine,
        end: End[Any],
        steps: int,
        cuts: bool,
    ) -> None:
        self._program, self._end, self._wanted = program, end, steps
        self._steps = ProgramSteps(
            program,
            batch_size,
            self._step_ended,
            lambda module: self._moves.before_forward(module),
        )
        positions = program.loaders if isinstance(program, Program) else ()
        self._batch_size = batch_size
        self._loaders = Loaders(positions, batch_size)
        self._machine = machine
        self._recorder = machine.recorder(self._steps, batch_size)
        self._limit = values.limit
        self._limit.peak = lambda: self._recorder.trace.peak_by_category()[0]
        self._micro_batches = MicroBatches(
            self._recorder, self._model_is_made, self._loaders.passed
        )
        self._passes = PassesInARow(self._recorder)
        self._early = EarlyEvaluations(
            self._loaders.evaluated,
            cuts,
            lambda: self._steps.ended > 0,
            self._recorder.kept,
            lambda: self._recorder.trace.operations if self._steps.ended == STEPS - 1 else None,
        )
        self._loaders.before_read = self._early.before_read
        self._found: Trace | None = None
        self._batches_before = 1
        self._moves = MovesInScript(
            program.name,
            program.moves if isinstance(program, Program) else (),
            "cuda" if machine.shows_gpu else "cpu",
            self._steps.models,
        )
        self._beside = ThreadsBeside()
        self._patience = _Patience(program, end)

    def run(self, refuse: Refuse) -> None:
        """Run the program; ends the process."""
        self._micro_batches.follow()
        try:
            with (
                self._loaders.followed(at_home=True),
                self._recorder.recording(),
                self._beside.followed(self._recorder),
                self._passes.followed(),
            ):
                self._steps.run()
        except ScriptFailed as error:
            self._stopped(error)
        except EngineError as error:
            self._refused(error)
        except SystemExit as error:
            self._stopped(ScriptFailed(ended_with(self._steps, error)))
        except Exception as error:
            self._stopped(refuse(error))

    def _stopped(self, error: EngineError) -> NoReturn:
        """End the process: the program has come to its end, or raised an error of its own."""
        self._end(self._found or self._early.cause_of(error))

    def _refused(self, error: EngineError) -> NoReturn:
        """End the process: the program did what cannot be traced."""
        self._end(self._early.cause_of(error))

    def _model_is_made(self) -> None:
        """Let the recorder know, from here on, which tensors are parameters, and whose each is."""
        self._steps.find_model()
        self._recorder.know_model()

    @property
    def _batches(self) -> int:
        """Micro-batches of the step: a Trainer's own, since it reads ahead; else what was read."""
        return self._micro_batches.of_step or self._loaders.batches

    def _step_ended(self) -> None:
        self._patience.renew()
        self._limit.lift()
        self._moves.step_ended()
        self._passes.end()
        self._beside.wait()
        self._recorder.settle()
        self._recorder.end_step()
        for weight in self._steps.by_hand.plain_weights():
            self._recorder.sort_into(weight, Category.PARAMETERS)
        if self._found is not None:
            self._found.caveats += unlike(self._found, self._recorder.trace)
            self._end(self._found)
        elif self._steps.ended == STEPS:
            self._found = snapshot(self._recorder.trace)
            self._found.micro_batches = self._batches
            self._found.tf32 = torch.backends.cuda.matmul.allow_tf32
            self._found.optimizers = classes_of(self._steps.optimizer)
            self._found.world_size = processes_joined()
            self._found.divided_by = self._loaders.divided_by(self._batch_size, processes_joined())
            self._found.computed = self._machine.is_computed
            self._found.own_batches = self._loaders.own.differ
            try:
                self._found.move_lines = self._moves.lines()
            except MoveNotMade as error:
                self._end(error)
            self._found.caveats += [
                seen(self._found, self._steps.optimizer),
                *self._machine.caveats,
                *self._loaders.largest.caveats,
                *self._loaders.own.caveats,
                *self._micro_batches.caveats,
                *self._passes.caveats,
                *of_evaluation(self._loaders),
                *divided(self._found.divided_by),
                *fewer(self._batches, self._batches_before),
            ]
            if self._wanted == STEPS:
                self._end(self._found)
        self._batches_before = self._batches
        self._micro_batches.of_step = 0
        self._loaders.step_ended()
        self._recorder.begin_step()


class _Patience:
    """Ends the process, with the line that runs, where a step takes too long.

    Args:
        program: The program that runs.
        end: Takes the error.
    """

    def __init__(self, program: Program | Live, end: Callable[[EngineError], object]) -> None:
        self._program, self._end = program, end
        self._steps = 0
        self._stop = watch(MAX_WAIT_SECONDS, self._too_late)

    def renew(self) -> None:
        """A step has ended."""
        self._stop()
        self._steps += 1
        self._stop = watch(MAX_WAIT_SECONDS, self._too_late)

    def _too_late(self, stack: traceback.StackSummary) -> None:
        where = self._program.line(stack)
        step = "the first training step" if not self._steps else f"step {self._steps + 1}"
        self._end(
            ScriptFailed(
                f"{self._program.name} did not get to the end of {step} within "
                f"{MAX_WAIT_SECONDS:,.0f} s; it is{where}. Let it prepare less data"
            )
        )
