"""Template filters and tags for figures; the work is done in :mod:`analyses.formatting`."""

from __future__ import annotations

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from analyses import figures, formatting, question
from analyses.charts import memory_bars
from engine.result import Source

register = template.Library()

for _filter in (
    formatting.exact,
    formatting.gib,
    formatting.gib_with_unit,
    formatting.milliseconds,
    formatting.parameter_count,
    formatting.scaled,
    formatting.significant,
    formatting.times,
    formatting.usd,
    formatting.whole,
    question.gpu_name,
    question.gpu_of,
    question.input_size,
    question.model_name,
    memory_bars.category_name,
    figures.speedup_in_list,
):
    register.filter(_filter.__name__, _filter)


@register.simple_tag
def badge(source: str) -> SafeString:
    """The label that says where a figure comes from; its tooltip says what that means."""
    known = Source(source)
    return format_html(
        '<span class="badge badge-{}" title="{}">{}</span>',
        known.value,
        figures.SOURCE_MEANINGS[known],
        known.value,
    )
