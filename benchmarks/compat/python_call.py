"""A user's own code: a Trainer whose batch is predicted before it trains."""

from __future__ import annotations

import json
import logging
import sys

import memorymark
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class _Texts(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = torch.full((64,), index + 1)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.tensor(0)}


def main() -> None:
    logging.disable(logging.WARNING)
    model = BertForSequenceClassification(BertConfig(num_hidden_layers=2))
    arguments = TrainingArguments("out", per_device_train_batch_size=8, report_to=[])
    trainer = Trainer(model, arguments, train_dataset=_Texts())
    (trial,) = memorymark.predict(trainer, gpu="h100").trials
    names = ("peak_allocated_bytes", "peak_reserved_bytes")
    json.dump({name: getattr(trial, name) for name in names}, sys.stdout)


if __name__ == "__main__":
    main()
