"""Clicks and seconds to an answer: ``python -m e2e.clicks``.

A member of a site that has just started asks by mouse and keyboard, as anyone would: the batch
size for BERT, and the GPU for Llama 3 8B with LoRA at 4,096 tokens. Seconds count from the first
click, so that the pages on the way and the member's typing, at once here, are in them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter

from playwright.sync_api import Locator, Page, expect, sync_playwright
from rich.console import Console
from rich.table import Table

from e2e import browsing, doing
from e2e.answers import new_site


@dataclass(frozen=True)
class Limit:
    """The most that an answer may take.

    Attributes:
        ladder_seconds: Seconds with all moves of the ladder; ``None`` where there is no limit.
    """

    clicks: int
    seconds: float
    ladder_seconds: float | None = None


@dataclass(frozen=True)
class Timing:
    """The clicks and the seconds from the first of them.

    Attributes:
        seconds: Until the decision is shown.
        ladder_seconds: Until all moves of the ladder are.
    """

    task: str
    clicks: int
    seconds: float
    ladder_seconds: float
    limit: Limit

    @property
    def is_within(self) -> bool:
        """Whether nothing takes more than its limit."""
        ladder = self.limit.ladder_seconds
        return (
            self.clicks <= self.limit.clicks
            and self.seconds <= self.limit.seconds
            and (ladder is None or self.ladder_seconds <= ladder)
        )


class Hand:
    """Clicks on a page, counted and timed from the first one."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = 0
        self._begun = 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the first click."""
        return round(perf_counter() - self._begun, 1)

    def click(self, target: Locator) -> None:
        """Click an element."""
        if not self.clicks:
            self._begun = perf_counter()
        self.clicks += 1
        target.click()


def ask_batch(hand: Hand) -> None:
    """Ask for the batch size of BERT on an A10, which the form offers first."""
    hand.click(_new(hand.page))
    hand.click(hand.page.get_by_role("button", name="Analyze", exact=True))


def ask_gpu(hand: Hand) -> None:
    """Ask which GPU suits Llama 3 8B with LoRA at 4,096 tokens."""
    page = hand.page
    hand.click(_new(page))
    hand.click(page.get_by_text("Which GPU?", exact=True))
    hand.click(page.get_by_role("combobox", name="Search models"))
    page.keyboard.type("llama 3 8b lora")
    page.keyboard.press("Enter")
    expect(page.locator('[name="lora_rank"]')).to_have_value("16")
    hand.click(page.locator('[name="sequence_length"]'))
    page.keyboard.type("4096")
    page.keyboard.press("Enter")


def _new(page: Page) -> Locator:
    return page.get_by_role("link", name="New analysis").first


TASKS: Sequence[tuple[str, Callable[[Hand], None], Limit]] = (
    ("batch for BERT on an A10", ask_batch, Limit(2, 3.0)),
    ("GPU for Llama 3 8B with LoRA at 4,096 tokens", ask_gpu, Limit(4, 20.0, 60.0)),
)


def timed(page: Page, task: str, ask: Callable[[Hand], None], limit: Limit) -> Timing:
    """Ask on a page of a signed-in member, and wait for the decision and the ladder."""
    page.goto("/")
    page.wait_for_load_state("networkidle")
    hand = Hand(page)
    ask(hand)
    doing.wait_for_verdict(page)
    seconds = hand.seconds
    doing.wait_for_ladder(page)
    return Timing(task, hand.clicks, seconds, hand.seconds, limit)


def main(arguments: Sequence[str] | None = None) -> int:
    """Time all tasks on a new site; the exit status is 1 if one takes more than its limit."""
    parser = argparse.ArgumentParser(prog="python -m e2e.clicks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--after",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="wait so long before the first click; by default the site has just started",
    )
    options = parser.parse_args(arguments)
    executable = browsing.chromium(os.environ.get("CHROMIUM"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**browsing.launch_options(executable))
        with new_site(browser) as page:
            page.wait_for_timeout(options.after * 1000)
            found = [timed(page, *task) for task in TASKS]
    if options.json:
        facts = {"source": "measured", "tasks": [asdict(one) for one in found]}
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
    else:
        _show(found)
    return int(not all(one.is_within for one in found))


def _show(found: Sequence[Timing]) -> None:
    table = Table("task", title="Clicks and seconds from the first click (measured)")
    for head in ("clicks", "limit", "decision, s", "limit", "ladder, s", "limit"):
        table.add_column(head, justify="right")
    for one in found:
        limit, ladder = one.limit, one.limit.ladder_seconds
        table.add_row(
            one.task,
            *(str(one.clicks), str(limit.clicks)),
            *(f"{one.seconds:.1f}", f"{limit.seconds:.0f}"),
            *(f"{one.ladder_seconds:.1f}", "–" if ladder is None else f"{ladder:.0f}"),
        )
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
