"""Two sites of one lab behind nginx, one of which is killed while members use them."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

from drills.commands import name_of, new_lab
from drills.faults import Outcome
from drills.lab import Lab
from drills.proxy import installed, proxy
from drills.surroundings import kill_site
from drills.web import Browser

FAULT, WHERE = "one of two sites killed", "behind nginx"
MEMBERS = 8
BEFORE_SECONDS, AFTER_SECONDS = 5.0, 10.0
"""Time for which members use the sites before and after one is killed."""

_TRIALS = 4
_PAUSE_SECONDS = 0.3
_PAGES = ("/history/", "/", "/gpus/")
_KEY = "the same on both machines, as the guide says"
_PASSWORD = "a compiler of 1952"  # noqa: S105  # of this drill alone


@dataclass
class Seen:
    """The observations of one member.

    Attributes:
        failed_pages: Pages that were answered with an error, or not at all.
        failed_posts: Analyses that had to be sent again, with the same Idempotency-Key.
        signed_out: Pages without the member's name.
        submitted: Ids that the lab answered, by key.
        answered: When each page was requested and when it arrived, on the monotonic clock.
    """

    failed_pages: list[str] = field(default_factory=list)
    failed_posts: list[str] = field(default_factory=list)
    signed_out: int = 0
    submitted: dict[str, int] = field(default_factory=dict)
    answered: list[tuple[float, float]] = field(default_factory=list)


class Member:
    """Reads pages with a session, and submits analyses with a token.

    Args:
        name: The username.
        token: Token for the API.
        site: The proxy's address.
        trusted: Trusts the proxy's certificate.
        number: Makes the member's analyses different from the others'.
    """

    def __init__(
        self, name: str, token: str, site: str, trusted: ssl.SSLContext, number: int
    ) -> None:
        self._name, self._token, self._site, self._number = name, token, site, number
        self._browser, self._script = Browser(trusted), Browser(trusted)
        self.seen = Seen()

    def sign_in(self) -> None:
        """Sign in through the proxy."""
        status = self._browser.sign_in(self._site, self._name, _PASSWORD)
        if status != 200:
            raise RuntimeError(f"signing in was answered with {status}")

    def run(self, is_over: Callable[[], bool]) -> Seen:
        """Read and submit in turn until it is over."""
        for step in range(10**6):
            if is_over():
                break
            self._read(_PAGES[step % len(_PAGES)])
            if step % 4 == 0:
                self._submit(step)
            sleep(_PAUSE_SECONDS)
        return self.seen

    def _read(self, page: str) -> None:
        begun = monotonic()
        try:
            text = self._browser.page(f"{self._site}{page}")
        except OSError as error:
            self.seen.failed_pages.append(f"{page}: {error}")
            return
        self.seen.answered.append((begun, monotonic()))
        self.seen.signed_out += "Sign out" not in text

    def _submit(self, step: int) -> None:
        size = 1 + self._number + MEMBERS * step
        body = {"model": "bert", "gpu": "a10", "current_batch_size": size}
        key = str(uuid4())
        for _ in range(3):
            try:
                status, said = self._script.api(
                    f"{self._site}/api/v1/analyses/", self._token, body, {"Idempotency-Key": key}
                )
            except OSError as error:
                status, said = 0, str(error)
            if status in (200, 201):
                self.seen.submitted[key] = said["id"]
                return
            self.seen.failed_posts.append(f"{status} {said}")


def kill_one_of_two(
    server_url: str, result: dict[str, Any], *, after_seconds: float = AFTER_SECONDS
) -> Outcome:
    """Kill one of two sites under requests.

    Args:
        server_url: Address of a PostgreSQL server.
        result: The result of each analysis.
        after_seconds: Time for which members go on.

    Raises:
        NoProxy: If nginx is not installed.
    """
    nginx = installed()  # before anything is started for nothing
    with new_lab(server_url, trials=_TRIALS, seconds=0.2, result=result) as lab:
        sites = [
            lab.start_site(
                SECRET_KEY=_KEY,
                MEMORYMARK_HTTPS="true",
                MEMORYMARK_DATA_DIR=str(lab.folder / machine),  # each has its own disk
            )
            for machine in ("first", "second")
        ]
        lab.start_node("node-1", SECRET_KEY=_KEY)
        with proxy(nginx, lab.folder / "proxy", sites) as (address, trusted):
            killed_at, seen = _use(lab, address, trusted, after_seconds)
        lab.wait_for("all_final")
        tally = lab.call("tally", _TRIALS)
    return outcome(seen, killed_at, tally)


def _use(
    lab: Lab, address: str, trusted: ssl.SSLContext, after_seconds: float
) -> tuple[float, list[Seen]]:
    """Let members use the sites, and kill one; returns when, and what they saw."""
    names = [f"member-{number}" for number in range(MEMBERS)]
    tokens = lab.call("inside_clients.make_tokens", MEMBERS, 1)
    lab.call("inside_clients.set_passwords", names, _PASSWORD)
    members = [
        Member(name, token, address, trusted, number)
        for number, (name, token) in enumerate(zip(names, tokens, strict=True))
    ]
    with ThreadPoolExecutor(MEMBERS) as threads:
        list(threads.map(Member.sign_in, members))
        kill_at = monotonic() + BEFORE_SECONDS
        end = kill_at + after_seconds
        futures = [threads.submit(member.run, lambda: monotonic() > end) for member in members]
        sleep(max(0.0, kill_at - monotonic()))
        kill_site(lab.sites[0])
        killed_at = monotonic()
        return killed_at, [future.result() for future in futures]


def outcome(seen: list[Seen], killed_at: float, tally: dict[str, int]) -> Outcome:
    """The members' observations together, compared with the lab's contents.

    Args:
        seen: The observations of each of them.
        killed_at: Time at which the site was killed, on the monotonic clock.
        tally: The counts of the analyses in the lab.
    """
    submitted = sum(len(one.submitted) for one in seen)
    whole = tally.get("succeeded", 0) - tally.get("incomplete", 0)
    firsts = [
        min((there for begun, there in one.answered if begun > killed_at), default=None)
        for one in seen
    ]
    went_on = [there - killed_at for there in firsts if there is not None]
    return Outcome(
        FAULT,
        WHERE,
        name_of("postgres"),
        submitted=submitted,
        lost=max(0, submitted - whole),
        doubled=max(0, tally.get("sent", 0) - submitted) + tally.get("duplicated", 0),
        recovery_seconds=max(went_on) if len(went_on) == len(seen) else None,
        failed_pages=sum(len(one.failed_pages) + one.signed_out for one in seen),
        sent_again=sum(len(one.failed_posts) for one in seen),
    )
