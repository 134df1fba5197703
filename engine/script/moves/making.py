"""Makes moves in a script, in the process that traces it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from weakref import WeakSet

import torch

from .checkpointing import Checkpointing, switch_off, trains_now
from .kinds import MoveNotMade, ScriptMove
from .optimizers import use_fused
from .precision import Autocasting, use_tf32


class MovesInScript:
    """The moves that are made in a script, for as long as its process lives.

    Args:
        script: Name of the script, for messages.
        moves: The moves.
        device: Type of the device that the script trains on.
        models: Gives the models that the script has made so far.
    """

    def __init__(
        self,
        script: str,
        moves: Sequence[ScriptMove],
        device: str,
        models: Callable[[], list[torch.nn.Module]],
    ) -> None:
        self._script, self._moves, self._models = script, moves, models
        self._lines: dict[ScriptMove, str] = {}
        self._seen: WeakSet[torch.nn.Module] = WeakSet()
        self._autocasting: Autocasting | None = None
        self._checkpointing: Checkpointing | None = None
        if ScriptMove.TF32 in moves:
            use_tf32(self._note(ScriptMove.TF32))
        for move in (ScriptMove.BF16, ScriptMove.FP16):
            if move in moves:
                self._autocasting = Autocasting(move, device, self._note(move))
        if ScriptMove.FUSED_OPTIMIZER in moves:
            use_fused(self._note(ScriptMove.FUSED_OPTIMIZER))
        if ScriptMove.CHECKPOINTING in moves:
            self._checkpointing = Checkpointing(self._note(ScriptMove.CHECKPOINTING))
        if ScriptMove.NO_CHECKPOINTING in moves:
            switch_off(self._note(ScriptMove.NO_CHECKPOINTING))

    def lines(self) -> list[str]:
        """The lines of code that make the moves in the script.

        Raises:
            MoveNotMade: If the script has nothing that one of them could be made on.
        """
        for move in self._moves:
            if move not in self._lines:
                raise MoveNotMade(self._script, move)
        return [self._lines[move] for move in self._moves]

    def before_forward(self, module: torch.nn.Module) -> None:
        """Make the moves that begin with a forward pass, before that of a module."""
        is_new = module not in self._seen
        if not (self._autocasting or (self._checkpointing and is_new)):
            return
        if torch._C._current_graph_task_id() != -1 or not trains_now(module):
            return
        if is_new:
            models = self._models()
            if self._checkpointing is not None:
                self._checkpointing.switch_on(models)
            self._seen |= WeakSet(part for one in (*models, module) for part in one.modules())
        if self._autocasting is not None:
            self._autocasting.before_forward()

    def step_ended(self) -> None:
        """A training step has ended."""
        if self._autocasting is not None:
            self._autocasting.step_ended()

    def _note(self, move: ScriptMove) -> Callable[[str], None]:
        return partial(self._take, move)

    def _take(self, move: ScriptMove, line: str) -> None:
        self._lines.setdefault(move, line)
