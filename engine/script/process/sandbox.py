"""Keeps a script from writing, logging, downloading and starting processes; in a fork."""

from __future__ import annotations

import builtins
import io
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import IO, Any, NoReturn

from ...core.errors import EngineError
from ...versions.loaded_modules import namespace
from ...versions.patches import patch_code, patch_for_good, patch_names_for_good
from ..on_import import when_imported

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
    "torch": ("save",),
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


def keep_quiet() -> Scratch:
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
    return Scratch()


def temporary_folder() -> str:
    """Folder in which scripts may write: what is there is not expected to stay."""
    return tempfile.gettempdir()


class Scratch:
    """Files that a script writes: they go into a folder of their own, and it reads them there.

    Caches and temporary files stay where they are. Folders are made, and :meth:`remove` removes
    them.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp())
        self._moved: dict[str, str] = {}
        self._made: list[str] = []
        caches = (os.environ.get(name) for name in ("HF_HOME", "XDG_CACHE_HOME", "TORCH_HOME"))
        apart = (
            temporary_folder(),
            str(self._folder),
            "/dev",
            "/proc",
            str(Path.home() / ".cache"),
            *caches,
        )
        self._apart = tuple(os.path.realpath(folder) for folder in apart if folder)
        self._open, self._mkdir, self._replace = builtins.open, os.mkdir, os.replace
        for owner, name, stand_in in (
            (builtins, "open", self._opened),
            (io, "open", self._opened),
            (os, "mkdir", self._folder_made),
            (os, "replace", self._renamed),
            (os, "rename", self._renamed),
        ):
            patch_for_good(
                owner,
                name,
                stand_in,
                why="what a script writes goes into a folder of its own",
            )

    def remove(self) -> None:
        """Remove the folders that the script made, and what it wrote."""
        for folder in reversed(self._made):
            with suppress(OSError):  # something is in it
                os.rmdir(folder)  # noqa: PTH106  # pathlib would do the same
        shutil.rmtree(self._folder, ignore_errors=True)

    def _opened(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> IO[Any]:
        if not isinstance(file, int):
            path = os.path.realpath(os.fsdecode(file))
            if set(mode) & set("wax+") and not path.startswith(self._apart):
                self._move(path, mode)
            file = self._moved.get(path, file)
        opened: IO[Any] = self._open(file, mode, *args, **kwargs)
        return opened

    def _move(self, path: str, mode: str) -> None:
        """Let a path stand for a file of ours from now on, with what it holds by now."""
        if path in self._moved or not Path(path).parent.is_dir():
            return
        if "x" in mode and Path(path).exists():
            return  # the system refuses it
        own = str(self._folder / f"{len(self._moved)}-{Path(path).name}")
        if "w" not in mode and Path(path).is_file():
            shutil.copyfile(path, own)
        self._moved[path] = own

    def _folder_made(self, path: Any, *args: Any, **kwargs: Any) -> None:
        self._mkdir(path, *args, **kwargs)
        self._made.append(os.path.realpath(os.fsdecode(path)))

    def _renamed(self, source: Any, target: Any, **kwargs: Any) -> None:
        known = self._moved.pop(os.path.realpath(os.fsdecode(source)), None)
        if known is None:
            self._replace(source, target, **kwargs)
        else:
            self._moved[os.path.realpath(os.fsdecode(target))] = known


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
