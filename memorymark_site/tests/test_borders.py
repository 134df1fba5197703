"""Beyond import-linter's contracts: what is actually loaded with every module of the site."""

from __future__ import annotations

import subprocess
import sys


def test_the_site_loads_neither_torch_nor_transformers() -> None:
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
assert "analyses.jobs.worker" in sys.modules
print(*sorted({"torch", "transformers", "plotly"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""
