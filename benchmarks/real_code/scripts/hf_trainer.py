#!/usr/bin/env python
"""Fine-tunes a causal language model or a LoRA adapter for it with Hugging Face's Trainer."""

import logging
import math
import random
import sys
from dataclasses import dataclass, field

import torch
import transformers
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

logger = logging.getLogger(__name__)


@dataclass
class ModelArguments:
    n_embd: int = field(default=128, metadata={"help": "Width of the model."})
    n_layer: int = field(default=4, metadata={"help": "Its number of layers."})
    vocab_size: int = field(default=2000)
    lora_r: int = field(default=0, metadata={"help": "Rank of the LoRA adapters; 0 trains it all."})


@dataclass
class DataArguments:
    block_size: int = field(default=128)
    num_train: int = field(default=512)
    num_eval: int = field(default=32)


class Blocks(torch.utils.data.Dataset):
    """Blocks of token ids, in memory."""

    def __init__(self, n, length, vocab_size):
        rng = random.Random(n)
        self.rows = [[rng.randrange(vocab_size) for _ in range(length)] for _ in range(n)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids = self.rows[i]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": ids.copy()}


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    logging.basicConfig(stream=sys.stdout, level=logging.INFO)
    transformers.utils.logging.enable_default_handler()
    logger.warning("device: %s, bf16: %s", training_args.device, training_args.bf16)
    set_seed(training_args.seed)

    config = GPT2Config(
        vocab_size=model_args.vocab_size, n_positions=data_args.block_size,
        n_embd=model_args.n_embd, n_layer=model_args.n_layer, n_head=4,
        bos_token_id=0, eos_token_id=0,
    )
    model = AutoModelForCausalLM.from_config(config)
    if model_args.lora_r:
        from peft import LoraConfig, get_peft_model

        lora = LoraConfig(task_type="CAUSAL_LM", r=model_args.lora_r, lora_alpha=16,
                          lora_dropout=0.05, target_modules=["c_attn"], fan_in_fan_out=True)
        if training_args.gradient_checkpointing:
            model.enable_input_require_grads()
        model = get_peft_model(model, lora)
        model.print_trainable_parameters()

    def compute_metrics(eval_preds):
        predictions, labels = eval_preds
        return {"accuracy": float((predictions[:, :-1] == labels[:, 1:]).mean())}

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=Blocks(data_args.num_train, data_args.block_size, model_args.vocab_size),
        eval_dataset=Blocks(data_args.num_eval, data_args.block_size, model_args.vocab_size),
        data_collator=default_data_collator,
        compute_metrics=compute_metrics,
        preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(dim=-1),
    )
    result = trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.save_model()
    trainer.log_metrics("train", result.metrics)
    trainer.save_metrics("train", result.metrics)
    trainer.save_state()

    metrics = trainer.evaluate()
    metrics["perplexity"] = math.exp(min(metrics["eval_loss"], 50))
    trainer.log_metrics("eval", metrics)


if __name__ == "__main__":
    main()
