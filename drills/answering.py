"""What a lab is asked: ``python -m drills.answering``, a process with its settings.

Each line it reads names a function of the drills and the arguments, as JSON; each line it writes is
what the function returned, or the traceback of what it raised. One process answers all questions of
a lab, since starting one takes longer than most answers do.
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
    """Answer until nobody asks any more."""
    django.setup()
    answers = sys.stdout
    for line in sys.stdin:
        with redirect_stdout(sys.stderr):  # what a function prints is no answer
            told = _answer(**json.loads(line))
        answers.write(f"{json.dumps(told)}\n")
        answers.flush()


def _answer(module: str, name: str, arguments: list[Any]) -> dict[str, Any]:
    try:
        function = getattr(importlib.import_module(f"drills.{module}"), name)
        return {"answer": function(*arguments)}
    except Exception:  # the lab raises it where it was asked
        return {"failed": traceback.format_exc()}
    finally:
        connections.close_all()  # a drill may cut them, lock the database or drop it


if __name__ == "__main__":
    main()
