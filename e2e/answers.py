"""Time to an answer: ``python -m e2e.answers``.

It starts new sites as ``make run`` does and analyzes BERT on an A10 in a real browser. It measures
the time from pressing *Analyze* to the verdict on the page and to the moves that help, and from the
last key pressed in the form to the new prediction beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter

from playwright.sync_api import Browser, Page, expect, sync_playwright
from rich.console import Console
from rich.table import Table

from e2e import browsing, doing
from e2e.running import Site

NAME, PASSWORD = "grace", "a compiler of 1952"  # on a site that lives for a minute
BATCH_SIZE = "16"

LADDERS = {
    "BERT on an A10": {
        "model": "bert",
        "gpu": "a10",
        "precision": "fp32",
        "current_batch_size": BATCH_SIZE,
    },
    "Llama 3 8B with LoRA on an A100": {
        "model": "llama-3-8b",
        "gpu": "a100-80gb",
        "precision": "bf16-mixed",
        "lora_rank": "8",
        "sequence_length": "1024",
        "current_batch_size": "1",
    },
}
"""Workloads whose whole ladder is timed."""

Seconds = dict[str, list[float]]
"""Names of what was timed, and the seconds it took each time."""


def main(arguments: list[str] | None = None) -> int:
    """Time the answers, and print the table or JSON."""
    options = _parser().parse_args(arguments)
    found: Seconds = {}
    executable = browsing.chromium(os.environ.get("CHROMIUM"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**browsing.launch_options(executable))
        for number in range(options.sites):
            with new_site(browser) as page:
                _verdicts(page, found, 1 if number else options.times)
                if not number:
                    _ladders(page, found)
                    _panel(page, found, options.times)
    if options.json:
        answers = [
            {"answer": name, "median_seconds": median(times), "seconds": times}
            for name, times in found.items()
        ]
        sys.stdout.write(json.dumps({"source": "measured", "answers": answers}, indent=2) + "\n")
        return 0
    table = Table("answer", "times", "median", "worst", title="Answers in a browser (measured)")
    for name, times in found.items():
        table.add_row(name, str(len(times)), f"{median(times):.1f} s", f"{max(times):.1f} s")
    Console().print(table)
    return 0


def _verdicts(page: Page, found: Seconds, times: int) -> None:
    """Time the site's first analysis, then other workloads, then one of those again."""
    lengths = [str(32 + 16 * number) for number in range(times + 1)]
    for number, length in enumerate(lengths):
        name = "another workload" if number else "the first since the site started"
        _add(found, f"verdict: {name}", _verdict_seconds(page, length))
    for _ in range(times):
        _add(found, "verdict: a workload analyzed before", _verdict_seconds(page, lengths[-1]))


def _verdict_seconds(page: Page, sequence_length: str) -> float:
    page.goto("/new/")
    values = {
        "model": "bert",
        "gpu": "a10",
        "current_batch_size": BATCH_SIZE,
        "sequence_length": sequence_length,
    }
    for name, value in values.items():
        doing.fill(page, name, value)
    page.wait_for_load_state("networkidle")  # the panel is done and no longer uses the machine
    return _timed(
        page.get_by_role("button", name="Analyze").click, lambda: doing.wait_for_verdict(page)
    )


def _ladders(page: Page, found: Seconds) -> None:
    """Time the ladder from *Analyze* on: its first rungs, and all of them with GPUs and room."""
    for name, values in LADDERS.items():
        page.goto("/new/")
        for field, value in values.items():
            doing.fill(page, field, value)
        page.wait_for_load_state("networkidle")
        begun = perf_counter()
        page.get_by_role("button", name="Analyze").click()
        for what, wait in (
            ("verdict", lambda: doing.wait_for_verdict(page)),
            ("first moves", lambda: expect(page.locator(".rung").nth(1)).to_be_visible()),
            ("all moves", lambda: doing.wait_for_ladder(page)),
        ):
            wait()
            _add(found, f"{name}: {what}", round(perf_counter() - begun, 2))


def _panel(page: Page, found: Seconds, times: int) -> None:
    """Time the panel while typing: other batch sizes, then other workloads."""
    page.goto("/new/")
    for name, value in {"model": "bert", "gpu": "a10"}.items():
        doing.fill(page, name, value)
    doing.fill(page, "current_batch_size", BATCH_SIZE)
    expect(page.locator(".preview-headline")).to_be_visible(timeout=doing.ANSWER_MS)
    numbers = count()
    for _ in range(times):
        seconds = _change_seconds(page, "current_batch_size", str(24 + 8 * next(numbers)))
        _add(found, "panel: another batch size", seconds)
    for _ in range(times):
        seconds = _change_seconds(page, "sequence_length", str(200 + 8 * next(numbers)))
        _add(found, "panel: another workload", seconds)


def _change_seconds(page: Page, name: str, value: str) -> float:
    headline = page.locator(".preview-headline")
    before = headline.inner_text()

    def wait() -> None:
        expect(headline).not_to_have_text(before, timeout=doing.ANSWER_MS)
        expect(headline).to_be_visible(timeout=doing.ANSWER_MS)

    return _timed(lambda: doing.fill(page, name, value), wait)


def _timed(act: Callable[[], object], wait: Callable[[], object]) -> float:
    begun = perf_counter()
    act()
    wait()
    return round(perf_counter() - begun, 2)


def _add(found: Seconds, name: str, seconds: float) -> None:
    found.setdefault(name, []).append(seconds)


@contextmanager
def new_site(browser: Browser) -> Iterator[Page]:
    """A signed-in window on a site that has just started."""
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder))
        try:
            page = browser.new_context(**browsing.context_options(site.url)).new_page()
            page.set_default_timeout(doing.TIMEOUT_MS)
            doing.set_up(page, site.setup_link, NAME, PASSWORD)
            yield page
            page.context.close()
        finally:
            site.end()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.answers", description=__doc__)
    parser.add_argument("--sites", type=int, default=3, help="sites to start, one after the other")
    parser.add_argument(
        "--times", type=int, default=5, help="timings per answer, on the first site"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


if __name__ == "__main__":
    sys.exit(main())
