"""Small models with weights at random, in the files that ``from_pretrained`` reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_HIDDEN = 64
_CHAT = (
    "{% for message in messages %}<|{{ message['role'] }}|> {{ message['content'] }} </s>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make_models(place: Path, words: Sequence[str]) -> None:
    """Make a folder for each model.

    Args:
        place: Where they go.
        words: What their tokenizers know.
    """
    from torch import manual_seed

    manual_seed(0)
    for name, make in _MODELS.items():
        make(place / name, words)


def _word_level(words: Sequence[str], specials: Sequence[str]) -> Any:
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers.models import WordLevel

    known = [*specials, *dict.fromkeys(words), ".", ",", "?", "!", ":"]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(known)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def _decoder_tokenizer(place: Path, words: Sequence[str]) -> int:
    """A tokenizer for decoders, with a chat template; the size of its vocabulary."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_word_level(words, ["<pad>", "<s>", "</s>", "<unk>"]),
        model_max_length=512,
    )
    specials = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer.add_special_tokens(specials)
    tokenizer.chat_template = _CHAT
    tokenizer.save_pretrained(place)
    return len(tokenizer)


def _bert_tokenizer(place: Path, words: Sequence[str]) -> int:
    place.mkdir(parents=True, exist_ok=True)
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    known = [*specials, *dict.fromkeys(word.lower() for word in words), ".", ",", "?"]
    (place / "vocab.txt").write_text("\n".join(known) + "\n", encoding="utf-8")
    from transformers import BertTokenizerFast

    tokenizer = BertTokenizerFast(vocab=str(place / "vocab.txt"), model_max_length=128)
    tokenizer.save_pretrained(place)
    return len(known)


def _clip_tokenizer(place: Path, words: Sequence[str]) -> int:
    place.mkdir(parents=True, exist_ok=True)
    letters = sorted({letter for word in words for letter in word.lower()} | set(".,?"))
    known = [*letters, *(f"{letter}</w>" for letter in letters)]
    known += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {word: number for number, word in enumerate(known)}
    (place / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (place / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    from transformers import CLIPTokenizer

    tokenizer = CLIPTokenizer.from_pretrained(place, model_max_length=77)
    tokenizer.save_pretrained(place)
    return len(known)


def _bert(place: Path, words: Sequence[str]) -> None:
    from transformers import BertConfig, BertForMaskedLM

    size = _bert_tokenizer(place, words)
    config = BertConfig(
        vocab_size=size, hidden_size=_HIDDEN, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=128, max_position_embeddings=128,
    )  # fmt: skip
    BertForMaskedLM(config).save_pretrained(place)


def _gpt2(place: Path, words: Sequence[str]) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    size = _decoder_tokenizer(place, words)
    config = GPT2Config(
        vocab_size=size, n_embd=_HIDDEN, n_layer=2, n_head=4, n_positions=512,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    GPT2LMHeadModel(config).save_pretrained(place)


def _llama(place: Path, words: Sequence[str]) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    size = _decoder_tokenizer(place, words)
    config = LlamaConfig(
        vocab_size=size, hidden_size=_HIDDEN, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=128, max_position_embeddings=512,
        bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(place)


def _reward(place: Path, words: Sequence[str]) -> None:
    from transformers import LlamaConfig, LlamaForSequenceClassification

    size = _decoder_tokenizer(place, words)
    config = LlamaConfig(
        vocab_size=size, hidden_size=_HIDDEN, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=128, num_labels=1, pad_token_id=0,
    )  # fmt: skip
    LlamaForSequenceClassification(config).save_pretrained(place)


def _t5(place: Path, words: Sequence[str]) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    size = _decoder_tokenizer(place, words)
    config = T5Config(
        vocab_size=size, d_model=_HIDDEN, d_kv=16, d_ff=128, num_layers=2, num_heads=4,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=2,
    )  # fmt: skip
    T5ForConditionalGeneration(config).save_pretrained(place)


def _vit(place: Path, words: Sequence[str]) -> None:
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    config = ViTConfig(
        hidden_size=_HIDDEN, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        image_size=224, patch_size=16,
    )  # fmt: skip
    ViTForImageClassification(config).save_pretrained(place)
    ViTImageProcessor(size={"height": 224, "width": 224}).save_pretrained(place)


def _stable_diffusion(place: Path, words: Sequence[str]) -> None:
    from diffusers import (
        AutoencoderKL,
        DDPMScheduler,
        StableDiffusionPipeline,
        UNet2DConditionModel,
    )
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    size = _clip_tokenizer(place / "tokenizer", words)
    text = CLIPTextConfig(
        vocab_size=size, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=37, bos_token_id=size - 2, eos_token_id=size - 1,
    )  # fmt: skip
    pipeline = StableDiffusionPipeline(
        vae=AutoencoderKL(
            block_out_channels=(32, 64), in_channels=3, out_channels=3, latent_channels=4,
            down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        ),
        text_encoder=CLIPTextModel(text),
        tokenizer=CLIPTokenizer.from_pretrained(place / "tokenizer"),
        unet=UNet2DConditionModel(
            block_out_channels=(32, 64), layers_per_block=2, sample_size=32, in_channels=4,
            out_channels=4, cross_attention_dim=32, attention_head_dim=8,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        ),
        scheduler=DDPMScheduler(),
        safety_checker=None,
        feature_extractor=None,
    )  # fmt: skip
    pipeline.save_pretrained(place)


_MODELS: dict[str, Callable[[Path, Sequence[str]], None]] = {
    "bert": _bert,
    "gpt2": _gpt2,
    "llama": _llama,
    "reward": _reward,
    "t5": _t5,
    "vit": _vit,
    "stable-diffusion": _stable_diffusion,
}
