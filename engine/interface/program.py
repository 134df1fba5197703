"""A training script as a lab knows it: by a name and a hash of what was traced, never by its code.

A :class:`ProgramRequest` is what remains of a request about a script once it has been answered
where the script is. It comes in over the web, so nothing in it is ever run, imported or opened.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from ..core.border import read
from ..core.choices import Goal, Precision
from ..core.errors import InvalidInput
from ..core.fields import described_fields
from ..core.parsing import collect, shown, unknown_fields
from ..gpus import ANY
from ..models.presets import PRESETS
from ..versions import software
from .assumptions import Assumptions
from .request import FIELDS, AnalysisRequest, Request, as_flags
from .subject import MODEL, PROGRAM, Subject
from .workload import OWN_CONFIG

NEVER_RUN = "the site never runs scripts of its members"
MAX_NAME_LENGTH = 100
MAX_WORDS = 200
MAX_WORD_LENGTH = 1000

_NAME = re.compile(rf"\w[\w .:+=@,#()\[\]-]{{0,{MAX_NAME_LENGTH - 1}}}")
_HASH = re.compile(r"[0-9a-f]{64}")
_FACTORY = "--factory"
_SETTINGS = ("gradient_accumulation", "software")
PROGRAM_FIELDS = (
    *described_fields(Request), *described_fields(Assumptions), *_SETTINGS,
)  # fmt: skip
"""The settings of a request about a script, besides what names it."""

_ALWAYS = ("gpu", "current_batch_size")
"""Settings that a command names whatever they are."""


@dataclass(frozen=True)
class TracedProgram:
    """The identity of a script, and how its user names it on a command line.

    Attributes:
        name: The file's name, or one that its user chose.
        hash: Hash of what was traced; see :mod:`engine.script.identity`.
        words: Arguments of our commands that name it, before their flags.
        arguments: Its own arguments.

    Raises:
        InvalidInput: On construction, with a message for each wrong field.
    """

    name: str
    hash: str
    words: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        wrong: dict[str, str] = {}
        if problem := wrong_name(self.name):
            wrong[MODEL] = problem
        if not (isinstance(self.hash, str) and _HASH.fullmatch(self.hash)):
            wrong[f"{PROGRAM}.hash"] = "enter the 64 hexadecimal digits that the analysis gave"
        for field in ("words", "arguments"):
            if not _are_words(getattr(self, field)):
                wrong[f"{PROGRAM}.{field}"] = (
                    f"send at most {MAX_WORDS} printable texts of at most {MAX_WORD_LENGTH:,} "
                    "characters each"
                )
        if wrong:
            raise InvalidInput(wrong)

    @classmethod
    def parse(cls, name: object, given: object) -> TracedProgram:
        """Read it from untrusted fields, as :meth:`to_dict` writes them.

        Raises:
            InvalidInput: With a message for each wrong, unknown or missing field.
        """
        if not isinstance(given, Mapping):
            raise InvalidInput({PROGRAM: "send a JSON object"})
        known = {field.name for field in fields(cls)} - {"name"}
        if wrong := unknown_fields(given, known):
            raise InvalidInput({f"{PROGRAM}.{field}": text for field, text in wrong.items()})
        words, arguments = (_as_tuple(given.get(field, ())) for field in ("words", "arguments"))
        return cls(name, given.get("hash"), words, arguments)  # type: ignore[arg-type]  # it checks them

    def to_dict(self) -> dict[str, object]:
        """Everything but the name, as plain JSON values."""
        return {"hash": self.hash, "words": [*self.words], "arguments": [*self.arguments]}

    @property
    def command_words(self) -> tuple[list[str], list[str]]:
        """The words before our flags, and after them."""
        return [*self.words], ["--", *self.arguments] if self.arguments else []


def wrong_name(name: object) -> str:
    """Why a program cannot have this name; empty if it can."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return (
            f"{shown(name)} cannot be a script's name; use letters, digits, spaces and .:+-_, at "
            f"most {MAX_NAME_LENGTH} of them"
        )
    if name == OWN_CONFIG or any(name in (one.name, one.hub_id) for one in PRESETS.values()):
        return f"{shown(name)} is the name of a model; choose another for your script"
    return ""


def usual_name(words: Sequence[str]) -> str:
    """The name of a script that is given none: that of its file, or of its factory."""
    first, *others = words or ("",)
    return "".join(others[:1]) if first == _FACTORY else PurePosixPath(first).name


MOVED: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {
        "precision": (Precision.TF32, Precision.BF16_MIXED, Precision.FP16_MIXED),
        "optimizer": ("fused",),
        "gradient_checkpointing": (True, False),
    }
)
"""The settings that a move changes in a script, with the values that they may get."""


