"""Load on a site that runs: ``python -m drills.load URL``, or ``make load``.

Members open pages and fragments, scripts use the API; nobody changes anything. locust sends the
requests, from an environment of its own, which ``make load`` makes. The credentials of a member are
read from LOAD_MEMBER and LOAD_PASSWORD (for pages) and LOAD_TOKEN (for the API).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from drills.commands import add_json_option, print_json
from drills.load.locusts import MEMBERS, Latency, add_options, latencies, swarm

_HERE = ("127.0.0.1", "localhost", "::1")


def main(arguments: Sequence[str] | None = None) -> int:
    """Load the site; the exit status is 1 if a request failed."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if urlsplit(options.url).hostname not in _HERE and not options.elsewhere:
        parser.error(f"{options.url} is on another machine; if it is your own site: --elsewhere")
    classes = classes_for(os.environ)
    if not classes:
        parser.error("set LOAD_TOKEN, or LOAD_MEMBER and LOAD_PASSWORD, or all of them")
    run = swarm(
        options.locust, MEMBERS, classes, options.url, users=options.users, seconds=options.seconds
    )
    found = latencies(run)
    if options.json:
        users = {"users": options.users, "seconds": options.seconds}
        print_json(users | {"requests": [*map(asdict, found)]})
    else:
        Console().print(table(found, f"{options.users} users for {options.seconds} s"))
    return int(any(one.errors for one in found))


def classes_for(environment: os._Environ[str] | dict[str, str]) -> list[str]:
    """The kinds of users that can use the site with the credentials in the environment."""
    needs = {"Reader": ("LOAD_MEMBER", "LOAD_PASSWORD"), "Script": ("LOAD_TOKEN",)}
    return [name for name, words in needs.items() if all(map(environment.get, words))]


def table(found: Sequence[Latency], title: str) -> Table:
    """The measurements of a locust run, as a table."""
    shown = Table(
        "request", "requests", "a second", "errors", "p50", "p95", "p99",
        title=f"{title} (measured)",
    )  # fmt: skip
    for one in found:
        shown.add_row(
            one.name, f"{one.requests:,}", f"{one.per_second:.1f}", f"{one.errors}",
            *(f"{ms:,} ms" for ms in (one.p50_ms, one.p95_ms, one.p99_ms)),
        )  # fmt: skip
    return shown


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m drills.load", description=__doc__)
    parser.add_argument("url", help="of the site, such as http://127.0.0.1:8000")
    parser.add_argument(
        "--elsewhere", action="store_true", help="the site is on another machine, and your own"
    )
    add_options(parser)
    add_json_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
