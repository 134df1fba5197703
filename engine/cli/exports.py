"""``--memory-snapshot FILE`` and ``--chrome-trace FILE``: a step for other tools."""

from __future__ import annotations

import argparse
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..allocator.options import AllocatorOptions
from ..core.choices import Precision
from ..core.errors import InvalidInput
from ..interface.request import AnalysisRequest, Request
from ..interface.trial import StepFiles

if TYPE_CHECKING:
    from ..gpus import Gpu
    from ..tracing.trace import Trace

_SNAPSHOT, _CHROME = "memory_snapshot", "chrome_trace"
FLAGS = {_SNAPSHOT: "--memory-snapshot", _CHROME: "--chrome-trace"}
"""The flags, by what errors name."""


def add_export_flags(parser: Any) -> None:
    """Add the flags to a command that predicts one batch size."""
    group = parser.add_argument_group("files for other tools")
    group.add_argument(
        FLAGS[_SNAPSHOT],
        metavar="FILE",
        help="write the predicted steps as a memory snapshot of PyTorch (.pickle), which "
        "pytorch.org/memory_viz opens",
    )
    group.add_argument(
        FLAGS[_CHROME],
        metavar="FILE",
        help="write the kernels of the predicted step as a trace (.json), which "
        "chrome://tracing and Perfetto open",
    )


@dataclass(frozen=True)
class Exports:
    """The files to write of a predicted step.

    Attributes:
        request: What is predicted.
        snapshot, chrome: The files; ``None`` for those that are not wanted.
    """

    request: Request
    snapshot: Path | None
    chrome: Path | None

    @classmethod
    def of(cls, options: argparse.Namespace, request: Request) -> Exports:
        """The files that the flags name.

        Raises:
            InvalidInput: If one cannot be written, or is not there for such a request.
        """
        files = {name: _file(options, name) for name in (_SNAPSHOT, _CHROME)}
        workload = request.workload if isinstance(request, AnalysisRequest) else None
        if files[_CHROME] is not None and workload is not None and workload.pipeline_parallel > 1:
            message = "not for pipelines, whose step is computed from that of one stage"
            raise InvalidInput({_CHROME: message})
        return cls(request, files[_SNAPSHOT], files[_CHROME])

    def write(self, trace: Trace, gpu: Gpu) -> None:
        """Write the files of a step on a GPU."""
        if self.snapshot is not None:
            from ..exports.memory_snapshot import memory_snapshot

            snapshot = memory_snapshot(trace, AllocatorOptions.parse(self.request.allocator))
            _write(_SNAPSHOT, self.snapshot, lambda: pickle.dumps(snapshot))
        if self.chrome is not None:
            from ..exports.chrome_trace import chrome_trace

            step = chrome_trace(trace, gpu, *self._settings(trace))
            _write(_CHROME, self.chrome, lambda: json.dumps(step).encode())

    def _settings(self, trace: Trace) -> tuple[Precision, int]:
        """The precision of products in fp32, and the micro-batches that were not all traced."""
        if isinstance(self.request, AnalysisRequest):
            workload = self.request.workload
            return workload.precision, workload.gradient_accumulation
        return Precision.TF32 if trace.tf32 else Precision.FP32, 1


def add_measured_export_flags(parser: Any) -> None:
    """Add the flags to a command that measures one batch size."""
    group = parser.add_argument_group("files for other tools")
    group.add_argument(
        FLAGS[_SNAPSHOT],
        metavar="FILE",
        help="run the steps once more and write PyTorch's own memory snapshot of them (.pickle), "
        "with Python's stacks, which pytorch.org/memory_viz opens; only with CUDA",
    )
    group.add_argument(
        FLAGS[_CHROME],
        metavar="FILE",
        help="run the steps once more and write the operators and kernels of one as PyTorch's "
        "profiler sees them (.json, or .json.gz), which chrome://tracing and Perfetto open",
    )


def measured_files(options: argparse.Namespace) -> StepFiles:
    """The files of a measured step that the flags name.

    Raises:
        InvalidInput: If one cannot be written.
    """
    return StepFiles(_file(options, _SNAPSHOT), _file(options, _CHROME))


def _file(options: argparse.Namespace, name: str) -> Path | None:
    named = getattr(options, name)
    file = Path(named) if named else None
    if file is not None and not file.resolve().parent.is_dir():
        raise InvalidInput({name: f"there is no folder {file.parent}"})
    return file


def _write(name: str, file: Path, content: Callable[[], bytes]) -> None:
    try:
        file.write_bytes(content())
    except OSError as error:
        raise InvalidInput({name: f"cannot be written: {error.strerror}"}) from error
