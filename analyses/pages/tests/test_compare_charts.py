"""The charts of a comparison, and its picture for slides."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from analyses.charts.layout import PlotlyDict
from analyses.models import Analysis, Status
from analyses.pages.compare.charts import memory_chart, speed_chart
from analyses.pages.compare.colours import LIGHT
from analyses.pages.compare.columns import MAX_ANALYSES, Column, columns_of
from analyses.pages.compare.scatter import scatter_of
from analyses.pages.tests.compared import columns, html_of, ids, make, row
from analyses.tests.factories import make_analysis, make_result
from engine.core.sizes import GIB
from engine.gpus import GPUS
from engine.interface.workload import Workload

HOSTILE = "<script>alert(1)</script>"


def scatter(found: list[Column], **axes: str) -> PlotlyDict:
    plot = scatter_of(found, **axes)
    assert plot is not None
    return plot.chart


def test_the_chart_has_the_numbers_and_their_source(page: Client, three: list[Analysis]) -> None:
    response = page.get(reverse("analyses:compare-bars"), {"ids": ids(three)})
    assert response["Content-Type"] == "image/svg+xml"
    assert "Content-Disposition" not in response
    svg = response.content.decode()
    texts = [text for text in ElementTree.fromstring(svg).itertext() if text.strip()]  # noqa: S314  # our own
    for said in ("BERT base", "NVIDIA H100 SXM5 80GB", "939", "predicted"):
        assert said in texts
    assert "style" not in svg  # which the content security policy would block


def test_labels_in_the_picture_are_whole(page: Client, member: User) -> None:
    pair = [
        make(member, "rtx-pro-6000", model=model, precision="bf16-mixed", optimizer="sgd")
        for model in ("bert", "llama-3-8b")
    ]
    pair.append(make(member, model="llama-3-8b", precision="bf16-mixed", current_batch_size=8))
    found = columns_of(pair)
    svg = page.get(reverse("analyses:compare-bars"), {"ids": ids(pair)}).content.decode()
    texts = " ".join(ElementTree.fromstring(svg).itertext())  # noqa: S314  # our own
    shown = " ".join(texts.split())
    for column in found:
        assert column.label in shown
    assert "…" not in shown


def test_the_chart_is_downloaded_under_its_own_name(page: Client, three: list[Analysis]) -> None:
    query = {"ids": ids(three), "download": "1"}
    response = page.get(reverse("analyses:compare-bars"), query)
    name = f"memorymark-{ids(three).replace(',', '-')}.svg"
    assert response["Content-Disposition"] == f'attachment; filename="{name}"'


def test_a_single_analysis_has_no_chart(page: Client, three: list[Analysis]) -> None:
    assert page.get(reverse("analyses:compare-bars"), {"ids": three[0].pk}).status_code == 404


def test_a_hostile_name_is_plain_text_in_the_chart(page: Client, member: User) -> None:
    pair = [make(member), make(member)]
    Analysis.objects.filter(pk=pair[0].pk).update(measured_gpu=f'{HOSTILE}" onload="x')
    response = page.get(reverse("analyses:compare-bars"), {"ids": ids(pair)})
    root = ElementTree.fromstring(response.content)  # noqa: S314  # our own
    assert not [
        node for node in root.iter() if node.tag.endswith("script") or "onload" in node.attrib
    ]
    assert HOSTILE not in html_of(page, f"?ids={ids(pair)}")


def test_the_curves_mark_each_limit_once(member: User) -> None:
    found = columns(member, "a10", "a100-80gb", "h100")
    memory, speed = memory_chart(found), speed_chart(found)
    assert [trace["name"] for trace in memory["data"]] == [column.label for column in found]
    assert len(memory["layout"]["shapes"]) == 2  # the two GPUs of 80 GB share one line
    diamonds = [trace for trace in speed["data"] if trace["mode"] == "markers"]
    assert [trace["x"] for trace in diamonds] == [[64], [64], [64]]


def test_limits_that_are_near_each_other_share_a_label(member: User) -> None:
    layout = memory_chart(columns(member, "a10", "rtx-3090", "h100"))["layout"]
    assert len(layout["shapes"]) == 3
    assert [label["text"] for label in layout["annotations"]] == [
        "A10, RTX 3090",
        "H100 80GB",
    ]
    assert layout["annotations"][0]["y"] > GPUS["a10"].total_bytes / GIB


def test_curves_far_apart_share_a_logarithmic_axis(member: User) -> None:
    near, far = columns(member, "a10", "l4"), columns(member, "t4", "h200")
    assert "type" not in memory_chart(near)["layout"]["xaxis"]
    assert memory_chart(far)["layout"]["xaxis"]["type"] == "log"


@pytest.mark.parametrize("chart", [memory_chart, speed_chart])
def test_tooltips_tell_of_all_curves_wherever_the_pointer_is(
    member: User, chart: Callable[[list[Column]], PlotlyDict]
) -> None:
    layout = chart(columns(member, "a10", "h100"))["layout"]
    assert (layout["hovermode"], layout["hoverdistance"]) == ("x unified", -1)


def test_24_curves_all_look_different(member: User) -> None:
    found = columns(member, *["a10"] * MAX_ANALYSES)
    lines = [trace["line"] for trace in memory_chart(found)["data"]]
    assert len({(line["color"], line["dash"]) for line in lines}) == MAX_ANALYSES


def test_an_analysis_has_one_colour_everywhere(
    page: Client, three: list[Analysis], member: User
) -> None:
    html = html_of(page, f"?ids={ids(three)}")
    svg = page.get(reverse("analyses:compare-bars"), {"ids": ids(three)}).content.decode()
    found = columns_of(three)
    charts = [memory_chart(found), speed_chart(found), scatter(found)]
    for number, column in enumerate(found):
        assert f'class="series-key series-{number}"' in html
        assert svg.count(f'fill="{LIGHT[number]}"') == 2
        for chart in charts:
            traces = [trace for trace in chart["data"] if trace["name"] == column.label]
            used = [trace.get("line", trace.get("marker"))["color"] for trace in traces]
            assert set(used) == {f"var(--series-{number})"}


def test_the_slides_colours_are_those_of_the_light_theme() -> None:
    css = (settings.BASE_DIR / "static/memorymark/colours.css").read_text()
    assert tuple(re.findall(r"--series-\d+: light-dark\((#\w+),", css)) == LIGHT


def test_cost_stands_against_speed_with_the_ranges_of_both(member: User) -> None:
    found = columns(member, "a10", "h100")
    chart = scatter(found)
    tokens = row(found, "Tokens per second at the recommended batch").cells
    cost = row(found, "Cost of a million tokens").cells
    for dot, speed, price in zip(chart["data"], tokens, cost, strict=True):
        assert dot["x"] == [speed.value]
        assert dot["y"] == [price.value]
        assert dot["error_x"]["array"][0] > 0
        assert dot["error_y"]["arrayminus"][0] > 0
    assert chart["layout"]["yaxis"]["title"]["text"].startswith("Cost of a million tokens")


def test_images_cost_by_the_million_samples(member: User) -> None:
    images = make_result(workload=Workload("resnet"))
    found = columns_of([make_analysis(member, Status.SUCCEEDED, images) for _ in range(2)])
    chart = scatter(found)
    assert chart["layout"]["xaxis"]["title"]["text"].startswith("Samples per second")


def test_a_million_tokens_cost_a_share_of_a_million_samples(member: User) -> None:
    found = columns(member, "a10", "h100")
    samples, tokens = (
        row(found, f"Cost of a million {unit}").cells for unit in ("samples", "tokens")
    )
    assert [cell.value for cell in tokens] == [
        pytest.approx((cell.value or 0) / 128)  # 128 tokens a sample
        for cell in samples
    ]


def test_any_two_numbers_can_be_the_axes(page: Client, three: list[Analysis]) -> None:
    axes = {"x": "largest_batch_size", "y": "device_used_bytes"}
    html = page.get(reverse("analyses:compare"), {"ids": ids(three)} | axes).content.decode()
    assert '<option value="largest_batch_size" selected>' in html
    assert '"Device used at the recommended\\u003Cbr\\u003Ebatch, GiB"' in html
    assert "&amp;x=largest_batch_size&amp;y=device_used_bytes" in html  # in the links of the heads
    chart = scatter(columns_of(three), **axes)
    assert chart["data"][0]["x"] == [columns_of(three)[0].analysis.largest_batch_size]
    assert 0 < chart["data"][0]["y"][0] < 24  # GiB of an A10


@pytest.mark.parametrize("axis", ["no_such_number", "longest_tokens", "<script>"])
def test_an_axis_that_cannot_be_drawn_gives_way_to_the_usual_one(
    page: Client, three: list[Analysis], axis: str
) -> None:
    html = page.get(reverse("analyses:compare"), {"ids": ids(three), "x": axis}).content.decode()
    assert '<option value="tokens_per_second" selected>' in html
    assert "<script>&" not in html


def test_a_single_dot_is_no_chart(member: User) -> None:
    waiting = columns_of([make_analysis(member, Status.QUEUED)])
    assert scatter_of([*columns(member, "a10"), *waiting]) is None


def test_hostile_names_are_escaped_in_tooltips(member: User) -> None:
    found = [replace(one, label=HOSTILE) for one in columns(member, "a10", "h100")]
    assert HOSTILE not in str(scatter(found)["data"][0]["hovertemplate"])
