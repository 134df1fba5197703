"""Speaks the engine's protocol and misbehaves: ``fake_engine.py BEHAVIOUR [RESULT]``."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

GRANDCHILD = "import time; time.sleep(600)"
GO = "go"


def say(body: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(body) + "\n")
    sys.stdout.flush()


def log(message: str, level: str = "info") -> None:
    say({"type": "log", "level": level, "message": message})


def trial(batch_size: int, fits: bool = True) -> None:
    say({"type": "trial", "trial": {"batch_size": batch_size, "fits": fits, "source": "predicted"}})


def start_grandchild() -> None:
    child = subprocess.Popen([sys.executable, "-I", "-c", GRANDCHILD])
    log(f"grandchild {child.pid}")


def result() -> None:
    say({"type": "result", "result": json.loads(Path(sys.argv[2]).read_text())})


def success() -> None:
    log("tracing")
    log("close to the limit", "warning")
    trial(16)
    trial(300, fits=False)
    result()


def query() -> None:
    log(f"working on {order['ask']}")
    say({"type": "answer", "answer": {"batch_size": order["request"]["current_batch_size"]}})


def self_check() -> None:
    """Answers with what the test has left beside the result."""
    log(f"asked to {order['ask']}")
    found = Path(sys.argv[2]).with_name("self_check.json").read_text()
    say({"type": "answer", "answer": json.loads(found)})


def wrong() -> None:
    fields = {"config": "there is none"}
    text = "config: there is none"
    say({"type": "error", "code": "invalid_input", "message": text, "fields": fields})


def resume() -> None:
    log(f"got {order['request']['model']}, known {[t['batch_size'] for t in order['trials']]}")
    result()


def until_released() -> None:
    """Continues once the file GO exists beside the result."""
    trial(16)
    log("half way")
    while not Path(sys.argv[2]).with_name(GO).exists():
        time.sleep(0.01)
    result()


def error() -> None:
    log("tracing")
    say({"type": "error", "code": "does_not_fit", "message": "batch 1 needs 30 GiB", "fields": {}})
    sys.exit(1)


def invalid() -> None:
    say({"type": "error", "code": "invalid_input", "message": "model: unknown", "fields": {}})
    sys.exit(2)


def crash() -> None:
    sys.stderr.write("Traceback (most recent call last):\nRuntimeError: boom\n")
    sys.exit(3)


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def silent() -> None:
    sys.exit(0)


def garbage() -> None:
    os.write(1, b"\xff\xfe not text \x00\n{\n[]\n1\nnull\n{}\n" + b"[" * 100_000 + b"\n")
    say({"type": "trial", "trial": {"batch_size": "many"}})
    say({"type": "trial", "trial": None})
    say({"type": "result", "result": {"largest_batch_size": 1}})
    say({"type": "result", "result": {"speedup": float("nan")}})
    say({"type": "dance"})
    log("a NUL \0 and half a pair \ud800")
    result()


def hang() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    start_grandchild()
    time.sleep(600)


def leave_grandchild() -> None:
    start_grandchild()
    sys.exit(0)


def flood() -> None:
    for number in range(8_000):
        sys.stdout.write(f"line {number}\n")
    sys.stdout.flush()
    sys.stderr.write("x" * 10_000 + "\n")
    trial(16)
    result()


def gigabyte() -> None:
    line = "x" * 999 + "\n"
    for _ in range(1_000):
        sys.stdout.write(line * 1_000)
    trial(16)
    result()


def longest_line() -> None:
    sys.stdout.write("x" * 9_000_000 + "\n")
    sys.stdout.flush()
    result()


def no_line_end() -> None:
    sys.stdout.write("no line end")
    sys.exit(0)


def environment() -> None:
    log(" ".join(sorted(os.environ)))
    result()


if __name__ == "__main__":
    behaviour = sys.argv[1]
    if behaviour == "dead":
        sys.exit("cannot start")
    for line in iter(sys.stdin.readline, ""):  # it ends when the parent is gone
        order = json.loads(line)
        globals()[behaviour]()
