"""Runs locust, and reads what it measured."""

from __future__ import annotations

import argparse
import json
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MEMBERS, MLFLOW_USERS = HERE / "members.py", HERE / "mlflow_users.py"
LOCUST = HERE.parents[1] / "var" / "load" / "bin" / "locust"
_USERS_A_SECOND = 4


@dataclass(frozen=True)
class Latency:
    """The latency of one kind of request.

    Attributes:
        name: Kind of request; ``all`` for all kinds together.
        requests: Number sent.
        per_second: Requests a second.
        errors: Requests that failed.
        p50_ms, p95_ms, p99_ms: Percentiles of the response time, in milliseconds.
    """

    name: str
    requests: int
    per_second: float
    errors: int
    p50_ms: int
    p95_ms: int
    p99_ms: int


def swarm(
    locust: Path, file: Path, classes: Sequence[str], url: str, *, users: int, seconds: int
) -> list[dict[str, Any]]:
    """Let users load a site; returns what locust says of each kind of request.

    Args:
        locust: The command.
        file: Describes the users.
        classes: The user classes to use.
        url: Address of the site.
        users: Number at the same time. The time while they arrive does not count.
        seconds: Duration.

    Raises:
        RuntimeError: If locust did not run; the message is what it printed.
    """
    order = [locust, "--headless", "--skip-log", "--json", "--reset-stats", "--locustfile", file]
    order += ["--host", url, "--users", f"{users}", "--spawn-rate", f"{_USERS_A_SECOND}"]
    arriving = -(-users // _USERS_A_SECOND)
    order += ["--run-time", f"{arriving + seconds}s", *classes]
    done = subprocess.run([*map(str, order)], capture_output=True, text=True)
    found: list[dict[str, Any]] = json.loads(done.stdout) if done.stdout.strip() else []
    # Its status is 1 when a request failed, which is a result, or a user of ours.
    if not found or (done.returncode and not any(one["num_failures"] for one in found)):
        raise RuntimeError(done.stderr or f"no request was answered at {url}")
    return found


def latencies(*runs: Sequence[Mapping[str, Any]]) -> list[Latency]:
    """The latency of each kind of request in some runs of locust, and of all kinds together.

    Names in brackets do not count: signing in, and parts of other requests.
    """
    times: dict[str, Counter[int]] = {}
    failures: Counter[str] = Counter()
    seconds = 0.0
    for run in runs:
        kinds = [one for one in run if not one["name"].startswith("(") and one["num_requests"]]
        if kinds:
            last = max(one["last_request_timestamp"] for one in kinds)
            seconds += last - min(one["start_time"] for one in kinds)
        for kind in kinds:
            for name in (kind["name"], "all"):
                failures[name] += kind["num_failures"]
                counts = times.setdefault(name, Counter())
                counts.update({int(float(ms)): n for ms, n in kind["response_times"].items()})
    names = [*sorted(times.keys() - {"all"}), *(["all"] if times else [])]
    return [_latency(name, times[name], failures[name], seconds) for name in names]


def _latency(name: str, times: Counter[int], errors: int, seconds: float) -> Latency:
    p50, p95, p99 = (percentile(times, share) for share in (0.50, 0.95, 0.99))
    requests = times.total()
    return Latency(name, requests, round(requests / seconds, 2), errors, p50, p95, p99)


def percentile(counts: Mapping[int, int], share: float) -> int:
    """The smallest time within which at least this share of requests was answered.

    Args:
        counts: Requests by response time in milliseconds, as locust rounds it: to 10 ms above
            100 ms, to 100 ms above 1 s.
        share: A share from 0 to 1.
    """
    needed, so_far = share * sum(counts.values()), 0
    for ms, count in sorted(counts.items()):
        so_far += count
        if so_far >= needed:
            return ms
    raise ValueError("no requests")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands that load something."""
    parser.add_argument("--users", type=int, default=20, help="at the same time (default 20)")
    parser.add_argument("--seconds", type=int, default=60, help="for how long (default 60)")
    parser.add_argument(
        "--locust", type=Path, default=LOCUST, help="the command (default: where make load puts it)"
    )
