"""DDPM on small images, with an exponential moving average of the weights."""

import copy
import dataclasses
import math
from typing import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset


@dataclasses.dataclass
class Config:
    batch_size: int = 32
    image_size: int = 16
    channels: int = 32
    timesteps: int = 1000
    steps: int = 40
    lr: float = 2e-4
    ema_decay: float = 0.995
    ema_start: int = 1
    sample_every: int = 1000
    seed: int = 0


def parse_config() -> Config:
    import argparse

    parser = argparse.ArgumentParser()
    for field in dataclasses.fields(Config):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    return Config(**vars(parser.parse_args()))


class Gaussians(IterableDataset):
    """An endless stream of images with one blob each."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed = size, seed

    def __iter__(self) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(self.seed)
        y, x = torch.meshgrid(torch.arange(self.size), torch.arange(self.size), indexing="ij")
        while True:
            cy, cx = torch.rand(2, generator=generator) * self.size
            yield torch.exp(-((y - cy) ** 2 + (x - cx) ** 2) / 8)[None] * 2 - 1


class TimeEmbedding(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.mlp = nn.Sequential(nn.Linear(dim, dim * 4), nn.SiLU(), nn.Linear(dim * 4, dim))

    def forward(self, t: Tensor) -> Tensor:
        half = self.dim // 2
        frequencies = torch.exp(-math.log(10000) * torch.arange(half, device=t.device) / (half - 1))
        angles = t[:, None].float() * frequencies[None]
        return self.mlp(torch.cat([angles.sin(), angles.cos()], dim=-1))


class ResBlock(nn.Module):
    def __init__(self, channels: int, time_dim: int) -> None:
        super().__init__()
        self.block1 = nn.Sequential(nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1))
        self.time = nn.Linear(time_dim, channels)
        self.block2 = nn.Sequential(nn.GroupNorm(8, channels), nn.SiLU(), nn.Dropout(0.1), nn.Conv2d(channels, channels, 3, padding=1))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        h = self.block1(x) + self.time(t)[:, :, None, None]
        return x + self.block2(h)


class SelfAttention(nn.Module):
    def __init__(self, channels: int, heads: int = 4) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.attention = nn.MultiheadAttention(channels, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        tokens = self.norm(x).flatten(2).transpose(1, 2)
        out, _ = self.attention(tokens, tokens, tokens, need_weights=False)
        return x + out.transpose(1, 2).reshape(b, c, h, w)


class Denoiser(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.time = TimeEmbedding(channels)
        self.inp = nn.Conv2d(1, channels, 3, padding=1)
        self.blocks = nn.ModuleList([ResBlock(channels, channels) for _ in range(4)])
        self.attention = SelfAttention(channels)
        self.out = nn.Sequential(nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, 1, 3, padding=1))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        emb, h = self.time(t), self.inp(x)
        for i, block in enumerate(self.blocks):
            h = block(h, emb)
            if i == 1:
                h = self.attention(h)
        return self.out(h)


class EMA:
    def __init__(self, model: nn.Module, decay: float, start: int) -> None:
        self.decay, self.start, self.step = decay, start, 0
        self.model = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        self.step += 1
        if self.step <= self.start:
            self.model.load_state_dict(model.state_dict())
            return
        for average, parameter in zip(self.model.parameters(), model.parameters()):
            average.lerp_(parameter, 1 - self.decay)
        for average, buffer in zip(self.model.buffers(), model.buffers()):
            average.copy_(buffer)


class Diffusion(nn.Module):
    def __init__(self, denoiser: nn.Module, timesteps: int) -> None:
        super().__init__()
        self.denoiser, self.timesteps = denoiser, timesteps
        betas = torch.linspace(1e-4, 0.02, timesteps)
        alphas_bar = torch.cumprod(1 - betas, 0)
        self.register_buffer("betas", betas)
        self.register_buffer("sqrt_ab", alphas_bar.sqrt())
        self.register_buffer("sqrt_1mab", (1 - alphas_bar).sqrt())

    def loss(self, x0: Tensor) -> Tensor:
        t = torch.randint(0, self.timesteps, (x0.shape[0],), device=x0.device)
        noise = torch.randn_like(x0)
        xt = self.sqrt_ab[t][:, None, None, None] * x0 + self.sqrt_1mab[t][:, None, None, None] * noise
        return nn.functional.mse_loss(self.denoiser(xt, t), noise)

    @torch.no_grad()
    def sample(self, n: int, size: int) -> Tensor:
        x = torch.randn(n, 1, size, size, device=self.betas.device)
        for t in reversed(range(self.timesteps)):
            eps = self.denoiser(x, torch.full((n,), t, device=x.device))
            beta = self.betas[t]
            x = (x - beta / self.sqrt_1mab[t] * eps) / (1 - beta).sqrt()
            if t > 0:
                x = x + beta.sqrt() * torch.randn_like(x)
        return x.clamp(-1, 1)


def main() -> None:
    cfg = parse_config()
    torch.manual_seed(cfg.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader = DataLoader(Gaussians(cfg.image_size, cfg.seed), batch_size=cfg.batch_size)
    model = Diffusion(Denoiser(cfg.channels), cfg.timesteps).to(device)
    ema = EMA(model, cfg.ema_decay, cfg.ema_start)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    losses = []
    for step, images in enumerate(loader, start=1):
        loss = model.loss(images.to(device))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        ema.update(model)
        losses.append(loss.detach().item())
        if step % 10 == 0:
            print(f"{step:6d} loss {sum(losses[-10:]) / 10:.4f}")
        if step % cfg.sample_every == 0:
            torch.save(ema.model.sample(4, cfg.image_size), f"samples_{step}.pt")
        if step >= cfg.steps:
            break
    torch.save({"model": model.state_dict(), "ema": ema.model.state_dict()}, "ddpm.pt")


if __name__ == "__main__":
    main()
