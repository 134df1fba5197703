"""An engine that speaks the real protocol and computes nothing.

``python -m drills.engine RESULT TRIALS SECONDS HOLD``: each analysis has TRIALS trials, takes
SECONDS in all, and ends with the result in the file RESULT. Trials known from an earlier attempt
are not repeated. A query takes SECONDS too, and its answer is the batch size in its request. While
a file HOLD exists, the requests it matches wait; see :class:`Hold`.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.core.process import lines_of
from engine.events import Answer, Log, to_json_line
from engine.interface.trial import Source, Trial

_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Hold:
    """The requests that wait, so that a drill can act while they are half done.

    Attributes:
        after: An analysis waits after this many trials.
        gpu: Only requests for this GPU wait; empty means any.
    """

    after: int
    gpu: str

    def write(self, file: Path) -> None:
        """Put the hold into effect."""
        new = file.with_suffix(".new")
        new.write_text(json.dumps(asdict(self)))
        new.replace(file)  # no reader sees half of it

    @classmethod
    def read(cls, file: Path) -> Hold | None:
        """The hold now in effect, if any."""
        try:
            return cls(**json.loads(file.read_text()))
        except FileNotFoundError:
            return None

    def matches(self, request: dict[str, Any], trials: int) -> bool:
        """Whether a request with this many trials done waits."""
        return trials >= self.after and self.gpu in ("", request["gpu"])


def main(result: dict[str, object], trials: int, seconds: float, hold: Path) -> None:
    """Serve requests until the input ends."""
    for line in lines_of(sys.stdin):
        order = json.loads(line)
        request = order["request"]
        if "ask" in order:
            _wait(hold, request, trials)
            time.sleep(seconds)
            _write(to_json_line(Answer({"asked": request["current_batch_size"]})))
            continue
        known = {trial["batch_size"] for trial in order["trials"]}
        for batch_size in range(1, trials + 1):
            _wait(hold, request, batch_size - 1)
            if batch_size in known:
                continue
            _write(to_json_line(Trial(batch_size, fits=True, source=Source.PREDICTED)))
            _write(to_json_line(Log(f"batch {batch_size} fits")))
            time.sleep(seconds / trials)
        _write(json.dumps({"type": "result", "result": result}))


def _wait(hold: Path, request: dict[str, Any], trials: int) -> None:
    while (held := Hold.read(hold)) and held.matches(request, trials):
        time.sleep(_POLL_SECONDS)


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(
        json.loads(Path(sys.argv[1]).read_text()),
        int(sys.argv[2]),
        float(sys.argv[3]),
        Path(sys.argv[4]),
    )
