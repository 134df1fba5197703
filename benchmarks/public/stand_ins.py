"""Stand-ins for the data and models that public scripts download, all made here.

Small images, texts and labels drawn at random, and models of a few layers with weights at random.
They are what a script needs to get to its third step, and say nothing of how well it learns.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

ROWS = 192
_TEXT = """
a tall tree stands by the old road and the wind moves its leaves while a small bird sings of rain
sun snow fire water stone glass iron gold to every child that walks home at night under cold stars
with warm bread good milk new shoes long songs short days deep sleep
"""
_WORDS = _TEXT.split()
_LABELS = ("bird", "cat", "dog", "fish", "horse", "tree")


def make_stand_ins(folder: Path) -> None:
    """Make all of them, unless they were made before.

    Args:
        folder: Where they go.
    """
    for name, make in _MAKERS.items():
        place = folder / name
        done = folder / f".{name}.made"
        if not done.exists():
            place.mkdir(parents=True, exist_ok=True)
            make(place)
            done.touch()


def _sentence(random: Random, words: int = 12) -> str:
    return " ".join(random.choices(_WORDS, k=words)).capitalize() + "."


def _mnist(place: Path) -> None:
    """In the files of torchvision's ``MNIST``."""
    for kind, images, labels in _digits():
        raw = place / "MNIST" / "raw"
        raw.mkdir(parents=True, exist_ok=True)
        header = struct.pack(">IIII", 0x803, *images.shape)
        (raw / f"{kind}-images-idx3-ubyte").write_bytes(header + images.numpy().tobytes())
        header = struct.pack(">II", 0x801, *labels.shape)
        (raw / f"{kind}-labels-idx1-ubyte").write_bytes(header + labels.numpy().tobytes())


def _lightning_mnist(place: Path) -> None:
    """In the files of Lightning's ``MNIST``."""
    import torch

    for kind, images, labels in _digits():
        file = place / "MNIST" / "processed" / ("training.pt" if kind == "train" else "test.pt")
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save((images, labels.long()), file)


def _digits() -> Iterator[tuple[str, Any, Any]]:
    import torch

    for kind, count in (("train", 60_000), ("t10k", 10_000)):
        images = torch.randint(256, (count, 28, 28), dtype=torch.uint8)
        yield kind, images, torch.randint(10, (count,), dtype=torch.uint8)


def _tokenizers_of_nltk(place: Path) -> None:
    """Empty folders, which scripts look for; none of them splits a text before it trains."""
    for name in ("punkt", "punkt_tab"):
        (place / "tokenizers" / name).mkdir(parents=True, exist_ok=True)


def _image(random: Random, size: tuple[int, int]) -> Any:
    from PIL import Image

    small = Image.new("RGB", (8, 8))
    small.putdata([tuple(random.choices(range(256), k=3)) for _ in range(64)])
    return small.resize(size)


def _images(place: Path) -> None:
    """Folders of classes, for ``ImageFolder`` and the datasets package."""
    random = Random(0)  # noqa: S311  # no secret
    for split, count in (("train", 24), ("val", 8)):
        for label in _LABELS:
            folder = place / split / label
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                _image(random, (256, 240)).save(folder / f"{number}.jpg")


def _captioned(place: Path) -> None:
    """Images with a text each, as the datasets package reads them of one folder."""
    random = Random(0)  # noqa: S311  # no secret
    rows = []
    for number in range(96):
        _image(random, (96, 96)).save(place / f"{number}.jpg")
        rows.append({"file_name": f"{number}.jpg", "text": _sentence(random, 8)})
    _jsonl(place / "metadata.jsonl", rows)


