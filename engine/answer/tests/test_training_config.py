"""The lines to paste say what was decided, and run."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.answer.training_config import training_configs
from engine.core.adapters import Adapter
from engine.core.choices import Method, Precision, Quantization
from engine.core.errors import InvalidInput
from engine.core.optimizers import Optimizer
from engine.interface.workload import Workload

FLASH: dict[str, Any] = {"attention": "flash", "precision": "bf16-mixed"}


def texts(model: str = "bert", batch_size: int = 64, **fields: Any) -> dict[str, str]:
    workload = Workload(model, **fields)
    return {one.name: one.text for one in training_configs(workload, batch_size)}


@given(
    precision=st.sampled_from(Precision),
    optimizer=st.sampled_from(Optimizer),
    gradient_checkpointing=st.booleans(),
    optimizer_in_backward=st.booleans(),
    gradient_accumulation=st.sampled_from([1, 4]),
    compile=st.booleans(),
    lora_rank=st.sampled_from([None, 8]),
    lora_targets=st.sampled_from(["", "all-linear", "query, value"]),
    quantization=st.sampled_from(Quantization),
    adapter=st.sampled_from(Adapter),
    modules_to_save=st.sampled_from([None, "embed_tokens, lm_head"]),
)
def test_every_decision_is_python_that_records_its_run(**fields: Any) -> None:
    if fields["lora_rank"] is None:
        fields["lora_targets"] = ""
    try:
        found = texts(**fields)
    except InvalidInput:  # such as LoRA without a trained parameter in the optimizer
        return
    for text in found.values():
        ast.parse(text)
        assert 'to_file("training_runs.jsonl")' in text
        assert "64" in text


@given(
    model=st.sampled_from(["bert", "resnet-18", "gpt2", "whisper-tiny", "sd-1.5"]),
    optimizer=st.sampled_from(Optimizer),
    optimizer_in_backward=st.booleans(),
    method=st.sampled_from(Method),
)
def test_every_decision_of_an_analysis_reports_its_run_to_it(model: str, **fields: Any) -> None:
    try:
        workload = Workload(model, **fields)
    except InvalidInput:
        return
    for one in training_configs(workload, 64, analysis_id=145):
        assert "sink = to_lab()" in one.text
        assert "analysis_id=145" in one.text
        assert 'to_file("training_runs.jsonl")' in one.text  # one word away


@pytest.mark.parametrize(
    ("attention", "named"),
    [("eager", "eager"), ("flash", "flash_attention_2"), ("flex", "flex_attention")],
)
def test_attention_is_that_of_the_analysis(attention: str, named: str) -> None:
    given = {"model": "llama-3.2-1b", "precision": "bf16-true", "attention": attention}
    workload = Workload.parse(given | {"lora_rank": 8})
    for one in training_configs(workload, 4):
        if one.name != "Command":
            set_at = one.text.index(f'model.set_attn_implementation("{named}")')
            assert set_at < one.text.index("get_peft_model(model")


def test_an_evaluation_that_generates_has_the_seq2seq_trainer() -> None:
    text = texts("t5-small", eval_batch_size=8, eval_samples=100, eval_new_tokens=64)["Trainer"]
    assert "trainer = Seq2SeqTrainer(" in text
    assert "eval_dataset=eval_dataset, compute_metrics=compute_metrics" in text
    assert "predict_with_generate=True" in text
    assert "generation_max_length=65" in text
    ast.parse(text)
    plain = texts("t5-small", eval_batch_size=8)["Trainer"]
    assert "per_device_eval_batch_size=8" in plain
    assert "Seq2Seq" not in plain


def test_a_decoder_alone_writes_behind_what_it_reads_with_so_many_beams() -> None:
    evaluated: dict[str, Any] = {"eval_batch_size": 8, "eval_samples": 100, "eval_new_tokens": 64}
    text = texts("gpt2", sequence_length=512, eval_num_beams=4, **evaluated)["Trainer"]
    assert "generation_max_length=576" in text
    assert "generation_num_beams=4" in text
    with pytest.raises(InvalidInput) as refused:
        Workload("gpt2", sequence_length=1024, **evaluated)
    assert list(refused.value.fields) == ["eval_new_tokens"]


def test_deepspeeds_settings_say_whether_communication_overlaps() -> None:
    sharing: dict[str, Any] = {"parallelism": "zero-2", "world_size": 2, "precision": "bf16-mixed"}
    assert '"overlap_comm": true' in texts(**sharing, overlap_comm=True)["Trainer"]
    assert "overlap_comm" not in texts(**sharing)["Trainer"]


def test_a_trainer_takes_the_arguments() -> None:
    transformers = pytest.importorskip("transformers")
    text = texts(optimizer="sgd-momentum", gradient_checkpointing=True, gradient_accumulation=4)[
        "Trainer"
    ]
    (call,) = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "TrainingArguments"
    ]
    given = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}
    arguments = transformers.TrainingArguments("output", report_to=[], **given)
    assert arguments.per_device_train_batch_size == 64
    assert arguments.gradient_accumulation_steps == 4
    assert arguments.gradient_checkpointing
    assert arguments.optim == "sgd"


def test_what_is_decided_is_what_the_lines_say() -> None:
    mixed = texts(precision="bf16-mixed", lora_rank=8, lora_targets="all-linear")
    assert "bf16=True," in mixed["Trainer"]
    assert 'precision="bf16-mixed"' in mixed["Lightning"]
    assert 'with torch.autocast("cuda", torch.bfloat16):' in mixed["PyTorch"]
    for text in mixed.values():
        assert 'LoraConfig(r=8, target_modules="all-linear")' in text
    both = texts(lora_rank=8, adapter="dora", modules_to_save="embed_tokens,lm_head")["PyTorch"]
    assert 'modules_to_save=["embed_tokens", "lm_head"], use_dora=True)' in both
    quantized = texts(precision="bf16-true", lora_rank=8, quantization="nf4")["PyTorch"]
    assert "load_in_4bit=True" in quantized
    assert "model.to(" not in quantized
    eight_bits = texts(precision="bf16-true", lora_rank=8, quantization="int8")["PyTorch"]
    assert "BitsAndBytesConfig(\n    load_in_8bit=True,\n)" in eight_bits
    single = texts(precision="bf16-true", lora_rank=8, quantization="fp4")["PyTorch"]
    assert 'bnb_4bit_quant_type="fp4",\n' in single
    some = texts(gradient_checkpointing=True, checkpoint_every=3)
    assert 'activation_checkpointing_kwargs={"every_n_layers": 3}' in some["Trainer"]
    assert "model.activation_checkpointing_enable(every_n_layers=3)" in some["PyTorch"]
    fused = texts("llama-3.2-1b", cross_entropy="liger")
    assert "use_liger_kernel=True," in fused["Trainer"]
    assert '"fused_linear_cross_entropy": True}' in fused["PyTorch"]
    in_parts = texts("llama-3.2-1b", cross_entropy="chunked")["Trainer"]
    assert "num_output_chunks=8" in in_parts
    for text in (*fused.values(), in_parts):
        ast.parse(text)
    lengths: dict[str, Any] = {
        "sample_lengths": "p50=100,max=512",
        "sequence_length": 512,
        "model": "gpt2",
    }
    batches = {
        one: texts(batching=one, **lengths, **(FLASH if one == "padding-free" else {}))
        for one in ("longest", "bucketed", "max-tokens", "packed", "padding-free")
    }
    for made in batches.values():
        for text in made.values():
            ast.parse(text)
    assert 'train_sampling_strategy="group_by_length",' in batches["bucketed"]["Trainer"]
    assert "sampler=LengthGroupedSampler(64, dataset)" in batches["bucketed"]["PyTorch"]
    assert "data_collator=DataCollatorWithFlattening()" in batches["padding-free"]["Trainer"]
    assert "pack_dataset(dataset, 512)" in batches["packed"]["Trainer"]
    assert list(batches["max-tokens"]) == ["PyTorch"]
    assert "at most 32768 tokens" in batches["max-tokens"]["PyTorch"]
    kept = texts(gradient_checkpointing=True, recompute="cheap", checkpoint_every=2)
    for name, text in kept.items():
        ast.parse(text)
        assert text.index("keep_products = ") < text.index('"context_fn": keep_products'), name
    away = texts(gradient_checkpointing=True, activation_offload=True)
    assert 'activation_checkpointing_kwargs={"offload": True}' in away["Trainer"]
    assert "model.activation_checkpointing_enable(offload=True)" in away["PyTorch"]
    on_host = texts(optimizer_offload=True)["Trainer"]
    assert "optimizer = torchao.optim.CPUOffloadOptimizer(" in on_host
    assert "optimizers=(optimizer, None)" in on_host
    assert "save_on_cpu(pin_memory=True)" in texts(activation_offload=True)["Trainer"]
    assert "scaler.scale(loss).backward()" in texts(precision="fp16-mixed")["PyTorch"]
    assert "if number % 4 == 0:" in texts(gradient_accumulation=4)["PyTorch"]
    assert "adamw_bnb_8bit" in texts(optimizer="adamw-8bit")["Trainer"]
    muon = texts(optimizer="muon")
    assert "optimizer = memorymark.step.optimizers.muon_with_adamw(model" in muon["Trainer"]
    assert "optimizers=(optimizer, None)" in muon["Trainer"]
    assert "optimizers=" not in texts(optimizer="schedule-free-adamw")["Trainer"]
    (in_backward,) = texts(optimizer_in_backward=True).values()
    assert "register_post_accumulate_grad_hook(update)" in in_backward
    assert "torch.optim.AdamW([weight], fused=True)" in in_backward
    assert "\noptimizer.step()" not in in_backward
    spread = texts(parallelism="fsdp", world_size=2)
    assert 'fsdp="full_shard"' in spread["Trainer"]
    assert 'devices=2, strategy="fsdp"' in spread["Lightning"]
    shards: dict[str, Any] = {"parallelism": "fsdp", "world_size": 2, "quantization": "nf4"}
    assert (
        "quant_storage=torch.bfloat16"
        in texts(precision="bf16-true", lora_rank=8, **shards)["Trainer"]
    )
