"""Every page by name, on a site that has analyses to show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page

from memorymark_site.tests.fault_statuses import STATUSES

WITHOUT_LOGIN = {
    "sign-in": "/accounts/login/",
    "forgotten": "/accounts/forgotten/",
    "setup-used": "/setup/used/",
    "invitation-ended": "/invitation/ended/",
    "share-ended": "/shared/ended/",
}

FAULTS = {f"fault-{name}": f"/faults/{name}/" for name in STATUSES}
"""Error pages, with nobody signed in."""

EMPTY = {
    "overview": "/",
    "history": "/history/",
    "compare": "/compare/",
    "savings": "/savings/",
    "report": "/savings/report/",
    "members": "/members/",
    "gpu-hours": "/gpu-hours/",
    "gpus": "/gpus/",
    "audit": "/audit/",
    "inbox": "/inbox/",
    "notifications": "/notifications/",
    "tokens": "/tokens/",
}
"""Pages on which a new lab has little to show."""

REFUSED = {404, 405}
"""The statuses of pages that say why there is nothing at their address."""


def addresses(page: Page) -> dict[str, str]:
    """The address of each page for the signed-in member.

    Args:
        page: A member's window on a site with successful analyses of BERT and a failed one.
    """

    def numbers(**query: str | float | bool) -> list[int]:
        answer = page.request.get("/api/v1/analyses/", params=query)
        return [row["id"] for row in answer.json()["results"]]

    return _fixed() | _of_analyses(numbers)


def _fixed() -> dict[str, str]:
    return {
        "overview": "/",
        "history": "/history/",
        "history-filtered": "/history/?model=bert&status=succeeded&sort=-speedup",
        "history-grouped": "/history/?group=project",
        "history-roomy": "/history/?density=roomy",
        "search": "/search/?q=bert",
        "history-empty": "/history/?q=no-such-thing",
        "new": "/new/",
        "savings": "/savings/",
        "savings-empty": "/savings/?member=no-such-member",
        "savings-report": "/savings/report/",
        "savings-report-year": "/savings/report/?of=2026",
        "savings-superseded": "/savings/superseded/",
        "savings-by-month": "/savings/?by=month&kind=realised",
        "gpu-hours": "/gpu-hours/",
        "gpu-hours-by-member": "/gpu-hours/?by=member&period=all",
        "gpu-hours-empty": "/gpu-hours/?from=2020-01-01&to=2020-01-02",
        "gpus": "/gpus/",
        "gpu-price": "/gpus/price/?gpu=a10",
        "models": "/models/",
        "models-refused": "/models/?q=image&only=refused",
        "lab": "/lab/",
        "inbox": "/inbox/?show=all",
        "notifications": "/notifications/",
        "tokens": "/tokens/",
        "account": "/account/",
        "address": "/account/address/",
        "password": "/account/password/",
        "app": "/account/app/",
        "no-passkeys": "/account/passkeys/add/",
        "confirm": "/account/confirm/",
        "members": "/members/",
        "audit": "/audit/",
        "audit-empty": "/audit/?member=no-such-member",
        "api": "/api/docs/",
        "api-problems": "/api/docs/problems/",
        "not-found": "/999999/",
        "not-a-page": "/notifications/test/",
    }


def _of_analyses(numbers: Callable[..., list[Any]]) -> dict[str, str]:
    done = numbers(model="bert", precision="fp32", status="succeeded", gpu="a10")[0]
    failed = numbers(status="failed")[0]
    several = numbers(model="bert", precision="bf16-mixed", status="succeeded")[:3]
    ids = ",".join(map(str, several))
    return {
        "analysis": f"/{done}/",
        "analysis-failed": f"/{failed}/",
        "analysis-advice": f"/{done}/advice/",
        "new-duplicate": f"/new/?from={done}",
        "compare": f"/compare/?ids={ids}",
        "compare-differences": f"/compare/?ids={ids}&base={several[-1]}&diff=1",
        "labels": f"/{done}/labels/",
        "tag": f"/history/tag/?ids={done}&ids={failed}",
        "delete": f"/history/delete/?ids={failed}",
    }
