"""Pretrained models in a script that is traced: built from their configs, without weights.

Memory does not depend on what the weights are. So ``from_pretrained`` builds the model that the
config describes, in the number format in which the weights would be loaded; and weights that a
library downloads (timm, torchvision, ``torch.hub``) are not, and loading them does nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

import huggingface_hub.constants
import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.generation.utils import GenerationMixin

from ...core.errors import NotPredictable
from ...models.presets import PRESETS, Preset
from ...step.transformers_versions import VERSION
from ...versions.patches import patched
from .in_libraries import Replacing, StandIns
from .loading_arguments import index_of, one_device, taken
from .pretrained_diffusers import model_from_config
from .quantized import Note, QuantizedLoading, given_quantization, on_a_command_line
from .quantized_by_hand import LAYERS

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

    def build(
        cls: Any,
        /,
        pretrained_model_name_or_path: Any,
        *model_args: Any,
        config: Any = None,
        **given: Any,
    ) -> Any:
        name = pretrained_model_name_or_path
        return _from_config(cls, name, model_args, config, given, note)

    with ExitStack() as stack:
        for owner, method, stand_in in (
            (PreTrainedModel, "from_pretrained", classmethod(build)),
            (GenerationMixin, "generate", _generate),
            (PretrainedConfig, "get_config_dict", classmethod(_config_dict)),
            (torch.hub, "load_state_dict_from_url", _unloaded),
            (torch.nn.Module, "load_state_dict", _load_state_dict),
            (huggingface_hub.constants, "HF_HUB_OFFLINE", True),
        ):
            stack.enter_context(
                patched(
                    owner,
                    method,
                    stand_in,
                    why="no weights are downloaded: memory does not depend on them",
                )
            )
        stack.enter_context(Replacing(_IN_LIBRARIES, {_unloaded: _load_from_url}))
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
    places = taken(given)
    dtype = given.pop("torch_dtype", None)
    dtype = given.pop("dtype", dtype)
    place = given.pop("device_map", None)
    attention = given.pop("attn_implementation", None)
    loading_info = given.pop("output_loading_info", False)
    quantized = given_quantization(given)
    if isinstance(config, PretrainedConfig):
        config = copy.deepcopy(config)
    else:
        config, left = cls.config_class.from_pretrained(
            name if config is None else config, return_unused_kwargs=True, **places, **given
        )
        given = {key: left[key] for key in given.keys() & left.keys()}  # not the places, if left
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
        device = one_device(place)
        torch.nn.Module.to(model, device)  # transformers' own refuses it to models in 8 bits
        model.hf_device_map = {"": index_of(device)}
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
        rest = dict(given)
        taken(rest)
        return preset.config(), rest
    return found


def _preset(name: str) -> Preset | None:
    """The preset of a hub id, also one of before models had an owner, such as ``gpt2``."""
    for preset in PRESETS.values():
        if name in (preset.hub_id, preset.hub_id.partition("/")[2]):
            return preset
    return None


def _unloaded(*_: Any, **__: Any) -> Unloaded:
    return Unloaded()


_IN_LIBRARIES: StandIns = {
    "timm.models._builder": {"load_pretrained": _unloaded, "load_custom_pretrained": _unloaded},
    "torchvision.models._api": {"load_state_dict_from_url": _unloaded},
    "torchvision._internally_replaced_utils": {"load_state_dict_from_url": _unloaded},
    "diffusers.models.modeling_utils": {
        "ModelMixin.from_pretrained": classmethod(model_from_config)
    },
    **LAYERS,
}
"""Stand-ins for what loads or quantizes weights in libraries, by the module that holds it."""

_load_from_url = torch.hub.load_state_dict_from_url
_load = torch.nn.Module.load_state_dict


def _load_state_dict(module: torch.nn.Module, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(state_dict, Unloaded):
        return torch.nn.modules.module._IncompatibleKeys([], [])
    return _load(module, state_dict, *args, **kwargs)
