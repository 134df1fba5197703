"""How many tokens texts have: counted by a tokenizer, or assumed from their characters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import InvalidInput
from engine.parsing import shown

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CHARACTERS_PER_TOKEN = 4
"""Assumed. "1 token ~= 4 chars in English": OpenAI, "What are tokens and how to count them?",
help.openai.com. Other languages and code take more tokens."""

MOST_TOKENIZER_BYTES = 64 * 2**20
"""Larger than any published ``tokenizer.json``."""

_TOGETHER = 256
"""Texts that are tokenized at once, on all cores."""


def characters_as_tokens(texts: Iterable[str | int]) -> Iterator[int]:
    """The assumed number of tokens of each text, at least one; a number is handed through."""
    for text in texts:
        yield text if isinstance(text, int) else max(1, -(-len(text) // CHARACTERS_PER_TOKEN))


def tokens(texts: Iterable[str | int], tokenizer_file: Path) -> Iterator[int]:
    """The number of tokens of each text, special tokens included; a number is handed through.

    Args:
        texts: Any number of them.
        tokenizer_file: A ``tokenizer.json``.

    Raises:
        InvalidInput: For ``tokenizer``.
    """
    tokenizer = _load(tokenizer_file)
    rest = iter(texts)
    while batch := list(islice(rest, _TOGETHER)):
        yield from (text for text in batch if isinstance(text, int))
        written = [text for text in batch if isinstance(text, str)]
        yield from (len(encoding) for encoding in tokenizer.encode_batch_fast(written))


def _load(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer  # takes a while, and most samples need none

    if not path.is_file():
        raise InvalidInput({"tokenizer": f"{shown(path)} is no file that can be read"})
    if path.stat().st_size > MOST_TOKENIZER_BYTES:
        message = f"{shown(path)} is larger than {MOST_TOKENIZER_BYTES // 2**20} MiB"
        raise InvalidInput({"tokenizer": message})
    try:
        tokenizer: Tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more exact
        message = f"{shown(path)} is no tokenizer.json: {str(error)[:100]}"
        raise InvalidInput({"tokenizer": message}) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
