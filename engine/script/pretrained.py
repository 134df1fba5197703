"""Pretrained models in a script that is traced: built from their configs, without weights.

Memory does not depend on what the weights are. So ``from_pretrained`` builds the model that the
config describes, in the number format in which the weights would be loaded; and weights that a
library downloads (timm, torchvision, ``torch.hub``) are not, and loading them does nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn
from unittest.mock import patch

import huggingface_hub.constants
import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.generation.utils import GenerationMixin

from ..core.errors import NotPredictable
from ..models.presets import PRESETS, Preset
from ..step.transformers_versions import VERSION
from ..versions.loaded_modules import Change, namespace
from .quantized import QuantizedLoading, on_a_command_line

_OF_THE_HUB = (
    "cache_dir", "force_download", "resume_download", "proxies", "token", "use_auth_token",
    "local_files_only", "revision", "trust_remote_code", "subfolder", "variant", "gguf_file",
    "use_safetensors", "weights_only", "ignore_mismatched_sizes", "state_dict", "mirror",
    "low_cpu_mem_usage", "_fast_init", "offload_folder", "offload_buffers", "offload_state_dict",
    "max_memory", "key_mapping", "disable_mmap", "tqdm_class", "from_tf", "from_flax",
    "_from_pipeline", "_from_auto", "_commit_hash", "adapter_kwargs", "adapter_name",
    "generation_config",
)  # fmt: skip
"""Arguments of ``from_pretrained`` that say where weights come from, or how they are read."""

_SHARING = ("tp_plan", "tp_size", "device_mesh", "distributed_config")
_PUBLISHED_IN_BF16 = (
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "phi3",
    "olmo3",
    "smollm3",
)

Note = Callable[[str], None]


class Unloaded(dict[str, Any]):
    """The weights of a file that is not loaded: it has none, whatever key is looked up."""

    def pop(self, key: str, *default: Any) -> Any:
        """Nothing to take out."""
        return None

    def __delitem__(self, key: str) -> None:
        pass

    def __missing__(self, key: str) -> Unloaded:
        return self


@contextmanager
def without_weights(note: Note) -> Iterator[None]:
    """Build pretrained models from their configs, for as long as the context lasts.

    What depends on the weights themselves is refused: a text ends where they say so.

    Args:
        note: Receives a sentence about what had to be assumed.
    """

    def build(cls: Any, /, name: Any, *args: Any, config: Any = None, **given: Any) -> Any:
        return _from_config(cls, name, args, config, given, note)

    with ExitStack() as stack:
        for owner, method, stand_in in (
            (PreTrainedModel, "from_pretrained", classmethod(build)),
            (GenerationMixin, "generate", _generate),
            (PretrainedConfig, "get_config_dict", classmethod(_config_dict)),
            (torch.hub, "load_state_dict_from_url", _unloaded),
            (torch.nn.Module, "load_state_dict", _load_state_dict),
            (huggingface_hub.constants, "HF_HUB_OFFLINE", True),
        ):
            stack.enter_context(patch.object(owner, method, stand_in))
        stack.enter_context(_InLibraries())
        yield


def _generate(model: Any, *_: Any, **__: Any) -> NoReturn:
    named = on_a_command_line(model.config)
    raise NotPredictable(
        "generate() goes on until the weights end a text, and a trace has none; predict training "
        f"on such texts with 'memorymark analyze {named} --method grpo' (or ppo), and texts alone "
        f"with 'memorymark generate {named}'"
    )


def _from_config(
    cls: Any, name: Any, args: Any, config: Any, given: dict[str, Any], note: Note
) -> Any:
    """``PreTrainedModel.from_pretrained``, but for the weights."""
    for shared in _SHARING:
        if given.pop(shared, None) is not None:
            raise NotPredictable(f"{shared} shares a model between several GPUs; measure it there")
    own = {key: given.pop(key) for key in _OF_THE_HUB if key in given}
    dtype = given.pop("torch_dtype", None)
    dtype = given.pop("dtype", dtype)
    place = given.pop("device_map", None)
    attention = given.pop("attn_implementation", None)
    loading_info = given.pop("output_loading_info", False)
    quantized = given.pop("quantization_config", None)
    if not isinstance(config, PretrainedConfig):
        config, given = cls.config_class.from_pretrained(
            name if config is None else config, return_unused_kwargs=True, **own, **given
        )
    if name is not None:
        config.name_or_path = str(name)  # a trainer looks for the tokenizer there
    in_bits = None
    if quantized is not None or getattr(config, "quantization_config", None) is not None:
        in_bits = QuantizedLoading(config, quantized)
        place = in_bits.place(place)
        if dtype is None and VERSION < (5, 0):
            dtype = in_bits.default_dtype
    options = {} if attention is None else {"attn_implementation": attention}
    loaded = _dtype(dtype, config, note)
    options["dtype" if VERSION >= (4, 56) else "torch_dtype"] = loaded
    model = cls._from_config(config, *args, **options, **given).eval()
    if in_bits is not None:
        in_bits.apply(model, note)
    if place is not None:
        device = _device(place)
        model.to(device)
        model.hf_device_map = {"": _index(device)}
    return (model, {"missing_keys": [], "unexpected_keys": []}) if loading_info else model


def _dtype(given: Any, config: Any, note: Note) -> torch.dtype:
    """The number format in which the weights would be loaded.

    Since transformers 5.0 it is the one they were saved in, which the config says, if it was saved
    with them.
    """
    if given is None:
        given = "auto" if VERSION >= (5, 0) else torch.get_default_dtype()
    if given == "auto":
        given = getattr(config, "dtype" if VERSION >= (4, 56) else "torch_dtype", None)
    if given is None:
        published = config.model_type in _PUBLISHED_IN_BF16
        given = torch.bfloat16 if published else torch.float32
        note(
            f"The config of {config.model_type} does not say in which format its weights were "
            f"saved; {str(given).removeprefix('torch.')} is assumed."
        )
    found: torch.dtype = getattr(torch, given) if isinstance(given, str) else given
    return found


def _device(place: Any) -> Any:
    """The one device of a ``device_map``."""
    if isinstance(place, Mapping):
        devices = set(place.values())
        if len(devices) > 1 or "disk" in devices:
            raise NotPredictable("device_map spreads a model over several devices")
        (place,) = devices
    gpu = "cuda" if torch.cuda.is_available() else "cpu"
    automatic = ("auto", "balanced", "balanced_low_0", "sequential")
    return gpu if isinstance(place, str) and place in automatic else place


def _index(device: Any) -> Any:
    """A device as transformers says where a model is: a GPU by its number."""
    named = torch.device(device)
    return (named.index or 0) if named.type == "cuda" else named.type


_get_config_dict = PretrainedConfig.get_config_dict.__func__


def _config_dict(cls: Any, /, name: Any, **given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A config from a folder or from the cache of the Hub, else that of a preset.

    Raises:
        NotPredictable: If there is none.
    """
    try:
        found: tuple[dict[str, Any], dict[str, Any]] = _get_config_dict(
            cls, name, **{**given, "local_files_only": True}
        )
    except (OSError, ValueError) as error:
        preset = _preset(str(name))
        if preset is None:
            raise NotPredictable(
                f"the config of {name} cannot be reached, as a script that is traced downloads "
                f"nothing; fetch it once (hf download {name} config.json)"
            ) from error
        rest = {key: value for key, value in given.items() if key not in _OF_THE_HUB}
        return preset.config(), rest
    return found


