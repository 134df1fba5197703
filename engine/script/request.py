"""The request for one analysis of a script.

Kept apart from :class:`~engine.interface.request.AnalysisRequest` on purpose: that one also comes
in over the web, and must never name code to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..core.border import read
from ..core.errors import InvalidInput
from ..core.fields import described_fields
from ..core.parsing import collect
from ..features.training import MAX_ACCUMULATION
from ..gpus import ANY, GPUS, LOCAL
from ..interface.assumptions import Assumptions
from ..interface.program import ProgramRequest, TracedProgram, usual_name, wrong_name
from ..interface.request import FIELDS, Request
from ..interface.result import AnalysisResult
from ..versions import software
from .factory import Factory
from .live import Live
from .program import Program

Script = Factory | Program | Live

_NOT_MEASURED = (
    "this is predicted in its own process; choose a GPU that `memorymark devices` lists, or "
    "measure a script or a factory"
)


@dataclass(frozen=True)
class ScriptRequest(Request):
    """One request about a script: a factory of training steps, a program, or live training.

    To keep a global batch, a factory has to accept the number of micro-batches. ``software`` is
    that of :class:`~engine.interface.workload.Workload`.

    Attributes:
        batch_given: Whether somebody gave the current batch size; else it may be found out.
        multiple_taken: Only multiples of it are batch sizes that the script takes.
    """

    script: Script
    batch_given: bool = True
    multiple_taken: int = 1
    gpu: str = field(default=LOCAL, kw_only=True)
    software: str = field(default="", kw_only=True)

    def _check(self, wrong: dict[str, str]) -> None:
        super()._check(wrong)
        if self.gpu == ANY:
            self._check_any(wrong)

    @property
    def gradient_accumulation(self) -> int:
        """Micro-batches per step of the script today."""
        return self.script.gradient_accumulation

    @property
    def least_multiple(self) -> int:
        return self.multiple_taken

    @property
    def world_size(self) -> int:
        """One: a script's steps run on one GPU."""
        return 1

    def script_at(self, batch_size: int) -> Factory | Program:
        """The script to measure, accumulating as many micro-batches of that size as needed.

        Raises:
            InvalidInput: For ``gpu``, if it lives in this process, since trials have their own.
        """
        if isinstance(self.script, Live):
            raise InvalidInput({"gpu": _NOT_MEASURED})
        accumulated = min(self.accumulation_at(batch_size), MAX_ACCUMULATION)
        return replace(self.script, gradient_accumulation=accumulated)

    def lab_name(self, wanted: str = "") -> str:
        """The name of the script in a lab: the wanted one, else that of its file.

        Raises:
            InvalidInput: For ``name``, if no script can have it.
        """
        name = wanted or usual_name(self._words[0]) or self.script.name
        if problem := wrong_name(name):
            raise InvalidInput({"name": problem})
        return name

    @property
    def _words(self) -> tuple[list[str], list[str]]:
        """The arguments that name it on our command line, without a path of this machine.

        None for what lives in a process.
        """
        if isinstance(self.script, Live):
            return [], []
        before, after = self.script.words()
        if Path(before[0]).is_absolute():
            before[0] = self.script.name
        return before, after

    def for_lab(self, result: AnalysisResult, name: str = "") -> ProgramRequest:
        """This request as a lab stores it, with neither code nor paths of a machine.

        Args:
            result: The answer to it.
            name: Name of the script in the lab; by default its file's.

        Raises:
            InvalidInput: For ``name``, if no script can have it.
        """
        if self.gpu == ANY:
            return self._on(result.gpu.name).for_lab(result, name)
        words, arguments = self._words
        program = TracedProgram(
            self.lab_name(name), result.program_hash, tuple(words), tuple(arguments[1:])
        )
        multiple = self.batch_multiple
        if result.recommended_batch_size % multiple:  # none of them fits
            multiple = self.least_multiple
        settings = {name: getattr(self, name) for name in described_fields(Request)}
        settings |= {
            "current_batch_size": result.current_batch_size,  # a loader may have told it
            "batch_multiple": multiple,
        }
        return ProgramRequest(
            program,
            self.gradient_accumulation,
            self.software,
            assumptions=self.assumptions,
            **settings,
        )

    def _on(self, display_name: str) -> ScriptRequest:
        """This request for the catalogue GPU with that name."""
        chosen = next(gpu.name for gpu in GPUS.values() if gpu.display_name == display_name)
        return replace(self, gpu=chosen, most_usd_per_hour=None, most_hours_per_million=None)

    @classmethod
    def parse(cls, script: Script, given: Mapping[str, object]) -> ScriptRequest:
        """Build a request from untrusted fields, including those of :class:`Assumptions`.

        Args:
            script: The script that trains.
            given: Values by field name, ``gradient_accumulation`` and ``software`` included. Empty
                text and ``None`` mean the default.

        Raises:
            InvalidInput: With a message for each wrong or unknown field.
        """
        filled: dict[str, Any] = {n: value for n, value in given.items() if value not in (None, "")}
        accumulation = filled.pop("gradient_accumulation", 1)
        pins = str(filled.pop("software", ""))
        assumed = described_fields(Assumptions).keys() & filled.keys()
        requested = described_fields(Request).keys() & filled.keys()
        code = "factory's code" if isinstance(script, Factory) else "script"
        message = f"the {code} decides this; leave it out"
        wrong = dict.fromkeys(filled.keys() - requested - assumed, message)
        assumptions = collect(
            lambda: Assumptions(**{name: filled[name] for name in assumed}), wrong
        )
        accumulated = read(FIELDS["gradient_accumulation"], accumulation, wrong)
        versions = collect(lambda: software.parse(pins), wrong) or {}
        if isinstance(script, Live) and filled.get("gpu", LOCAL) == LOCAL:
            wrong["gpu"] = _NOT_MEASURED
        if not isinstance(script, Factory) and "global_batch_size" in filled:
            wrong["global_batch_size"] = (
                "a script cannot be told to accumulate; leave this out, or pass a factory"
            )
        request = collect(
            lambda: cls(
                replace(script, gradient_accumulation=accumulated or 1),
                "current_batch_size" in filled,
                assumptions=assumptions or Assumptions(),
                software=software.as_text(versions),
                **{name: filled[name] for name in requested},
            ),
            wrong,
        )
        if wrong or request is None:
            raise InvalidInput(wrong)
        return request