def _jsonl(file: Path, rows: list[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _texts(place: Path) -> None:
    """One folder for each form of a row, with a training and a test file."""
    for form, row in _ROWS.items():
        random = Random(form)  # noqa: S311  # as above
        for split, count in (("train", ROWS), ("validation", 32), ("test", 32)):
            rows = [row(random) for _ in range(count)]
            _jsonl(place / form / f"{split}.jsonl", rows)
            # Some scripts take no other suffix, and those for questions a key around all
            _jsonl(place / "json" / form / f"{split}.json", rows)
            _jsonl(place / "json" / form / f"{split}-data.json", [{"data": rows}])
    random = Random(0)  # noqa: S311  # no secret
    corpus = "\n".join(_sentence(random, 30) for _ in range(2_000)) + "\n"
    for name in ("train.txt", "valid.txt", "test.txt"):
        target = place / "wikitext-2" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(corpus, encoding="utf-8")


def _chat(random: Random) -> dict[str, Any]:
    return {
        "messages": [
            {"role": "user", "content": _sentence(random)},
            {"role": "assistant", "content": _sentence(random, 24)},
        ]
    }


def _said(random: Random, role: str) -> list[dict[str, str]]:
    return [{"role": role, "content": _sentence(random)}]


def _preference(random: Random) -> dict[str, Any]:
    asked = _said(random, "user")
    return {
        "chosen": asked + _said(random, "assistant"),
        "rejected": asked + _said(random, "assistant"),
    }


def _answer(random: Random) -> dict[str, Any]:
    context = _sentence(random, 40)
    found = context.split()[random.randrange(30)]
    return {
        "id": str(random.random()),
        "context": context,
        "question": _sentence(random, 8),
        "answers": {"text": [found], "answer_start": [context.index(found)]},
    }


def _tagged(random: Random) -> dict[str, Any]:
    words = random.choices(_WORDS, k=14)
    return {"tokens": words, "ner_tags": [random.choice(["O", "B-X", "I-X"]) for _ in words]}


def _choice(random: Random) -> dict[str, Any]:
    endings = {f"ending{number}": _sentence(random, 6) for number in range(4)}
    first = {"sent1": _sentence(random), "sent2": "The", "label": random.randrange(4)}
    return {"video-id": "1", "fold-ind": "1", **first, **endings}


def _judged(random: Random) -> dict[str, Any]:
    label = random.random() < 0.5
    said = {"prompt": _said(random, "user"), "completion": _said(random, "assistant")}
    return {**said, "label": label}


def _stepwise(random: Random) -> dict[str, Any]:
    steps = [_sentence(random) for _ in range(3)]
    return {"prompt": _sentence(random), "completions": steps, "labels": [True, False, True]}


_ROWS: dict[str, Callable[[Random], dict[str, Any]]] = {
    "plain": lambda random: {"text": _sentence(random, 40)},
    "chat": _chat,
    "preferences": _preference,
    "judged": _judged,
    "steps": _stepwise,
    "prompts": lambda random: {"prompt": _said(random, "user")},
    "classes": lambda random: {
        "sentence1": _sentence(random),
        "sentence2": _sentence(random),
        "label": random.randrange(2),
    },
    "summaries": lambda random: {
        "text": _sentence(random, 60),
        "summary": _sentence(random, 10),
    },
    "translations": lambda random: {
        "translation": {"en": _sentence(random), "de": _sentence(random)}
    },
    "answers": _answer,
    "tagged": _tagged,
    "choices": _choice,
    "instructions": lambda random: {
        "instruction": _sentence(random),
        "input": "",
        "output": _sentence(random, 20),
        "text": _sentence(random, 40),
    },
}


def _models(place: Path) -> None:
    from benchmarks.public.small_models import make_models

    make_models(place, [*_WORDS, *(word.capitalize() for word in _WORDS)])


_MAKERS: dict[str, Callable[[Path], None]] = {
    "mnist": _mnist,
    "lightning-mnist": _lightning_mnist,
    "nltk": _tokenizers_of_nltk,
    "images": _images,
    "captioned": _captioned,
    "texts": _texts,
    "models": _models,
}
