"""Who imports whom: the rules that keep the web light and the engine free."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

ENGINE = Path(settings.BASE_DIR) / "engine"
SITE_PACKAGES_OF_THE_WEB = {"django", "rest_framework", "analyses", "memorymark_site", "knox"}


def _imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("path", sorted(ENGINE.rglob("*.py")), ids=lambda path: path.name)
def test_the_engine_imports_no_django(path: Path) -> None:
    assert not _imported(path) & SITE_PACKAGES_OF_THE_WEB


def test_the_web_loads_neither_torch_nor_transformers() -> None:
    program = """
import importlib, os, pkgutil, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "memorymark_site.settings"
import django; django.setup()
from django.urls import get_resolver
get_resolver().url_patterns
import analyses, memorymark_site
for package in (analyses, memorymark_site):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not {"tests", "gunicorn_conf"} & set(module.name.split(".")):
            importlib.import_module(module.name)
assert "analyses.worker" in sys.modules
print(*sorted({"torch", "transformers", "plotly"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""
