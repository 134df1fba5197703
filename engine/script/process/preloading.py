"""Imports the libraries that a program names before it is traced: once, for all of its traces.

Each trace runs in a fork, which has what its parent has loaded. Importing transformers' Trainer or
Lightning takes longer than tracing a small model.
"""

from __future__ import annotations

import ast
import importlib
import os
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from unittest.mock import patch

from ...gpus import Gpu
from ...tracing.lowering import CudaBehaviour
from ...versions.kernels import declared_without_gpu
from ..machine import Machine, seen_gpu
from ..program import SUFFIX, Program
from .sandbox import OFFLINE

LIBRARIES = frozenset(
    {
        "accelerate",
        "bitsandbytes",
        "datasets",
        "diffusers",
        "lightning",
        "peft",
        "pytorch_lightning",
        "sentence_transformers",
        "timm",
        "torchmetrics",
        "torchvision",
        "transformers",
        "trl",
    }
)
"""Libraries that take long to import, and are the same in every run: they only define things. Other
modules may do anything, so the script imports them itself."""

_preloaded: set[str] = set()


def preload(program: Program, behaviour: CudaBehaviour, gpu: Gpu | None) -> None:
    """Import those of :data:`LIBRARIES` that a program names, the first time it is given.

    They find the same GPU, variables and terminal as in the fork in which the program runs. What
    cannot be imported is left to the program, which fails there with its own line. Where it has a
    module of its own by one of these names, which a library may import too, nothing is imported.

    Args:
        program: It sees a GPU.
        behaviour: Behaviour of the GPU.
        gpu: The GPU that the program sees.
    """
    if program.path in _preloaded or any(_is_beside(program, name) for name in LIBRARIES):
        return
    _preloaded.add(program.path)
    nowhere = open(os.devnull, "w")  # noqa: PTH123, SIM115  # who logs may keep it for good
    with (
        seen_gpu(behaviour, gpu, Machine(behaviour, shows_gpu=True)),
        declared_without_gpu(),
        patch.dict(os.environ, OFFLINE),
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        for module, names in _imports(Path(program.path)):
            if module.partition(".")[0] not in LIBRARIES:
                continue
            with suppress(Exception, SystemExit):
                imported = importlib.import_module(module)
                for name in names:  # such libraries load much only when it is asked for
                    getattr(imported, name, None)


def _imports(file: Path) -> Iterator[tuple[str, list[str]]]:
    """The modules that a file imports, each with the names that it takes from there."""
    try:
        code = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # the program tells its own mistakes
        return
    for node in ast.walk(code):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, [alias.name for alias in node.names]


def _is_beside(program: Program, module: str) -> bool:
    """Whether the program finds a module of that name in its own folder first."""
    own = program.folder / module
    return own.with_suffix(SUFFIX).exists() or (own / "__init__.py").exists()
