"""Keeps a script from writing, logging, downloading and starting processes; in a fork."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, NoReturn

from ...core.errors import EngineError
from ...versions.loaded_modules import namespace
from ...versions.patches import patch_code, patch_for_good, patch_names_for_good
from ..on_import import when_imported
from .saved_files import SavedFiles
from .scratch import Scratch

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "WANDB_MODE": "disabled",
    "COMET_MODE": "disabled",
    "CLEARML_OFFLINE_MODE": "1",
    "NEPTUNE_MODE": "debug",
    "DISABLE_MLFLOW_INTEGRATION": "TRUE",
    "TQDM_DISABLE": "1",
    "MPLBACKEND": "Agg",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Variables that keep the libraries of the field off the network, and from logging anywhere."""

NO_NETWORK = (
    "MemoryMark keeps a script off the network while it looks at it; run it once yourself, so that "
    "what it downloads is on this machine"
)
"""The error of an attempt to reach another machine."""

_ELSEWHERE = (
    "the script starts its training in other processes ({}); pass the script that these run, with "
    "the arguments that make it train on one GPU"
)
_LAUNCHERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "deepspeed",
    "accelerate",
)

_SILENT: Mapping[str, tuple[str, ...]] = {
    "torch.distributed.checkpoint": ("save", "async_save"),
    "torch.jit": ("save",),
    "torch.onnx": ("export",),
    "safetensors.torch": ("save_file", "save_model"),
    "matplotlib.pyplot": ("show", "savefig"),
    "transformers.modeling_utils:PreTrainedModel": ("save_pretrained", "push_to_hub"),
    "transformers.tokenization_utils_base:PreTrainedTokenizerBase": ("save_pretrained",),
    "transformers.trainer:Trainer": ("_save_checkpoint", "save_model", "save_state"),
    "peft:PeftModel": ("save_pretrained",),
    "accelerate:Accelerator": ("save", "save_state", "save_model"),
    "lightning.pytorch:Trainer": ("save_checkpoint",),
    "pytorch_lightning:Trainer": ("save_checkpoint",),
    "mlflow": ("log_metric", "log_metrics", "log_param", "log_params", "log_artifact", "set_tag"),
    "torch.utils.tensorboard.writer:FileWriter": ("add_event",),
}
"""Functions and methods that write checkpoints, pictures and logs, by ``module`` or
``module:class``; they do nothing."""


@dataclass(frozen=True)
class Kept:
    """The files that a script has written in a process of ours."""

    _scratch: Scratch
    _saved: SavedFiles

    def training_begins(self) -> None:
        """Save no more values of real tensors: what is saved from now on is no data."""
        self._saved.are_data = False

    def remove(self) -> None:
        """Remove all that the script has made."""
        self._scratch.remove()


def keep_quiet() -> Kept:
    """Keep this process off the network, and from leaving anything behind; in a fork.

    Nothing of it can be undone.
    """
    os.environ.update(OFFLINE)
    patch_names_for_good(
        [(namespace("huggingface_hub.constants"), "HF_HUB_OFFLINE", True)],
        why="it may have been read from the environment already",
    )
    patches = {
        (socket.socket, "connect"): _on_this_machine(socket.socket.connect),
        (socket.socket, "connect_ex"): _on_this_machine(socket.socket.connect_ex),
        (socket, "getaddrinfo"): _no_such_name,
        (subprocess.Popen, "__init__"): _launching(subprocess.Popen.__init__),
    }
    for (holder, name), function in patches.items():
        patch_for_good(
            holder, name, function, why="a script is kept off the network, and starts no training"
        )
    silent = {place.partition(":")[0] for place in _SILENT}
    when_imported({module: partial(_silence, module) for module in silent})
    scratch = Scratch()
    return Kept(scratch, SavedFiles(scratch))


def _silence(name: str) -> None:
    """Let the functions of a module that write do nothing."""
    for place, functions in _SILENT.items():
        module, _, kind = place.partition(":")
        holder: Any = sys.modules[name]
        if module == name and (not kind or kind in namespace(name)):
            for function in functions:
                _let_do_nothing(getattr(holder, kind) if kind else holder, function)


def _let_do_nothing(holder: Any, name: str) -> None:
    """Let a function do nothing, also for modules that have imported it by its name."""
    function = getattr(holder, name, None)
    if isinstance(function, FunctionType) and not function.__closure__:
        patch_code(function, _nothing, why="modules that imported it by name must not write either")
    patch_for_good(holder, name, _nothing, why="a script that is traced saves and logs nothing")


def _nothing(*_: Any, **__: Any) -> None:
    """Stands for a function that writes."""


def _on_this_machine(connect: Callable[[socket.socket, Any], Any]) -> Callable[..., Any]:
    """Connects to sockets that are files, by which a loader's workers hand over their tensors."""

    def connected(connection: socket.socket, address: Any) -> Any:
        if connection.family == socket.AF_UNIX:
            return connect(connection, address)
        raise ConnectionRefusedError(f"{NO_NETWORK} (it wanted {address})")

    return connected


def _no_such_name(host: Any, *_: Any, **__: Any) -> NoReturn:
    raise socket.gaierror(f"{NO_NETWORK} (it wanted {host})")


def _launching(start: Callable[..., None]) -> Callable[..., None]:
    """Starts a process, unless it is one to train in."""

    def started(process: Any, arguments: Any, *args: Any, **kwargs: Any) -> None:
        words = arguments.split() if isinstance(arguments, str) else [str(arguments)]
        if isinstance(arguments, list | tuple):
            words = [str(word) for word in arguments]
        launchers = [word for word in words if Path(word).name in _LAUNCHERS]
        if launchers:
            raise EngineError(_ELSEWHERE.format(Path(launchers[0]).name))
        start(process, arguments, *args, **kwargs)

    return started
