"""Binary segmentation with a U-Net, BCE and Dice."""
import argparse
import logging
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.utils.data import DataLoader, Dataset, random_split
from tqdm import tqdm


class Circles(Dataset):
    def __init__(self, n, size):
        self.n, self.size = n, size
        axis = torch.arange(size)
        self.grid = torch.stack(torch.meshgrid(axis, axis, indexing='ij')).float()

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        centre = torch.rand(2, 1, 1, generator=g) * self.size
        mask = ((self.grid - centre).square().sum(0) < (self.size / 5) ** 2).long()
        image = mask.float() + 0.3 * torch.randn(1, self.size, self.size, generator=g)
        return {'image': image.contiguous(), 'mask': mask}


class DoubleConv(nn.Module):
    def __init__(self, cin, cout, mid=None):
        super().__init__()
        mid = mid or cout
        self.double_conv = nn.Sequential(
            nn.Conv2d(cin, mid, 3, padding=1, bias=False), nn.BatchNorm2d(mid), nn.ReLU(inplace=True),
            nn.Conv2d(mid, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))

    def forward(self, x):
        return self.double_conv(x)


class Up(nn.Module):
    def __init__(self, cin, cout, bilinear):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode='bilinear', align_corners=True)
            self.conv = DoubleConv(cin, cout, cin // 2)
        else:
            self.up = nn.ConvTranspose2d(cin, cin // 2, 2, stride=2)
            self.conv = DoubleConv(cin, cout)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        dy, dx = x2.size(2) - x1.size(2), x2.size(3) - x1.size(3)
        x1 = F.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self, n_channels, n_classes, width=16, bilinear=False):
        super().__init__()
        self.n_classes = n_classes
        factor = 2 if bilinear else 1
        self.inc = DoubleConv(n_channels, width)
        self.downs = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(2), DoubleConv(width * a, width * b // (factor if b == 8 else 1)))
            for a, b in ((1, 2), (2, 4), (4, 8)))
        self.ups = nn.ModuleList((Up(width * 8, width * 4 // factor, bilinear),
                                  Up(width * 4, width * 2 // factor, bilinear),
                                  Up(width * 2, width, bilinear)))
        self.outc = nn.Conv2d(width, n_classes, 1)

    def forward(self, x):
        skips = [self.inc(x)]
        for down in self.downs:
            skips.append(down(skips[-1]))
        x = skips.pop()
        for up in self.ups:
            x = up(x, skips.pop())
        return self.outc(x)


def dice_loss(pred, target, eps=1e-6):
    inter = 2 * (pred * target).sum((-1, -2))
    sets = pred.sum((-1, -2)) + target.sum((-1, -2))
    sets = torch.where(sets == 0, inter, sets)
    return 1 - ((inter + eps) / (sets + eps)).mean()


@torch.inference_mode()
def evaluate(net, loader, device, amp):
    net.eval()
    score = 0
    with torch.autocast(device.type if device.type != 'mps' else 'cpu', enabled=amp):
        for batch in tqdm(loader, desc='Validation', leave=False):
            image, mask = batch['image'].to(device), batch['mask'].to(device)
            pred = (torch.sigmoid(net(image).squeeze(1)) > 0.5).float()
            score += 1 - dice_loss(pred, mask.float())
    net.train()
    return score / max(len(loader), 1)


def train_model(model, device, args, dir_checkpoint=Path('./checkpoints/')):
    dataset = Circles(args.images, args.size)
    n_val = int(len(dataset) * args.val / 100)
    train_set, val_set = random_split(dataset, [len(dataset) - n_val, n_val],
                                      generator=torch.Generator().manual_seed(0))
    loader_args = dict(batch_size=args.batch_size, num_workers=2, pin_memory=True)
    train_loader = DataLoader(train_set, shuffle=True, **loader_args)
    val_loader = DataLoader(val_set, shuffle=False, drop_last=True, **loader_args)

    optimizer = optim.RMSprop(model.parameters(), lr=args.lr, weight_decay=1e-8, momentum=0.999,
                              foreach=True)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, 'max', patience=5)
    grad_scaler = torch.cuda.amp.GradScaler(enabled=args.amp and device.type == 'cuda')
    criterion = nn.BCEWithLogitsLoss()
    global_step = 0
    for epoch in range(1, args.epochs + 1):
        model.train()
        epoch_loss = 0
        with tqdm(total=len(train_set), desc=f'Epoch {epoch}/{args.epochs}', unit='img') as pbar:
            for batch in train_loader:
                images, true_masks = batch['image'], batch['mask']
                images = images.to(device=device, dtype=torch.float32, memory_format=torch.channels_last)
                true_masks = true_masks.to(device=device, dtype=torch.long)
                with torch.autocast(device.type, enabled=args.amp):
                    pred = model(images)
                    loss = criterion(pred.squeeze(1), true_masks.float())
                    loss += dice_loss(torch.sigmoid(pred.squeeze(1)), true_masks.float())
                optimizer.zero_grad(set_to_none=True)
                grad_scaler.scale(loss).backward()
                grad_scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                grad_scaler.step(optimizer)
                grad_scaler.update()
                pbar.update(images.shape[0])
                global_step += 1
                epoch_loss += loss.item()
                pbar.set_postfix(**{'loss (batch)': loss.item()})
        val_score = evaluate(model, val_loader, device, args.amp)
        scheduler.step(val_score)
        logging.info(f'epoch {epoch}: loss {epoch_loss / len(train_loader):.3f}, Dice {val_score:.3f}')
        dir_checkpoint.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), str(dir_checkpoint / f'checkpoint_epoch{epoch}.pth'))


def get_args():
    parser = argparse.ArgumentParser(description='Train the UNet on images and target masks')
    parser.add_argument('--epochs', '-e', type=int, default=2)
    parser.add_argument('--batch-size', '-b', dest='batch_size', metavar='B', type=int, default=4)
    parser.add_argument('--learning-rate', '-l', type=float, default=1e-5, dest='lr')
    parser.add_argument('--images', type=int, default=400)
    parser.add_argument('--size', type=int, default=64)
    parser.add_argument('--validation', '-v', dest='val', type=float, default=10.0)
    parser.add_argument('--amp', action='store_true', default=False)
    parser.add_argument('--bilinear', action='store_true', default=False)
    return parser.parse_args()


if __name__ == '__main__':
    args = get_args()
    logging.basicConfig(level=logging.INFO, format='%(levelname)s: %(message)s')
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    logging.info(f'Using device {device}')
    model = UNet(n_channels=1, n_classes=1, bilinear=args.bilinear)
    model = model.to(memory_format=torch.channels_last).to(device=device)
    try:
        train_model(model, device, args)
    except torch.cuda.OutOfMemoryError:
        logging.error('Out of memory! Enabling checkpointing may help.')
        torch.cuda.empty_cache()
        raise
