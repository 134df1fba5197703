"""Texts that people read are in the plain English of the project, without its old habits.

They are the templates with the attributes that are read aloud or on hovering, what the scripts of
pages show, the literals of the code (forms, errors, e-mails, the admin, help of commands), the
description of the API, and the documentation.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("analyses", "engine", "memorymark_site", "demo")

BANNED = {
    r"(?<!- )\btrainings\b(?![/\".`])|\ba training(?! (run|job|step|script|loop|set|method|preset|"
    r"config|command|task|sample|memory|speed|batch|image))": "a training run, a training job",
    r"\btak(e|es|en|ing) (that|it) back\b": "undo",
    r"\bworks (until|for [0-9{])|\bits time is over\b": "expires, expired",
    r"\bwhat (was|is) asked\b|\bsaid nothing\b": "settings, no output",
    r"\b(makes?|made) (a|an|the) (token|link|invitation)\b": "create, created",
    r"\bsomebody\b|\bwhoever\b|\bone's own\b": "someone, anyone who, your own",
    r"[0-9}] %(?![a-z}])": "95%, without a space",
    r"\bof the (lab|catalogue)\b": "lab members, catalogue GPUs",
    r"(?<![-\w])figures?\b(?!-)": "numbers",
    r"\bnobody of\b|\bNobody in your lab has asked\b": "no one in your lab has",
    r"\bspeed against\b|\bagainst (speed|time|batch size)\b": "vs.",
    r"\b(is|are) not possible here\b": "what to enter instead",
    r"\b\d{1,2}(st|nd|rd|th)? (of )?(January|February|March|April|June|July|August|September|"
    r"October|November|December)\b": "2026-03-27",
    r"(?<![\d.,:])\d{4,},\d{3}\b|\b\d+\.\d{3},\d": "1,234.5",
    r"\bplease\b|\boops\b|\bsorry\b": "what happened and what to do",
    r"\binvalid (input|value)\b(?! exits)": "what to enter",
    r"\bso many-?(th\b| (GPUs|continuations|texts|layers|new))": "this many, how many",
    r"\bgive (a (list|sample|script|factory)|at least|--|the (number|path|DataLoader|batch size)|"
    r"the evaluation)": "enter, choose, pass",
    r"\bthe page \*?(Account|API tokens|GPUs|Members|Notifications|Lab|Savings)\b": "the GPUs page",
    r"\b(database|site|server|worker) is away\b": "does not respond",
    r"(?<!there )\b(is|are) no (JSON|file|zip|object|matrix|multiple|number|percentile|tensors?|"
    r"option|power|tokenizer)": "is not a",
    r"\bin the mean\b(?!time)": "on average",
    r"\bwhat became of\b": "by outcome, how it ended",
    r"\byet to come\b|\bgoes on as now\b": "still to come, at the current rate",
    r"\bname (the flag|one GPU|a global batch)\b": "pass, choose, set",
}
"""Words that are no longer written, with those to write instead."""

_MARKUP = re.compile(
    r"{#.*?#}|{%.*?%}|{{.*?}}|<script.*?</script>|<svg.*?</svg>|<[^>]*>", re.DOTALL
)
_READ_ATTRIBUTES = re.compile(
    r'\b(?:title|aria-label|aria-description|placeholder|alt|hx-confirm)="([^"]*)"'
)
_COMMENTS = re.compile(r"/\*.*?\*/|(?<!:)//[^\n]*", re.DOTALL)
_QUOTED = re.compile(r"""(["'`])((?:\\.|(?!\1).)*)\1""")
_DATES = re.compile(r"""\|date:["']([^"']*)""")
_FENCES = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)


def _is_sentence(text: str) -> bool:
    """Not a key, an address or a class: at least two words, or one with a capital letter."""
    return " " in text.strip() or bool(re.match(r"[A-Z][a-z]", text)) or "%" in text


def _literals(code: str) -> Iterator[str]:
    """The sentences among the literals of a module, without docstrings.

    An f-string is one text, with a brace for each value.
    """
    tree = ast.parse(code)
    passed = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            passed |= {id(part) for part in node.values}
    for node in ast.walk(tree):
        text = ""
        if id(node) in passed:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            text = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        if _is_sentence(text):
            yield text


def _of_scripts(code: str) -> Iterator[str]:
    for match in _QUOTED.finditer(_COMMENTS.sub("", code)):
        if _is_sentence(match[2]):
            yield match[2]


def _of_template(text: str) -> Iterator[str]:
    yield _MARKUP.sub(" ", text)
    yield from _READ_ATTRIBUTES.findall(text)


def _files() -> Iterator[tuple[Path, Iterator[str]]]:
    for path in sorted((ROOT / "templates").rglob("*.*")):
        yield path, _of_template(path.read_text())
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not {"tests", "migrations"} & set(path.parts):
                yield path, _literals(path.read_text())
    for path in sorted((ROOT / "static").rglob("*.js")):
        yield path, _of_scripts(path.read_text())
    yield ROOT / "docs" / "openapi.yaml", iter([(ROOT / "docs" / "openapi.yaml").read_text()])
    for path in (ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))):
        yield path, iter([_FENCES.sub(" ", path.read_text())])


@cache
def _texts() -> tuple[tuple[str, str], ...]:
    return tuple((str(path.relative_to(ROOT)), "\n".join(texts)) for path, texts in _files())


@pytest.mark.parametrize("habit", BANNED, ids=list(BANNED.values()))
def test_no_text_has_a_habit_that_was_given_up(habit: str) -> None:
    pattern = re.compile(habit, re.IGNORECASE)
    found = [
        f"{where}: …{' '.join(text[max(0, match.start() - 30) : match.end() + 30].split())}…"
        for where, text in _texts()
        for match in pattern.finditer(text)
    ]
    assert found == [], f"write {BANNED[habit]}"


def test_pages_write_dates_in_one_way() -> None:
    pages = (ROOT / "templates").rglob("*.html")
    formats = {found for page in pages for found in _DATES.findall(page.read_text())}
    assert formats <= {"c", "Y-m-d", "Y-m-d H:i", "Y-m-d H:i:s", "H:i", "H:i:s"}


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (_literals('X = f"{share} % of it"'), "{} % of it"),
        (_literals('label = "Figures"'), "Figures"),
        (_of_scripts('a.textContent = "Made a token"; // a comment'), "Made a token"),
        (_of_template('<a title="A training">x</a>'), "A training"),
    ],
)
def test_each_kind_of_text_is_read(found: Iterator[str], text: str) -> None:
    assert text in list(found)
