"""An engine that speaks the real protocol and computes nothing.

``python -m analyses.drills.engine RESULT TRIALS SECONDS``: each analysis has TRIALS trials, takes
SECONDS in all, and ends with the result in the file RESULT. Trials known from an earlier try are
not made again. A lookup takes SECONDS too, and is answered with the batch size it asks about.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from engine.events import Answer, Log, to_json_line
from engine.lifeline import lines_of
from engine.result import Source, Trial


def main(result: dict[str, object], trials: int, seconds: float) -> None:
    """Answer until nobody asks any more."""
    for line in lines_of(sys.stdin):
        asked = json.loads(line)
        if "ask" in asked:
            time.sleep(seconds)
            _say(to_json_line(Answer({"asked": asked["request"]["current_batch_size"]})))
            continue
        known = {trial["batch_size"] for trial in asked["trials"]}
        for batch_size in range(1, trials + 1):
            if batch_size in known:
                continue
            _say(to_json_line(Trial(batch_size, fits=True, source=Source.PREDICTED)))
            _say(to_json_line(Log(f"batch {batch_size} fits")))
            time.sleep(seconds / trials)
        _say(json.dumps({"type": "result", "result": result}))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2]), float(sys.argv[3]))
