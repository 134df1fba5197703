"""Runs the drills' functions inside a lab: ``python -m drills.lab_process``, with its settings.

Each input line is JSON with the name of a drill function and its arguments. Each output line is the
return value, or the traceback of an exception. One process serves all calls of a lab, since
starting a process takes longer than most calls.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from contextlib import redirect_stdout
from typing import Any

import django
from django.db import connections


def main() -> None:
    """Serve calls until the input ends."""
    django.setup()
    replies = sys.stdout
    for line in sys.stdin:
        with redirect_stdout(sys.stderr):  # keep a function's prints out of the replies
            reply = _call(**json.loads(line))
        replies.write(f"{json.dumps(reply)}\n")
        replies.flush()


def _call(module: str, name: str, arguments: list[Any]) -> dict[str, Any]:
    try:
        function = getattr(importlib.import_module(f"drills.{module}"), name)
        return {"answer": function(*arguments)}
    except Exception:  # raised again in the calling process
        return {"failed": traceback.format_exc()}
    finally:
        connections.close_all()  # a drill may cut them, or lock or drop the database


if __name__ == "__main__":
    main()
