"""The form for a new analysis, sent as a browser sends it."""

from __future__ import annotations

from django.test import Client

from analyses.models import Analysis
from analyses.pages.new.form import AnalysisForm
from analyses.pages.new.values import default_values

NEW = "/new/"

CONFIG = {"model_type": "bert", "vocab_size": 1000, "max_position_embeddings": 128}

OTHER = {"model": "other", "sequence_length": "", "image_size": ""}


def post(page: Client, **changes: str) -> AnalysisForm | Analysis:
    """Submit the form with some fields changed; returns the form if it comes back."""
    response = page.post(NEW, default_values() | changes)
    if response.status_code == 302:
        return Analysis.objects.get()
    assert not Analysis.objects.exists()
    form: AnalysisForm = response.context["form"]
    return form
