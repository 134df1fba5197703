"""The answer to a request for a script, from the findings about it."""

from __future__ import annotations

from ...answer.certificate import repeat_commands
from ...answer.conclusion import Findings, answer
from ...interface.result import AnalysisResult
from ...interface.trial import Source
from ...script.live import Live
from ...script.request import ScriptRequest


def conclude_script(request: ScriptRequest, found: Findings) -> AnalysisResult:
    """The answer to a request for a script."""
    settings = {"memory_limit_bytes": request.memory_limit_bytes, "allocator": request.allocator}
    changed = {name: value for name, value in settings.items() if value}
    commands, runs = [], []
    # No other process can repeat what lives in one, and none makes the moves.
    if not (isinstance(request.script, Live) or found.moves):
        words = request.script.words()
        commands = repeat_commands(request, words, changed, found.source, found.sides)
        runs = repeat_commands(request, words, changed, Source.MEASURED, found.batches)
    return answer(request, found, request.script.name, commands, runs)
