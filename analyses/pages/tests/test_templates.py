from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from django.conf import settings
from django.template.loader import render_to_string
from django.test import RequestFactory
from django.views.csrf import csrf_failure

TEMPLATES = sorted(Path(settings.BASE_DIR, "templates").rglob("*.html"))
OWN_FILES = sorted(Path(settings.BASE_DIR, "static").rglob("*.*"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_have_no_inline_script_or_style(path: Path) -> None:
    text = path.read_text()
    # Data for a script is not a script: browsers do not run other types.
    assert not re.search(r"<script(?![^>]*\s(src=|type=\"application/json\"))", text)
    assert "<style" not in text
    assert not re.search(r"\sstyle\s*=", text)
    assert not re.search(r"\son[a-z]+\s*=\s*[\"']", text)
    assert "javascript:" not in text
    assert not re.search(r"hx-(on|vars)|hx-vals=[\"']js:", text)


@pytest.mark.parametrize("path", [*TEMPLATES, *OWN_FILES], ids=lambda path: path.name)
def test_nothing_is_loaded_from_other_sites(path: Path) -> None:
    text = path.read_text().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"(https?:)?//[a-z0-9-]+\.[a-z]", text)
    assert "@import" not in text


def test_plotly_finds_its_style_elements_already_on_the_page() -> None:
    spec = find_spec("plotly")
    assert spec is not None
    assert spec.origin is not None
    script = Path(spec.origin).with_name("package_data") / "plotly.min.js"
    guarded = re.findall(r'getElementById\("([0-9a-f]{64})"\)', script.read_text())
    marks = render_to_string("analyses/_plotly_styles.html")
    assert 'id="plotly.js-style-global" class="no-inline-styles"' in marks
    assert all(f'id="{name}"' in marks for name in guarded)


@pytest.mark.parametrize("name", ["403.html", "404.html", "500.html", "403_csrf.html"])
def test_error_pages_can_be_shown_without_a_member(name: str) -> None:
    html = render_to_string(name)
    assert "MemoryMark" in html
    assert name[:3] in html
    assert 'class="button"' in html


def test_an_expired_form_is_explained() -> None:
    response = csrf_failure(RequestFactory().post("/new/"), reason="no cookie")
    assert response.status_code == 403
    assert "This form has expired" in response.content.decode()


def test_each_theme_and_the_systems_choose_among_the_same_colours() -> None:
    css = Path(settings.BASE_DIR, "static/memorymark/colours.css").read_text()
    schemes = dict(re.findall(r"^:root(\S*) \{\s+color-scheme: ([a-z ]+);", css, re.MULTILINE))
    assert schemes == {
        "": "dark",
        '[data-theme="light"]': "light",
        '[data-theme="system"]': "light dark",
    }
    assert not re.findall(r"--[\w-]+: #", css)  # each has one for either
