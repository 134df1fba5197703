"""Direct preference optimisation of a small decoder: a policy and a frozen reference."""

import argparse
import copy
import json
import random

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, Qwen2Config, get_cosine_schedule_with_warmup

PAD = 0


def preferences(n, prompt_len, answer_len, vocab):
    rng = random.Random(7)

    def draw(k):
        return [rng.randrange(1, vocab) for _ in range(k)]

    return [
        {"prompt": draw(prompt_len), "chosen": draw(answer_len), "rejected": draw(answer_len - i % 8)}
        for i in range(n)
    ]


def collate(rows, max_length):
    """Chosen answers first, then the rejected ones, padded on the right to the same length."""
    ids, labels = [], []
    for key in ("chosen", "rejected"):
        for row in rows:
            seq = (row["prompt"] + row[key])[:max_length]
            target = ([-100] * len(row["prompt"]) + row[key])[:max_length]
            ids.append(seq + [PAD] * (max_length - len(seq)))
            labels.append(target + [-100] * (max_length - len(target)))
    ids = torch.tensor(ids)
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": torch.tensor(labels)}


def sequence_logps(model, batch):
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"],
                   use_cache=False).logits[:, :-1]
    labels = batch["labels"][:, 1:].clone()
    mask = labels != -100
    labels[labels == -100] = 0
    logps = torch.gather(logits.log_softmax(-1), 2, labels.unsqueeze(2)).squeeze(2)
    return (logps * mask).sum(-1)


def dpo_loss(policy, reference, beta):
    chosen, rejected = (policy - reference).chunk(2)
    reward_chosen, reward_rejected = beta * chosen.detach(), beta * rejected.detach()
    loss = -F.logsigmoid(beta * (chosen - rejected)).mean()
    return loss, {"margin": (reward_chosen - reward_rejected).mean().item(),
                  "accuracy": (reward_chosen > reward_rejected).float().mean().item()}


def main(argv=None):
    p = argparse.ArgumentParser()
    p.add_argument("--bs", type=int, default=4)
    p.add_argument("--accum", type=int, default=2)
    p.add_argument("--beta", type=float, default=0.1)
    p.add_argument("--lr", type=float, default=5e-7)
    p.add_argument("--max_length", type=int, default=96)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--grad_ckpt", action="store_true")
    p.add_argument("--metrics", default="metrics.jsonl")
    args = p.parse_args(argv)

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if args.bf16 else torch.float32
    torch.manual_seed(0)
    config = Qwen2Config(vocab_size=1200, hidden_size=128, intermediate_size=352, num_hidden_layers=3,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256)
    policy = AutoModelForCausalLM.from_config(config).to(device, dtype)
    reference = copy.deepcopy(policy).eval()
    for param in reference.parameters():
        param.requires_grad = False
    if args.grad_ckpt:
        policy.gradient_checkpointing_enable()
    policy.train()

    data = preferences(240, 32, 48, config.vocab_size)
    loader = DataLoader(data, batch_size=args.bs, shuffle=True, drop_last=True,
                        collate_fn=lambda rows: collate(rows, args.max_length))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=args.lr, betas=(0.9, 0.95))
    schedule = get_cosine_schedule_with_warmup(optimizer, 5, len(loader) * args.epochs // args.accum)

    with open(args.metrics, "w") as metrics_file:
        for epoch in range(args.epochs):
            for i, batch in enumerate(loader):
                batch = {k: v.to(device) for k, v in batch.items()}
                with torch.no_grad():
                    ref_logps = sequence_logps(reference, batch)
                loss, metrics = dpo_loss(sequence_logps(policy, batch), ref_logps, args.beta)
                (loss / args.accum).backward()
                if (i + 1) % args.accum == 0:
                    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad(set_to_none=True)
                metrics.update(loss=loss.item(), step=i, epoch=epoch)
                metrics_file.write(json.dumps(metrics) + "\n")
                print(metrics)
    policy.save_pretrained("dpo-out")


if __name__ == "__main__":
    main()
