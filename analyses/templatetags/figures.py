"""Template filters and tags for numbers and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django import template
from django.template import Context
from django.utils.html import format_html
from django.utils.safestring import SafeString

from analyses import formatting
from analyses.charts import breakdown
from analyses.charts.sparkline import sparkline
from analyses.figures import chips, columns, settings
from engine.core import numbers, sizes
from engine.interface.trial import Source

register = template.Library()

for _filter in (
    formatting.exact,
    formatting.fine_share,
    formatting.parameter_count,
    formatting.scaled,
    formatting.tokens_per_second,
    formatting.gpu_name,
    formatting.gpu_of,
    formatting.model_name,
    numbers.share,
    numbers.significant,
    numbers.times,
    numbers.usd,
    numbers.whole,
    sizes.gib,
    sizes.gib_number,
    columns.label,
    columns.number,
    columns.other_moves,
    columns.stored,
    chips.chips,
    chips.name_of,
    settings.setting,
    breakdown.category_name,
):
    register.filter(_filter.__name__, _filter)
register.filter("times_to", numbers.times_range)


@register.simple_tag(takes_context=True)
def badge(context: Context, source: str) -> SafeString | str:
    """The label of a number's source, with its meaning as a tooltip.

    On a page that says once where all of its numbers come from (``page_source``), only numbers of
    another source have one.
    """
    return "" if source == context.get("page_source") else page_badge(source)


@register.inclusion_tag("history/_sparkline.html")
def sparkline_of(speeds: Mapping[int, Sequence[tuple[int, float]]], pk: int) -> dict[str, object]:
    """The sparkline of one analysis, of the speeds by analysis."""
    return {"line": sparkline(speeds.get(pk, []))}


@register.simple_tag
def page_badge(source: str) -> SafeString:
    """The same for a whole page."""
    known = Source(source)
    return format_html(
        '<span class="badge badge-{}" title="{}">{}</span>',
        known.value,
        formatting.SOURCE_MEANINGS[known],
        known.value,
    )
