"""Many concurrent clients on a running site: ``python -m drills.clients``.

It starts its own lab and site. Each client has a token and alternates between reading and writing:
it reads lists and analyses, pushes analyses, reports training runs, and sends some documents twice,
as a client does whose response was lost. Requests refused by a busy site are retried. At the end
the documents sent are compared with those stored in the lab. How long requests take is measured by
``python -m drills.load``.
"""

from __future__ import annotations

import argparse
import random
import sys
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic, sleep
from typing import Any

from rich.console import Console

from drills.commands import add_json_option, add_postgres_option, name_of, new_lab, print_json
from engine.client.connection import Connection, Settings
from engine.client.errors import LabError, Unavailable
from engine.client.outbox import analysis_document, training_document
from engine.interface.request import AnalysisRequest
from engine.interface.result import AnalysisResult
from engine.recording import Loop, TrainingRecord

MEMBERS = 20
TIMEOUT_SECONDS = 60.0
SENT_TWICE = 0.1
PATHS = {"analysis": "/analyses/import/", "training": "/trainings/"}
_SHOWN_ERRORS = 10
KINDS = ("list", "analysis read", "analysis pushed", "training reported")


@dataclass
class Seen:
    """The observations of one client; added up at the end.

    Attributes:
        requests: Number sent.
        errors: Error messages.
        sent: Ids of the documents the lab acknowledged, by kind.
    """

    requests: int = 0
    errors: list[str] = field(default_factory=list)
    sent: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in PATHS})


@dataclass(frozen=True)
class Documents:
    """The fate of the documents of one kind.

    Attributes:
        kind: ``analysis`` or ``training``.
        sent: Acknowledged by the lab.
        kept: Stored in the lab.
        lost: Acknowledged but not stored.
        doubled: Stored more than once.
    """

    kind: str
    sent: int
    kept: int
    lost: int
    doubled: int


@dataclass(frozen=True)
class Tally:
    """Results of all clients together.

    Attributes:
        requests: Sent in all.
        errors: Requests that failed for good.
        kinds_of_errors: The first few distinct messages.
        documents: One per kind of document.
        whole: Pushed analyses stored with all their parts.
        pushed: All pushed analyses.
    """

    requests: int
    errors: int
    kinds_of_errors: list[str]
    documents: list[Documents]
    whole: int
    pushed: int

    @property
    def is_well(self) -> bool:
        """Whether there were no errors and nothing was lost, doubled or partly stored."""
        bad = self.errors + sum(one.lost + one.doubled for one in self.documents)
        return not bad and self.whole == self.pushed


class Client:
    """A member's script that sends requests in a loop.

    Args:
        connection: Connection to the site, with that member's token.
        document: An analysis; each push gives it a new id.
        pause_seconds: Mean pause between two requests.
        end: Time to stop, on the monotonic clock.
        seed: Seed of the random choices.
    """

    def __init__(
        self,
        connection: Connection,
        document: Mapping[str, object],
        pause_seconds: float,
        end: float,
        seed: int,
    ) -> None:
        self._connection, self._document = connection, document
        self._pause_seconds, self._end = pause_seconds, end
        self._chance = random.Random(seed)  # noqa: S311  # no secret
        self._last = 0
        self.seen = Seen()

    def run(self) -> Seen:
        """Send requests until the time is up."""
        sleep(self._chance.uniform(0, self._pause_seconds))
        while monotonic() < self._end:
            try:
                self._once()
            except LabError as error:
                self.seen.errors.append(str(error))
            sleep(self._chance.uniform(0, 2 * self._pause_seconds))
        return self.seen

    def _once(self) -> None:
        match self._chance.choice(KINDS):
            case "list":
                self._request("GET", "/analyses/")
            case "analysis read" if self._last:
                self._request("GET", f"/analyses/{self._last}/")
            case "analysis pushed":
                document = {**self._document, "id": str(uuid.uuid4())}
                self._last = self._send("analysis", document)["id"]
            case _:
                self._send("training", training_document(_record()))

    def _send(self, kind: str, document: Mapping[str, Any]) -> Any:
        answer = self._request("POST", PATHS[kind], document)
        self.seen.sent[kind].append(document["id"])
        if self._chance.random() < SENT_TWICE:
            again = self._request("POST", PATHS[kind], document)
            if again["id"] != answer["id"]:
                self.seen.errors.append(f"{kind}: the same document got two ids")
        return answer

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        self.seen.requests += 1
        try:
            return self._connection.send(method, path, body)
        except Unavailable:  # the lab may or may not have it: send the same again
            return self._connection.send(method, path, body)


