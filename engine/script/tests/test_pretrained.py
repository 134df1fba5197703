"""Pretrained models in a custom step: built from their configs while it is traced."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel, PreTrainedModel

from engine.core.errors import NotPredictable
from engine.measurement import cpu
from engine.measurement.protocol import TrialOrder
from engine.script.libraries import loading_arguments
from engine.script.machine import Machine, pretended_machine
from engine.script.tests.scripts import A10, written
from engine.script.trace import CannotTrace, trace_script
from engine.step.transformers_versions import VERSION

LOADING = """
import torch
from transformers import AutoModelForSequenceClassification

def make_step(batch_size):
    model = AutoModelForSequenceClassification.from_pretrained({name}, num_labels=5{options})
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, 100, (batch_size, 8)).to(model.device)
    labels = torch.zeros(batch_size, dtype=torch.long).to(model.device)
    def step():
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return step
"""


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A small pretrained model in a folder of its own."""
    config = BertConfig(
        num_hidden_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        intermediate_size=128,
        vocab_size=100,
    )
    BertModel(config).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def loading(folder: Path, name: str, options: str = "") -> str:
    return LOADING.replace("{name}", repr(name)).replace("{options}", options)


def run(code: str) -> tuple[dict[str, object], Machine]:
    """The names that code leaves behind which runs on a machine with an A10."""
    names: dict[str, object] = {"torch": torch}
    with pretended_machine(A10) as machine:
        exec(code, names)  # noqa: S102 - the test's own code
    return names, machine


@pytest.mark.longer
@pytest.mark.parametrize(
    "options",
    [
        "",
        pytest.param(", dtype=torch.bfloat16", marks=pytest.mark.slow),
        pytest.param(", attn_implementation='eager'", marks=pytest.mark.slow),
    ],
)
def test_a_model_from_a_folder_equals_a_real_step_to_the_byte(
    folder: Path, saved: Path, options: str
) -> None:
    factory = written(folder, loading(folder, str(saved), options))
    measured = cpu.run_trial(TrialOrder(factory, 4))
    peak, breakdown = trace_script(factory, 4, None).peak_by_category()
    assert peak == measured.peak_allocated_bytes
    assert breakdown == measured.breakdown


def test_it_is_ready_to_be_evaluated_and_on_the_device_asked_for(saved: Path) -> None:
    names, _ = run(
        "from transformers import AutoModel\n"
        f"model = AutoModel.from_pretrained({str(saved)!r}, device_map='auto')\n"
        "seen = (model.training, model.device.type, model.dtype, model.hf_device_map)"
    )
    assert names["seen"] == (False, "cuda", torch.float32, {"": 0})


def test_its_tokenizer_is_found_by_its_name(saved: Path) -> None:
    names, _ = run(
        "from transformers import BertModel\n"
        f"seen = BertModel.from_pretrained({str(saved)!r}).name_or_path"
    )
    assert names["seen"] == str(saved)


@pytest.mark.parametrize(
    "options",
    [
        "variant='fp16', revision='main', use_safetensors=True, weights_only=False",
        "low_cpu_mem_usage=True, ignore_mismatched_sizes=True, local_files_only=True, token=None",
        "device_map='auto', max_memory=dict(cpu='60GiB'), offload_folder='off'",
        "output_attentions=True, add_pooling_layer=True, subfolder='', cache_dir=None",
        "config=BertConfig.from_pretrained({name!r}), variant=None, key_mapping=None",
        "pretrained_model_name_or_path={name!r}, trust_remote_code=True, proxies=None",
    ],
)
@pytest.mark.parametrize("kind", ["BertModel", "AutoModel"])
def test_a_class_takes_what_says_how_weights_are_read(saved: Path, kind: str, options: str) -> None:
    given = options.format(name=str(saved))
    by_name = given.startswith("pretrained_model_name_or_path")
    names, _ = run(
        f"from transformers import BertConfig, {kind}\n"
        f"model = {kind}.from_pretrained({'' if by_name else f'{str(saved)!r}, '}{given})\n"
        "seen = (model.config.hidden_size, model.device.type, model.dtype)"
    )
    assert names["seen"] == (64, "cuda" if "device_map" in options else "cpu", torch.float32)


def test_what_transformers_takes_for_loading_reaches_no_model() -> None:
    """Its own arguments, by its source: those it names, and those that it takes out."""
    source = inspect.getsource(PreTrainedModel.from_pretrained)
    taken_out = set(re.findall(r'\bkwargs\.pop\(\s*"(\w+)"', source))
    named = {
        name
        for name, one in inspect.signature(PreTrainedModel.from_pretrained).parameters.items()
        if one.kind is one.KEYWORD_ONLY
    }
    ours = {"torch_dtype", "dtype", "device_map", "attn_implementation", "output_loading_info"}
    passed_on = {"config", "quantization_config", "experts_implementation"}
    passed_on |= {"load_in_8bit", "load_in_4bit", "use_flash_attention_2"}  # until transformers 5
    given = dict.fromkeys((taken_out | named) - ours - passed_on)
    loading_arguments.taken(given)
    assert not given


