"""Data samples on the command line: ``sample FILE``, and ``--sample FILE`` of other commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import InvalidInput
from ..models.model import Model
from .terminal import answer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..script.data.samples import DataSample

FLAGS = {
    "sample": "--sample",
    "sample_field": "--sample-field",
    "percentile": "--percentile",
    "tokenizer": "--tokenizer",
}
"""Flags by field, for messages."""

_ABOUT = "text file (one sample per line), JSON lines, CSV, or a folder or zip of images"
_FIELD = "field or column that holds the text"
_PERCENTILE = "percentage of samples that must fit uncut; default 95"
_TOKENIZER = "tokenizer.json to count tokens with; otherwise 4 characters per token are assumed"


def add_sample_command(commands: Any) -> None:
    parser = commands.add_parser(
        "sample",
        help="find the input sizes in a data sample",
        description="Find the input sizes in a data sample.",
        allow_abbrev=False,
    )
    parser.usage = f"{parser.prog} FILE [options]"
    parser.add_argument("sample", metavar="FILE", help=_ABOUT)
    parser.add_argument("--field", dest="sample_field", metavar="NAME", help=_FIELD)
    parser.add_argument("--percentile", default="95", metavar="P", help=_PERCENTILE)
    parser.add_argument("--tokenizer", metavar="FILE", help=_TOKENIZER)
    parser.add_argument("--json", action="store_true", help="print JSON")
    names = FLAGS | {"sample": "FILE", "sample_field": "--field"}
    parser.set_defaults(command=_sample, names=names)


def add_sample_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sample", metavar="FILE", help=f"take the input size from a {_ABOUT}")
    parser.add_argument("--sample-field", metavar="NAME", help=_FIELD)
    parser.add_argument("--percentile", metavar="P", help=_PERCENTILE)
    parser.add_argument("--tokenizer", metavar="FILE", help=_TOKENIZER)


def size_by_sample(
    options: argparse.Namespace, model: Model, given: Mapping[str, object]
) -> tuple[dict[str, int], list[str]]:
    """The input size that ``--sample`` leads to; explained on stderr.

    Args:
        options: Options of a command with the flags of :func:`add_sample_flags`.
        model: The model that takes the input.
        given: The other fields of the request.

    Returns:
        One field of the workload, and the sentence about the longest sample; both empty without
        ``--sample``.

    Raises:
        InvalidInput: For a field of :data:`FLAGS`, or a size given in addition to the sample.
    """
    if getattr(options, "sample", None) is None:
        for name in ("sample_field", "percentile", "tokenizer"):
            if getattr(options, name, None) is not None:
                raise InvalidInput({name: "only works with --sample; pass a sample too"})
        return {}, []
    from ..script.data.samples import LIMIT_OF, input_size  # loads Pillow

    percent, sample = _read(options)
    field = LIMIT_OF[sample.kind]
    limits = getattr(model, field)
    if limits is None:
        message = f"it contains {sample.kind}s, which {model.display_name} does not take"
        raise InvalidInput({"sample": message})
    if given.get(field) is not None:
        raise InvalidInput({field: "the sample determines it; leave it out"})
    wanted = input_size(sample, percent, limits)
    what = field.replace("_", " ").capitalize()
    for sentence in (f"{what} {wanted.size:,}: {wanted.note}", *sample.notes):
        sys.stderr.write(f"{sentence}\n")
    return {field: wanted.size}, [sample.first_to_try]


def _sample(options: argparse.Namespace) -> int:
    percent, sample = _read(options)
    plain = {
        "kind": sample.kind,
        "count": sample.count,
        "percentile": percent,
        "source": sample.source,
        "sizes": {name: asdict(found) for name, found in sample.spreads(percent).items()},
        "longest": asdict(sample.longest),
        "notes": sample.notes,
    }
    answer(options, plain, lambda: _render(sample, percent))
    return 0


def _read(options: argparse.Namespace) -> tuple[float, DataSample]:
    from ..script.data.samples import percentage, read_sample  # loads Pillow

    percent = percentage("95" if options.percentile is None else options.percentile)
    tokenizer = Path(options.tokenizer) if options.tokenizer else None
    return percent, read_sample(Path(options.sample), options.sample_field, tokenizer)


def _render(sample: DataSample, percent: float) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    plural = "s" if sample.count != 1 else ""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for heading in (
        "smallest",
        "median",
        f"{percent:g}%\nat most",
        "padded\nto 8",
        "largest",
        "padded\nto 8",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    unit = "" if sample.kind == "text" else ", pixels"
    for name, found in sample.spreads(percent).items():
        sizes = (
            found.smallest,
            found.median,
            found.at_percentile,
            found.padded,
            found.largest,
            found.worst,
        )
        table.add_row(f"{name}{unit}", *(f"{size:,}" for size in sizes))
    head = Text(f"{sample.count:,} {sample.kind} sample{plural} ({sample.source})", style="bold")
    notes = (Text(note, style="dim") for note in sample.notes)
    return Group(head, table, Text(sample.first_to_try), *notes)
