"""Jobs of a dstack server, by its HTTP API.

dstack asks each job's runner for the memory of its GPUs every 10 s and keeps the samples of a
running job for an hour by default, those of an ended one for a week. So a lab that is told each
hour knows the most that a job used. A job is one machine of a run; a run that dstack submits again,
such as after a spot machine was taken away, has several.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ..core.errors import EngineError, InvalidInput
from .record import JobRecord, Reporter

URL, TOKEN = "DSTACK_URL", "DSTACK_TOKEN"
"""Variables with the address of the server and the token of one of its users."""

_MEMORY = re.compile(r"gpu_memory_usage_bytes_gpu\d+")
_MIB = 2**20
_PAGE = 100
_MAX_SAMPLES = 100_000
_TIMEOUT_SECONDS = 60.0
_SERVICE = "service"
"""The type of a run that serves a model and trains nothing."""

_ENDED = ("terminated", "aborted", "failed", "done")


def jobs_of(url: str | None, project: str | None, since: datetime | None) -> Iterator[JobRecord]:
    """The jobs with GPUs that the user of the token may see.

    Args:
        url: Address of the server; that of :data:`URL` if ``None``.
        project: Only jobs of this one.
        since: Only jobs that ran since then; ``None`` for all.

    Raises:
        EngineError: The server does not answer, or with something else.
        InvalidInput: There is no address or no token.
    """
    server = _Server(url or os.environ.get(URL, ""), os.environ.get(TOKEN, ""))
    try:
        for run in server.runs(project):
            if run["run_spec"]["configuration"]["type"] != _SERVICE:
                yield from _jobs(server, run, since)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(f"{server.url} is not what dstack's API is: {error!r}") from error


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect, which could take the token to another host."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Returns no new request, so that the redirect itself is the result."""


class _Server:
    """The API of a server, as one of its users."""

    def __init__(self, url: str, token: str) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise InvalidInput({"source": f"enter the address of a server, or set {URL}"})
        if not token:
            raise InvalidInput({"source": f"set {TOKEN} to the token of a user of {url}"})
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._opener = build_opener(_NoRedirects)

    def runs(self, project: str | None) -> Iterator[Mapping[str, Any]]:
        """All runs, the last submitted first."""
        body: dict[str, Any] = {"limit": _PAGE, **({"project_name": project} if project else {})}
        while True:
            page = self._answer("/api/runs/list", body)
            yield from page
            if len(page) < _PAGE:
                return
            body |= {"prev_submitted_at": page[-1]["submitted_at"], "prev_run_id": page[-1]["id"]}

    def metrics(self, run: Mapping[str, Any], job: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The samples of a job's last submission that the server still has."""
        query = {
            "run_id": run["id"],
            "replica_num": job.get("replica_num", 0),
            "job_num": job["job_num"],
            "limit": _MAX_SAMPLES,
        }
        project, name = quote(run["project_name"], ""), quote(run["run_spec"]["run_name"], "")
        path = f"/api/project/{project}/metrics/job/{name}?{urlencode(query)}"
        found: list[Mapping[str, Any]] = self._answer(path)["metrics"]
        return found

    def _answer(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, self._headers)  # noqa: S310  # http or https
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                return json.load(answer)
        except HTTPError as error:
            told = error.read(500).decode(errors="replace")
            raise EngineError(f"dstack answered {error.code}: {told}") from error
        except (OSError, HTTPException) as error:
            raise EngineError(f"{self.url} does not answer: {error}") from error


def _jobs(server: _Server, run: Mapping[str, Any], since: datetime | None) -> Iterator[JobRecord]:
    """The jobs of a run that got a machine with GPUs."""
    for job in run["jobs"]:
        submissions, spec = job["job_submissions"], job["job_spec"]
        for submission in submissions:
            gpus = _gpus(submission)
            ended = _ended_at(submission)
            if not gpus or (since is not None and ended < since):
                continue
            is_last = submission is submissions[-1]
            yield JobRecord(
                reporter=Reporter.DSTACK,
                id=submission["id"],
                user=run["user"],
                device_name=gpus[0]["name"],
                gpus=len(gpus),
                started_at=_moment(submission["submitted_at"]),
                ended_at=ended,
                is_running=submission["status"] not in _ENDED,
                device_total_bytes=gpus[0]["memory_mib"] * _MIB or None,
                used_bytes=_used_bytes(server.metrics(run, spec)) if is_last else None,
                name=spec["job_name"],
            )


def _gpus(submission: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The GPUs that it was given, which may be a part of its machine's."""
    offer = (submission.get("job_runtime_data") or {}).get("offer") or {}
    machine = offer.get("instance") or (submission.get("job_provisioning_data") or {}).get(
        "instance_type"
    )
    return list(machine["resources"]["gpus"]) if machine else []


def _used_bytes(metrics: list[Mapping[str, Any]]) -> int | None:
    used = [max(one["values"]) for one in metrics if _MEMORY.fullmatch(one["name"])]
    return int(max(used, default=0)) or None


def _ended_at(submission: Mapping[str, Any]) -> datetime:
    return _moment(submission.get("finished_at") or submission["last_processed_at"])


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
