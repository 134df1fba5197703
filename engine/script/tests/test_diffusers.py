"""Pretrained models of diffusers in a custom step: built from their configs while it is traced."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from engine.core.errors import NotPredictable
from engine.script.libraries.in_libraries import Replacing
from engine.script.machine import pretended_machine
from engine.script.tests.scripts import A10

LIBRARY = """
class ModelMixin:
    config_name = "config.json"
    def named(self): return "a method of the library's"
    @classmethod
    def from_pretrained(cls, name): return f"{cls.__name__} with weights"
class Denoiser(ModelMixin):
    pass
"""


def on_a10(code: str) -> dict[str, object]:
    """The names that code leaves behind which runs on a machine with an A10."""
    names: dict[str, object] = {"torch": torch}
    with pretended_machine(A10):
        exec(code, names)  # noqa: S102 - the test's own code
    return names


@pytest.mark.parametrize("before", [True, False], ids=["imported before", "imported inside"])
def test_methods_of_classes_are_replaced_and_put_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    (folder / "some_library.py").write_text(LIBRARY)
    monkeypatch.delitem(sys.modules, "some_library", raising=False)
    if before:
        __import__("some_library")
    stand_in = classmethod(lambda cls, name: f"{cls.__name__} from {name}'s config")
    stand_ins = {"some_library": {"ModelMixin.from_pretrained": stand_in, "Missing.method": 1}}
    with Replacing(stand_ins, {}):
        library = __import__("some_library")
        assert library.Denoiser.from_pretrained("a") == "Denoiser from a's config"
        assert library.Denoiser().named() == "a method of the library's"
    assert library.Denoiser.from_pretrained("a") == "Denoiser with weights"
    del sys.modules["some_library"]


class TestDiffusersItself:
    """With the library, where it is installed."""

    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("diffusers")

    @pytest.fixture
    def saved(self, tmp_path: Path) -> Path:
        """The config of a small VAE, without weights."""
        diffusers = pytest.importorskip("diffusers")
        diffusers.AutoencoderKL(block_out_channels=(32,)).save_config(tmp_path / "whole" / "vae")
        return tmp_path / "whole"

    @pytest.mark.parametrize(
        ("options", "seen"),
        [
            ("subfolder='vae'", ("cpu", torch.float32)),
            ("subfolder='vae', variant='fp16', revision=None", ("cpu", torch.float32)),
            ("subfolder='vae', torch_dtype=torch.float16", ("cpu", torch.float16)),
            ("subfolder='vae', device_map='auto', max_memory={0: '9GiB'}", ("cuda", torch.float32)),
            ("subfolder='vae', use_safetensors=True, low_cpu_mem_usage=False, dtype='auto'",
             ("cpu", torch.float32)),
        ],
    )  # fmt: skip
    def test_a_model_is_built_from_its_config(
        self, saved: Path, options: str, seen: tuple[str, torch.dtype]
    ) -> None:
        names = on_a10(
            "from diffusers import AutoencoderKL\n"
            f"model = AutoencoderKL.from_pretrained({str(saved)!r}, {options})\n"
            "seen = model.device.type, model.dtype\n"
            "config = model.config.block_out_channels, model.training"
        )
        assert names["seen"] == seen
        assert names["config"] == ([32], False)

    def test_layers_that_stay_in_fp32_do(self, saved: Path) -> None:
        names = on_a10(
            "from diffusers import AutoencoderKL\n"
            "class Kept(AutoencoderKL):\n    _keep_in_fp32_modules = ['quant_conv']\n"
            f"model = Kept.from_pretrained({str(saved)!r}, subfolder='vae', dtype=torch.half)\n"
            "seen = model.quant_conv.weight.dtype, model.decoder.conv_in.weight.dtype"
        )
        assert names["seen"] == (torch.float32, torch.float16)

    @pytest.mark.parametrize(
        ("call", "says"),
        [
            ("'someone/something', subfolder='vae'", r"hf download someone/something vae/config"),
            ("{folder}, subfolder='vae', quantization_config=1", "quantized models of diffusers"),
            ("{folder}, subfolder='vae', parallel_config=1", "parallel_config shares a model"),
        ],
    )
    def test_what_it_cannot_build_is_refused(self, saved: Path, call: str, says: str) -> None:
        given = call.format(folder=repr(str(saved)))
        with pytest.raises(NotPredictable, match=says):
            on_a10(f"from diffusers import AutoencoderKL\nAutoencoderKL.from_pretrained({given})")

    def test_a_folder_without_a_config_is_a_mistake_of_the_script(self, tmp_path: Path) -> None:
        with pytest.raises(OSError, match=r"no file named config\.json"):
            on_a10(
                "from diffusers import AutoencoderKL\n"
                f"AutoencoderKL.from_pretrained({str(tmp_path)!r})"
            )