@dataclass(frozen=True)
class ProgramRequest(Request):
    """The settings of an analysis of a script that ran elsewhere.

    Attributes:
        micro_batches: Micro-batches per optimizer step of the script.
        software: That of :class:`~engine.interface.workload.Workload`.
    """

    program: TracedProgram
    micro_batches: int = 1
    software: str = ""

    def _check(self, wrong: dict[str, str]) -> None:
        super()._check(wrong)
        if self.gpu == ANY:
            wrong["gpu"] = "a script is analyzed for one GPU; name it"

    @property
    def gradient_accumulation(self) -> int:
        return self.micro_batches

    @property
    def world_size(self) -> int:
        """One: the answer is about one GPU of a script."""
        return 1

    @property
    def goal(self) -> Goal:
        """A batch: nothing else is found for a script."""
        return Goal.BATCH

    @property
    def subject(self) -> Subject:
        program = self.program
        return Subject(program.name, program_hash=program.hash, software=self.software)

    @property
    def analyze_command(self) -> str:
        """The command that analyzes it again and pushes that; empty if none names it."""
        return self._command("analyze")

    @property
    def plan_command(self) -> str:
        """The command that compares GPUs for it and pushes that; empty as above."""
        return self._command("plan")

    def _command(self, verb: str) -> str:
        if not self.program.words:
            return ""
        named = self.program.name == usual_name(self.program.words)
        before, after = self.program.command_words
        values = self.to_dict() | {MODEL: None}
        changed = {
            name: values[name]
            for name, described in FIELDS.items()
            if values.get(name) is not None
            and (name in _ALWAYS or values[name] != described.default)
        }
        words = ["memorymark", verb, *before, *as_flags(changed), "--push"]
        words += [] if named else ["--name", self.program.name]
        return shlex.join([*words, *after])

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> ProgramRequest:
        """Build a request from untrusted, flat fields, as :meth:`to_dict` writes them.

        Raises:
            InvalidInput: With a message for each wrong, unknown or missing field.
        """
        filled = {name: value for name, value in given.items() if value not in (None, "")}
        settings, costs = described_fields(Request), described_fields(Assumptions)
        wrong = unknown_fields(filled, {MODEL, PROGRAM, *PROGRAM_FIELDS})
        wrong |= dict.fromkeys({"gpu", "current_batch_size"} - filled.keys(), "is missing")
        program = collect(lambda: TracedProgram.parse(given.get(MODEL), given.get(PROGRAM)), wrong)
        assumed = {name: filled[name] for name in costs if name in filled}
        assumptions = collect(lambda: Assumptions(**assumed), wrong)
        count = read(FIELDS["gradient_accumulation"], filled.get("gradient_accumulation", 1), wrong)
        pins = collect(lambda: software.parse(str(filled.get("software", ""))), wrong) or {}
        request = collect(
            lambda: cls(
                program or TracedProgram("unknown", "0" * 64),
                count or 1,
                software.as_text(pins),
                assumptions=assumptions or Assumptions(),
                **{"gpu": "local"} | {name: filled[name] for name in settings if name in filled},
            ),
            wrong,
        )
        if wrong or request is None:
            raise InvalidInput(wrong)
        return request

    def to_dict(self) -> dict[str, object]:
        """The flat fields; the inverse of :meth:`parse`."""
        plain = {name: getattr(self, name) for name in described_fields(Request)}
        own: dict[str, object] = {
            MODEL: self.program.name,
            PROGRAM: self.program.to_dict(),
            "gradient_accumulation": self.micro_batches,
            "software": self.software,
        }
        return own | plain | asdict(self.assumptions)


AnyRequest = AnalysisRequest | ProgramRequest


def read_request(given: Mapping[str, Any]) -> AnyRequest:
    """The request in flat, untrusted fields: for a program if they name one, else for a workload.

    Raises:
        InvalidInput: With a message for each wrong or unknown field.
    """
    if PROGRAM in given:
        return ProgramRequest.parse(given)
    return AnalysisRequest.parse(given)


def stored_program(request: Mapping[str, Any]) -> ProgramRequest | None:
    """The request of a script in stored fields; ``None`` for a workload, or if unreadable."""
    try:
        found = read_request(request)
    except InvalidInput:  # another version stored it
        return None
    return found if isinstance(found, ProgramRequest) else None


def workload_request(given: Mapping[str, Any]) -> AnalysisRequest:
    """The same for what a lab runs itself, which never is somebody's script.

    Raises:
        InvalidInput: Also for a program, with the command to run instead.
    """
    request = read_request(given)
    if isinstance(request, ProgramRequest):
        raise InvalidInput({PROGRAM: run_elsewhere(request)})
    return request


def run_elsewhere(request: ProgramRequest) -> str:
    """Why a lab does not run a script, and what to do instead."""
    command = request.analyze_command
    again = f"run `{command}`" if command else "analyze it again and push that"
    return f"{NEVER_RUN}; {again} where {request.program.name} is"


def _are_words(given: object) -> bool:
    return (
        isinstance(given, tuple)
        and len(given) <= MAX_WORDS
        and all(
            isinstance(word, str) and word.isprintable() and len(word) <= MAX_WORD_LENGTH
            for word in given
        )
    )


def _as_tuple(given: object) -> object:
    return tuple(given) if isinstance(given, list) else given