def test_a_name_that_means_another_model_for_the_class_is_still_an_error(saved: Path) -> None:
    with pytest.raises(TypeError, match="no_such_option"):
        run(
            "from transformers import BertModel\n"
            f"BertModel.from_pretrained({str(saved)!r}, variant=None, no_such_option=1)"
        )


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("tp_plan='auto'", "tp_plan shares a model between several GPUs"),
        ("use_kernels=True", "use_kernels takes kernels of the Hub"),
        ("fusion_config={'patch_embeddings': True}", "fusion_config fuses layers"),
    ],
)
def test_what_makes_another_model_is_refused(saved: Path, option: str, says: str) -> None:
    with pytest.raises(NotPredictable, match=says):
        run(
            "from transformers import BertModel\n"
            f"BertModel.from_pretrained({str(saved)!r}, {option})"
        )


def test_a_config_that_is_given_stays_as_it_is(saved: Path) -> None:
    names, _ = run(
        "from transformers import BertConfig, BertModel\n"
        "config = BertConfig(num_hidden_layers=1, hidden_size=8, num_attention_heads=2)\n"
        "before = config.to_dict()\n"
        f"BertModel.from_pretrained({str(saved)!r}, config=config, dtype='float16')\n"
        "seen = (config.name_or_path, config.to_dict() == before)"
    )
    assert names["seen"] == ("", True)


def test_a_file_of_the_hub_that_is_not_here_is_no_mistake_of_the_script(folder: Path) -> None:
    code = """
from huggingface_hub import hf_hub_download

def make_step(batch_size):
    try:
        hf_hub_download("someone/something", "vocabulary.txt")
    except Exception:
        raise OSError("no vocabulary")
"""
    with pytest.raises(CannotTrace, match=r"no vocabulary\. .*fetch it once \(hf download\)"):
        trace_script(written(folder, code), 4, A10)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("google-bert/bert-base-uncased", torch.float32), ("bert-base-uncased", torch.float32)],
)
def test_known_ids_are_built_from_our_presets_and_the_format_is_stated(
    name: str, dtype: torch.dtype
) -> None:
    names, machine = run(
        "from transformers import AutoModelForMaskedLM\n"
        f"model = AutoModelForMaskedLM.from_pretrained({name!r})\n"
        "seen = (model.dtype, model.config.num_hidden_layers)"
    )
    assert names["seen"] == (dtype, 12)
    said = (
        "The config of bert does not say in which format its weights were saved; float32 is "
        "assumed."
    )
    # Before transformers 5, models are loaded in PyTorch's default format, whatever was saved.
    assert machine.caveats == ([said] if VERSION >= (5, 0) else [])


def test_an_unknown_id_is_refused_with_its_line(folder: Path) -> None:
    factory = written(folder, loading(folder, "someone/something"))
    says = (
        r"at mine\.py, line 6 .* the config of someone/something cannot be reached, .*hf download"
    )
    with pytest.raises(CannotTrace, match=says):
        trace_script(factory, 4, A10)


GENERATING = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel

def make_step(batch_size):
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=50))
    ids = torch.ones(batch_size, 4, dtype=torch.long)
    def step():
        model.generate(ids, max_new_tokens=3{options})
    return step
"""


@pytest.mark.parametrize("options", ["", ", cache_implementation='static'"])
def test_a_text_has_no_end_without_weights(folder: Path, options: str) -> None:
    with pytest.raises(CannotTrace, match="'memorymark analyze MODEL --method grpo'"):
        trace_script(written(folder, GENERATING.format(options=options)), 4, A10)


def test_downloaded_weights_are_not_loaded() -> None:
    names, _ = run(
        "state = torch.hub.load_state_dict_from_url('https://example.org/resnet.pth')\n"
        "del state['fc.weight']\n"
        "model = torch.nn.Linear(2, 2)\n"
        "result = model.load_state_dict(state['model'])\n"
        "own = model.load_state_dict(model.state_dict())"
    )
    assert "matched" in str(names["result"])
    assert "matched" in str(names["own"])


@pytest.mark.parametrize("before", [True, False], ids=["imported before", "imported by the script"])
def test_libraries_that_load_weights_themselves_do_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """timm, whose functions of that name are replaced wherever the import stands."""
    package = folder / "timm" / "models"
    package.mkdir(parents=True)
    (folder / "timm" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "_builder.py").write_text(
        "def load_pretrained(model): raise OSError('no network')\n"
        "def build(model): load_pretrained(model); return model\n"
    )
    for name in ("timm", "timm.models", "timm.models._builder"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    code = "from timm.models import _builder\nbuilt = _builder.build(1)"
    if before:
        exec("from timm.models import _builder", {})  # noqa: S102 - the test's own code
    names, _ = run(code)
    assert names["built"] == 1
    with pytest.raises(OSError, match="no network"):
        names["_builder"].build(1)  # type: ignore[attr-defined]  # the module
    for name in ("timm", "timm.models", "timm.models._builder"):
        sys.modules.pop(name, None)