def _preset(name: str) -> Preset | None:
    """The preset of a hub id, also one of before models had an owner, such as ``gpt2``."""
    for preset in PRESETS.values():
        if name in (preset.hub_id, preset.hub_id.partition("/")[2]):
            return preset
    return None


_IN_LIBRARIES = {
    "timm.models._builder": ("load_pretrained", "load_custom_pretrained"),
    "torchvision.models._api": ("load_state_dict_from_url",),
    "torchvision._internally_replaced_utils": ("load_state_dict_from_url",),
}
"""Functions that load weights, by the module that holds them."""


def _unloaded(*_: Any, **__: Any) -> Unloaded:
    return Unloaded()


class _InLibraries(MetaPathFinder):
    """Replaces the functions of libraries that load weights, also of those imported later on.

    To import them for that would take seconds, and few scripts use them.
    """

    def __init__(self) -> None:
        self._before: list[Change] = []

    def __enter__(self) -> None:
        for name in _IN_LIBRARIES:
            self._replace(name)
        sys.meta_path.insert(0, self)

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)
        for names, name, function in self._before:
            names[name] = function

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """The spec that others find, of a module that is changed once it is imported."""
        if name not in _IN_LIBRARIES:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                load = spec.loader.exec_module

                def load_and_replace(
                    module: ModuleType, load: Callable[[ModuleType], None] = load
                ) -> None:
                    load(module)
                    self._replace(name)

                spec.loader.exec_module = load_and_replace  # type: ignore[method-assign]  # a loader per module
                return spec
        return None

    def _replace(self, module: str) -> None:
        names = namespace(module)
        for name in _IN_LIBRARIES[module]:
            if name in names:
                own = names[name]
                self._before.append((names, name, _load_from_url if own is _unloaded else own))
                names[name] = _unloaded


_load_from_url = torch.hub.load_state_dict_from_url
_load = torch.nn.Module.load_state_dict


def _load_state_dict(module: torch.nn.Module, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(state_dict, Unloaded):
        return torch.nn.modules.module._IncompatibleKeys([], [])
    return _load(module, state_dict, *args, **kwargs)