def main(arguments: list[str] | None = None) -> int:
    """Run the clients; the exit status is 1 if anything failed, was lost or was doubled."""
    options = _parser().parse_args(arguments)
    request, result = _answer()
    now = datetime.now(UTC)
    document = analysis_document(request, result, started_at=now, finished_at=now, ran="a drill")
    with new_lab(options.postgres, result=result.to_dict()) as lab:
        tokens = lab.call("inside_clients.make_tokens", MEMBERS, -(-options.clients // MEMBERS))
        site = lab.start_site()
        begun = monotonic()
        seen = _run(site, tokens[: options.clients], document, options)
        seconds = monotonic() - begun
        kept = lab.call("inside_clients.stored_ids")
        whole = lab.call("inside_clients.whole_pushes", len(result.trials))
    tally = count(seen, kept, whole)
    database = name_of(options.postgres)
    if options.json:
        settings = {"database": database, "clients": options.clients, "seconds": round(seconds, 1)}
        print_json(settings | asdict(tally))
    else:
        _print(tally, f"{options.clients} clients for {seconds:.0f} s, {database}")
    return 0 if tally.is_well else 1


def _run(site: str, tokens: list[str], document: Mapping[str, object], options: Any) -> Seen:
    end = monotonic() + options.seconds
    clients = [
        Client(
            Connection(Settings(site, token), TIMEOUT_SECONDS), document, options.pause, end, number
        )
        for number, token in enumerate(tokens)
    ]
    with ThreadPoolExecutor(len(clients)) as threads:
        all_seen = list(threads.map(Client.run, clients))
    together = Seen()
    for seen in all_seen:
        together.errors += seen.errors
        together.requests += seen.requests
        for kind, ids in seen.sent.items():
            together.sent[kind] += ids
    return together


def count(seen: Seen, kept: Mapping[str, list[str]], whole: int) -> Tally:
    """Add up what the clients saw, and compare what they sent with what the lab stored.

    Args:
        seen: Observations of all clients together.
        kept: Ids of the stored documents, by kind.
        whole: Pushed analyses stored with all their parts.
    """
    return Tally(
        requests=seen.requests,
        errors=len(seen.errors),
        kinds_of_errors=sorted(set(seen.errors))[:_SHOWN_ERRORS],
        documents=[
            Documents(
                kind,
                sent=len(ids),
                kept=len(kept[kind]),
                lost=len(set(ids) - set(kept[kind])),
                doubled=len(kept[kind]) - len(set(kept[kind])),
            )
            for kind, ids in seen.sent.items()
        ],
        whole=whole,
        pushed=len(kept["analysis"]),
    )


def _print(tally: Tally, title: str) -> None:
    console = Console()
    console.print(f"{title}: {tally.requests:,} requests (measured)")
    for error in tally.kinds_of_errors:
        console.print(f"error: {error}", markup=False)
    console.print(f"errors: {tally.errors}")
    for one in tally.documents:
        console.print(
            f"{one.kind}: {one.sent:,} sent, {one.kept:,} kept, {one.lost} lost, "
            f"{one.doubled} doubled"
        )
    console.print(f"pushed analyses that are whole: {tally.whole:,} of {tally.pushed:,}")


def _answer() -> tuple[AnalysisRequest, AnalysisResult]:
    from engine.analysis import analyze

    request = AnalysisRequest.parse({"model": "resnet-18", "gpu": "a10"})
    return request, analyze(request, lambda event: None)


def _record() -> TrainingRecord:
    now = datetime.now(UTC).isoformat()
    return replace(_RECORD, started_at=now, ended_at=now)


_RECORD = TrainingRecord(
    batch_size=128,
    steps=10,
    samples=1280,
    warm_up_steps=5,
    timed_steps=0,
    device="cpu",
    device_name="CPU (drill)",
    device_total_bytes=2**34,
    started_at="2026-01-01T00:00:00+00:00",
    ended_at="2026-01-01T00:00:00+00:00",
    loop=Loop.PLAIN,
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m drills.clients", description=__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument(
        "--pause", type=float, default=1.0, help="mean seconds between two requests of a client"
    )
    add_postgres_option(parser)
    add_json_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
