"""Supervised fine-tuning with TRL: python trl_sft.py --per_device_train_batch_size 8 --bf16 false"""

from dataclasses import dataclass

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser, get_peft_config


@dataclass
class ScriptArguments:
    num_samples: int = 256
    hidden_size: int = 128
    num_layers: int = 3


def make_examples(n):
    """Conversations of the same number of words each."""
    return [
        {
            "messages": [
                {"role": "user", "content": f"what is {i % 90 + 10} plus {i % 80 + 10} ?"},
                {"role": "assistant", "content": " ".join([f"it is {i % 90 + i % 80 + 20:03d} ."] * 12)},
            ]
        }
        for i in range(n)
    ]


TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|> {{ m['content'] }} <eos> {% endfor %}"
    "{% if add_generation_prompt %}<|assistant|> {% endif %}"
)


def build_tokenizer(examples):
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = ["<unk>", "<pad>", "<eos>", "<|user|>", "<|assistant|>"]
    texts = (message["content"] for e in examples for message in e["messages"])
    tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=special))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>",
                                   eos_token="<eos>", chat_template=TEMPLATE)


def main(script_args, training_args, model_args):
    examples = make_examples(script_args.num_samples)
    tokenizer = build_tokenizer(examples)
    dataset = Dataset.from_list(examples).train_test_split(test_size=0.1, seed=42)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=script_args.hidden_size,
        intermediate_size=script_args.hidden_size * 3, num_hidden_layers=script_args.num_layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_config(config),
        args=training_args,
        train_dataset=dataset["train"],
        eval_dataset=dataset["test"] if training_args.eval_strategy != "no" else None,
        processing_class=tokenizer,
        peft_config=get_peft_config(model_args),
    )
    trainer.train()
    trainer.save_model(training_args.output_dir)


if __name__ == "__main__":
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
    main(*parser.parse_args_and_config())
