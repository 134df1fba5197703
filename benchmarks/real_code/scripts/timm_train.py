"""Train any model of timm on synthetic images."""
import argparse
import logging
from collections import OrderedDict

import timm
import torch
import torch.nn as nn
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import AverageMeter, ModelEmaV3, NativeScaler, accuracy, random_seed, setup_default_logging
from torch.utils.data import DataLoader, Dataset

_logger = logging.getLogger('train')

parser = argparse.ArgumentParser(description='training')
parser.add_argument('--model', default='resnet18', type=str, metavar='MODEL')
parser.add_argument('--num-classes', type=int, default=10)
parser.add_argument('--img-size', type=int, default=64)
parser.add_argument('-b', '--batch-size', type=int, default=32, metavar='N')
parser.add_argument('--opt', default='adamw')
parser.add_argument('--lr', type=float, default=5e-4)
parser.add_argument('--weight-decay', type=float, default=0.05)
parser.add_argument('--clip-grad', type=float, default=1.0)
parser.add_argument('--epochs', type=int, default=2)
parser.add_argument('--mixup', type=float, default=0.8)
parser.add_argument('--drop-path', type=float, default=0.1)
parser.add_argument('--model-ema', action='store_true')
parser.add_argument('--grad-checkpointing', action='store_true')
parser.add_argument('--amp', action='store_true')
parser.add_argument('--seed', type=int, default=42)


class Noise(Dataset):
    def __init__(self, n, size, classes):
        self.n, self.size, self.classes = n, size, classes

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        return torch.randn(3, self.size, self.size, generator=generator), i % self.classes


def train_one_epoch(epoch, model, loader, optimizer, loss_fn, args, device, scheduler, scaler, ema, mixup_fn):
    losses = AverageMeter()
    model.train()
    num_updates = epoch * len(loader)
    for batch_idx, (input, target) in enumerate(loader):
        input, target = input.to(device), target.to(device)
        if mixup_fn is not None:
            input, target = mixup_fn(input, target)
        with torch.autocast(device.type, dtype=torch.float16, enabled=args.amp):
            output = model(input)
            loss = loss_fn(output, target)
        optimizer.zero_grad()
        if scaler is not None:
            scaler(loss, optimizer, clip_grad=args.clip_grad, parameters=model.parameters())
        else:
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad)
            optimizer.step()
        num_updates += 1
        if ema is not None:
            ema.update(model, step=num_updates)
        losses.update(loss.item(), input.size(0))
        scheduler.step_update(num_updates=num_updates, metric=losses.avg)
        if batch_idx % 5 == 0:
            lr = sum(g['lr'] for g in optimizer.param_groups) / len(optimizer.param_groups)
            _logger.info('Train: %d [%d/%d] Loss: %.4f (%.4f) LR: %.3e', epoch, batch_idx,
                         len(loader), losses.val, losses.avg, lr)
    return OrderedDict([('loss', losses.avg)])


@torch.no_grad()
def validate(model, loader, loss_fn, device):
    losses, top1 = AverageMeter(), AverageMeter()
    model.eval()
    for input, target in loader:
        input, target = input.to(device), target.to(device)
        output = model(input)
        losses.update(loss_fn(output, target).item(), input.size(0))
        top1.update(accuracy(output, target, topk=(1,))[0].item(), input.size(0))
    return OrderedDict([('loss', losses.avg), ('top1', top1.avg)])


def main():
    setup_default_logging()
    args = parser.parse_args()
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    random_seed(args.seed)
    extra = {'img_size': args.img_size} if 'vit' in args.model else {}
    model = timm.create_model(args.model, pretrained=False, num_classes=args.num_classes,
                              drop_path_rate=args.drop_path, **extra)
    _logger.info('Model %s created, param count: %d', args.model, sum(p.numel() for p in model.parameters()))
    if args.grad_checkpointing:
        model.set_grad_checkpointing(enable=True)
    model.to(device)
    optimizer = create_optimizer_v2(model, opt=args.opt, lr=args.lr, weight_decay=args.weight_decay)
    scheduler, num_epochs = create_scheduler_v2(optimizer, sched='cosine', num_epochs=args.epochs,
                                                warmup_epochs=1, warmup_lr=1e-6)
    scaler = NativeScaler(device=device.type) if args.amp and device.type == 'cuda' else None
    ema = ModelEmaV3(model, decay=0.9998) if args.model_ema else None
    mixup_fn = Mixup(mixup_alpha=args.mixup, cutmix_alpha=1.0, label_smoothing=0.1,
                     num_classes=args.num_classes) if args.mixup > 0 else None
    train_loss = SoftTargetCrossEntropy() if mixup_fn else nn.CrossEntropyLoss()
    train_loader = DataLoader(Noise(512, args.img_size, args.num_classes), args.batch_size,
                              shuffle=True, num_workers=2, pin_memory=True, drop_last=True)
    eval_loader = DataLoader(Noise(64, args.img_size, args.num_classes), args.batch_size, num_workers=2)
    for epoch in range(args.epochs):
        metrics = train_one_epoch(epoch, model, train_loader, optimizer, train_loss, args, device,
                                  scheduler, scaler, ema, mixup_fn)
        eval_metrics = validate(ema.module if ema else model, eval_loader, nn.CrossEntropyLoss(), device)
        scheduler.step(epoch + 1, eval_metrics['top1'])
        _logger.info('%s %s', metrics, eval_metrics)
        torch.save(model.state_dict(), f'{args.model}-{epoch}.pth.tar')


if __name__ == '__main__':
    main()
