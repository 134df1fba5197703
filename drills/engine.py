"""An engine that speaks the real protocol and computes nothing.

``python -m drills.engine RESULT TRIALS SECONDS HOLD``: each analysis has TRIALS trials,
takes SECONDS in all, and ends with the result in the file RESULT. Trials known from an earlier try
are not made again. A lookup takes SECONDS too, and is answered with the batch size it asks about.
As long as there is a file HOLD, those it is about wait; see :class:`Hold`.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.events import Answer, Log, to_json_line
from engine.process import lines_of
from engine.result import Source, Trial

_LOOK_EVERY_SECONDS = 0.02


@dataclass(frozen=True)
class Hold:
    """Which questions wait, so that a drill can do something in the middle of them.

    Attributes:
        after: So many trials of an analysis are made before.
        gpu: Only those about this GPU wait; empty is any.
    """

    after: int
    gpu: str

    def write(self, file: Path) -> None:
        """Make it hold."""
        new = file.with_suffix(".new")
        new.write_text(json.dumps(asdict(self)))
        new.replace(file)  # nobody reads half of it

    @classmethod
    def read(cls, file: Path) -> Hold | None:
        """What holds now, if anything."""
        try:
            return cls(**json.loads(file.read_text()))
        except FileNotFoundError:
            return None

    def is_about(self, request: dict[str, Any], trials: int) -> bool:
        """Whether a question with so many trials waits."""
        return trials >= self.after and self.gpu in ("", request["gpu"])


def main(result: dict[str, object], trials: int, seconds: float, hold: Path) -> None:
    """Answer until nobody asks any more."""
    for line in lines_of(sys.stdin):
        asked = json.loads(line)
        request = asked["request"]
        if "ask" in asked:
            _wait(hold, request, trials)
            time.sleep(seconds)
            _say(to_json_line(Answer({"asked": request["current_batch_size"]})))
            continue
        known = {trial["batch_size"] for trial in asked["trials"]}
        for batch_size in range(1, trials + 1):
            _wait(hold, request, batch_size - 1)
            if batch_size in known:
                continue
            _say(to_json_line(Trial(batch_size, fits=True, source=Source.PREDICTED)))
            _say(to_json_line(Log(f"batch {batch_size} fits")))
            time.sleep(seconds / trials)
        _say(json.dumps({"type": "result", "result": result}))


def _wait(hold: Path, request: dict[str, Any], trials: int) -> None:
    while (held := Hold.read(hold)) and held.is_about(request, trials):
        time.sleep(_LOOK_EVERY_SECONDS)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(
        json.loads(Path(sys.argv[1]).read_text()),
        int(sys.argv[2]),
        float(sys.argv[3]),
        Path(sys.argv[4]),
    )
