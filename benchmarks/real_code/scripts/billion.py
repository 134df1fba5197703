"""Continued pretraining of a Llama with 1.2 billion parameters on one GPU."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.optimization import get_cosine_schedule_with_warmup


class PackedTokens(Dataset):
    """Random documents, cut into blocks."""

    def __init__(self, blocks, length, vocab_size):
        generator = torch.Generator().manual_seed(1)
        self.tokens = torch.randint(vocab_size, (blocks, length), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index]


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--micro-batch-size", type=int, default=2)
    parser.add_argument("--seq-length", type=int, default=1024)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--max-steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=2e-5)
    parser.add_argument("--no-checkpointing", action="store_true")
    return parser.parse_args()


def main():
    args = parse_args()
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"
    config = LlamaConfig(
        vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=24,
        num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=4096, use_cache=False,
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e9:.2f} B parameters")
    if not args.no_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()

    decay = [p for p in model.parameters() if p.ndim >= 2]
    rest = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95))
    schedule = get_cosine_schedule_with_warmup(optimizer, 10, args.max_steps)
    loader = DataLoader(PackedTokens(512, args.seq_length, config.vocab_size),
                        batch_size=args.micro_batch_size, shuffle=True, pin_memory=True)

    step, micro, begin = 0, 0, time.perf_counter()
    while step < args.max_steps:
        for tokens in loader:
            tokens = tokens.to(device, non_blocking=True)
            loss = model(input_ids=tokens, labels=tokens).loss
            (loss / args.accumulate).backward()
            micro += 1
            if micro % args.accumulate:
                continue
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if torch.cuda.is_available():
                torch.cuda.synchronize()
                print(f"peak {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
            tokens_seen = args.accumulate * args.micro_batch_size * args.seq_length
            speed = tokens_seen / (time.perf_counter() - begin)
            print(f"step {step} loss {loss.item():.3f} norm {norm:.2f} {speed:,.0f} tokens/s")
            begin = time.perf_counter()
            if step >= args.max_steps:
                break
    model.save_pretrained("checkpoint-final")


if __name__ == "__main__":
    main()
