"""The same requests to MLflow's server as ``Script`` sends to a site: a file for locust.

Comparing six runs takes six requests, as MLflow's page sends them; they count as one that takes as
long as all six, which are sent at the same time.
"""

from __future__ import annotations

import random
from time import perf_counter
from typing import Any

from gevent.pool import Group
from locust import FastHttpUser, between

PAUSE = between(0.5, 1.5)  # seconds, as in members.py
COMPARED = 6
_API = "/api/2.0/mlflow"
_RUNS = {"max_results": 25, "order_by": ["attributes.start_time DESC"]}
_SEARCH = "params.model = 'bert' and attributes.status = 'FINISHED'"


def listed(user: Any) -> None:
    """The newest runs."""
    user.search({}, "list")


def searched(user: Any) -> None:
    """One model's runs that ended well."""
    user.search({"filter": _SEARCH}, "search")


def one(user: Any) -> None:
    """One run."""
    (run,) = random.sample(user.ids, 1)
    user.client.get(f"{_API}/runs/get?run_id={run}", name="one")


def compared(user: Any) -> None:
    """Six runs side by side."""
    begun = perf_counter()
    chosen = random.sample(user.ids, COMPARED)
    urls = [f"{_API}/runs/get?run_id={run}" for run in chosen]
    answers = Group().map(lambda url: user.client.get(url, name="(each of six)"), urls)
    failed = [answer.status_code for answer in answers if answer.status_code != 200]
    user.environment.events.request.fire(
        request_type="GET",
        name="compare six",
        response_time=1e3 * (perf_counter() - begun),
        response_length=sum(len(answer.content or b"") for answer in answers),
        exception=RuntimeError(f"status {failed[0]}") if failed else None,
        context={},
    )


class MlflowScript(FastHttpUser):  # type: ignore[misc]  # locust is not installed where types are checked
    """A member's script, or the JavaScript of MLflow's pages."""

    wait_time = PAUSE
    tasks = (listed, searched, one, compared)

    def on_start(self) -> None:
        """See which runs there are."""
        found = self.client.get(
            f"{_API}/experiments/get-by-name?experiment_name=lab", name="(start)"
        )
        self.experiment = found.json()["experiment"]["experiment_id"]
        runs = self.search({}, "list")["runs"]
        self.ids = [run["info"]["run_id"] for run in runs]

    def search(self, more: dict[str, Any], name: str) -> Any:
        """Send one search for runs; returns the answer."""
        body = {"experiment_ids": [self.experiment], **_RUNS, **more}
        return self.client.post(f"{_API}/runs/search", json=body, name=name).json()
