"""Train a small ResNet-like classifier, mixed precision, plain PyTorch."""

import argparse
import logging
import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("train")


class SyntheticImages(Dataset):
    """Images with a coloured square; the colour is the label."""

    def __init__(self, length, size, num_classes, train=True):
        self.length, self.size, self.train = length, size, train
        self.colours = np.random.RandomState(0).rand(num_classes, 3).astype(np.float32)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = np.random.RandomState(index)
        label = int(rng.randint(len(self.colours)))
        image = rng.rand(3, self.size, self.size).astype(np.float32) * 0.1
        x, y = rng.randint(0, self.size - 8, size=2)
        image[:, y : y + 8, x : x + 8] = self.colours[label][:, None, None]
        if self.train and random.random() < 0.5:
            image = image[:, :, ::-1].copy()
        return torch.from_numpy(image), label


class Block(nn.Module):
    def __init__(self, inplanes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Identity()
        if stride != 1 or inplanes != planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out, inplace=True)


def build_model(num_classes, width=32):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
        Block(width, width), Block(width, width * 2, 2), Block(width * 2, width * 4, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(width * 4, num_classes),
    )


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    correct, total = 0, 0
    for images, labels in loader:
        images, labels = images.to(device, non_blocking=True), labels.to(device)
        correct += (model(images).argmax(1) == labels).sum().item()
        total += labels.size(0)
    return correct / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-size", type=int, default=2048)
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--num-classes", type=int, default=10)
    parser.add_argument("-b", "--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--print-freq", type=int, default=10)
    parser.add_argument("--no-amp", action="store_true")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output", default="checkpoints")
    args = parser.parse_args()

    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.cuda.manual_seed_all(args.seed)
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    os.makedirs(args.output, exist_ok=True)

    train_set = SyntheticImages(args.data_size, args.image_size, args.num_classes)
    val_set = SyntheticImages(args.data_size // 8, args.image_size, args.num_classes, train=False)
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, num_workers=args.workers,
                              pin_memory=True, drop_last=True)
    val_loader = DataLoader(val_set, args.batch_size, num_workers=args.workers, pin_memory=True)

    model = build_model(args.num_classes).to(device)
    log.info("%.2fM parameters on %s", sum(p.numel() for p in model.parameters()) / 1e6, device)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4,
                                nesterov=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, args.lr, epochs=args.epochs, steps_per_epoch=len(train_loader)
    )
    scaler = torch.amp.GradScaler(device.type, enabled=not args.no_amp)

    best = 0.0
    for epoch in range(args.epochs):
        model.train()
        running, start = 0.0, time.time()
        for step, (images, labels) in enumerate(train_loader):
            images = images.to(device, non_blocking=True)
            labels = labels.to(device, non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device.type, torch.float16, enabled=not args.no_amp):
                logits = model(images)
                loss = criterion(logits, labels)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()

            running += loss.item()
            if step % args.print_freq == 0:
                accuracy = (logits.argmax(1) == labels).float().mean().item()
                log.info("epoch %d step %d loss %.4f acc %.3f norm %.2f lr %.4f (%.1f img/s)",
                         epoch, step, running / (step + 1), accuracy, norm.item(),
                         scheduler.get_last_lr()[0],
                         (step + 1) * args.batch_size / (time.time() - start))
            if not np.isfinite(running):
                raise RuntimeError(f"loss is {running}")

        accuracy = evaluate(model, val_loader, device)
        log.info("epoch %d: val accuracy %.4f", epoch, accuracy)
        state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict(),
                 "scaler": scaler.state_dict(), "args": vars(args)}
        torch.save(state, os.path.join(args.output, "last.pth"))
        if accuracy > best:
            best = accuracy
            torch.save(state, os.path.join(args.output, "best.pth"))
    log.info("best accuracy %.4f", best)


if __name__ == "__main__":
    main()
