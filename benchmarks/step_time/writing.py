"""Writes fitted constants as the engine reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from benchmarks.step_time.fitting import Fitted
from benchmarks.step_time.rows import Row
from engine.prediction.timing.kernels import COMPUTING, FORMATS, Format, Kind
from engine.prediction.timing.launches import Launch
from engine.prediction.timing.speed_model import SpeedModel

Ranges = Mapping[tuple[str, bool, bool], tuple[float, float]]
"""Low and high of measured over predicted, by family, whether the GPU has rows and whether it waits
for its host."""

_HEAD = """\
# The constants of step times, written by `python -m benchmarks.step_time fit`; do not edit.
#
# Fitted on {day} to {rows:,} training steps of {models:,} models on {gpus:,} GPUs:
#{sources}
# The kernels of a kind in one of our steps count as a step.
# `benchmarks/data/README.md` says what each source ran, docs/methods.md what the constants mean.
"""


def as_toml(fitted: Fitted, rows: Sequence[Row]) -> str:
    """The text of ``engine/prediction/timing/step_time.toml``, without ranges."""
    counts = {source: sum(row.source == source for row in rows) for source in _sources(rows)}
    head = _HEAD.format(
        day=f"{datetime.now(UTC):%Y-%m-%d}",
        rows=len(rows),
        models=len({row.model for row in rows}),
        gpus=len({row.gpu for row in rows}),
        sources="".join(f" {number:,} {source}," for source, number in counts.items())[:-1] + ".",
    )
    return "\n".join([head, *_tables(fitted, rows)]) + "\n"


def ranges_as_toml(ranges: Ranges, median: float, percentile_90: float) -> str:
    """The error and the ranges of predictions by constants that had not seen the step, to add."""
    lines = [
        "",
        f"# Where constants had not seen the architecture, the error is {median:.1%} in the",
        f"# median and {percentile_90:.1%} at the 90th percentile.",
        "#",
        "# Measured over predicted: where 95% of the steps lay whose architecture or whose GPU the",
        "# constants had not seen, on a host whose launch time is known.",
        "[range]",
    ]
    for (family, known, waits), (low, high) in ranges.items():
        rows = "with_rows" if known else "without_rows"
        bound = "by_host" if waits else "by_gpu"
        lines.append(f"{family}.{rows}.{bound} = {{ low = {low:.2f}, high = {high:.2f} }}")
    return "\n".join(lines) + "\n"


def _sources(rows: Iterable[Row]) -> list[str]:
    return sorted({row.source for row in rows})


def _tables(fitted: Fitted, rows: Sequence[Row]) -> Iterator[str]:
    model = fitted.model
    yield "[launch]"
    for name in ("kernel_seconds", "host_seconds", "step_launches", "copy_bytes_per_second"):
        yield f"{name} = {getattr(model, name):.4g}"
    yield "\n[launches]"
    for launch in Launch:
        yield f"{launch.name.lower()} = {model.launches[launch]:.3g}"
    for kind in Kind:
        yield f"\n[kind.{kind.name.lower()}]"
        yield f"overlap = {model.overlap[kind]:.3g}"
        yield f"bandwidth = {model.bandwidth[kind]:.3g}"
        yield f"asking = {model.asking[kind]:.3g}"
        if model.half_row[kind]:
            yield f"half_row = {model.half_row[kind]:.3g}"
        yield from _computing(model, kind)
    for name, generation in model.generations.items():
        yield f"\n[generation.{name}]"
        yield f"joules_per_flop = {_by_format(generation.joules_per_flop)}"
        yield f"flops = {_by_format(generation.flops)}"
        yield f"bandwidth = {generation.bandwidth:.3g}"
        for share in ("earlier", "across", "unaligned_images", "relaid_products"):
            yield f"{share} = {getattr(generation, share):.3g}"
    yield "\n# Seconds that the hosts of our own measurements took for a launch\n[host]"
    for source, seconds in fitted.hosts.items():
        yield f"{source} = {seconds:.4g}"
    for name, speed in model.gpus.items():
        yield f"\n[gpu.{name}]\nspeed = {speed:.3g}"
        yield f"rows = {sum(row.gpu == name for row in rows)}"


def _computing(model: SpeedModel, kind: Kind) -> Iterator[str]:
    if kind not in COMPUTING:
        return
    for unit in Format:
        yield f"{unit.name.lower()} = {model.compute[kind * FORMATS + unit]:.3g}"
    for name in ("half_inner", "half_columns", "half_tiles"):
        if value := getattr(model, name)[kind]:
            yield f"{name} = {value:.3g}"
    for unit in Format:
        if value := model.relaid[kind * FORMATS + unit]:
            yield f"relaid_{unit.name.lower()} = {value:.3g}"
        if (value := model.unaligned[kind * FORMATS + unit]) != 1:
            yield f"unaligned_{unit.name.lower()} = {value:.3g}"


def _by_format(values: Sequence[float]) -> str:
    cells = [f"{unit.name.lower()} = {values[unit]:.3g}" for unit in Format]
    return "{ " + ", ".join(cells) + " }"
