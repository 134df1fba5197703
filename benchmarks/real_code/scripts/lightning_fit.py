"""Train a transformer on permutations with Lightning."""

from argparse import ArgumentParser

import lightning as L
import torch
import torch.nn as nn
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset, random_split


class ReverseDataset(Dataset):
    def __init__(self, num_categories, seq_len, size):
        self.data = torch.randint(num_categories, size=(size, seq_len),
                                  generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, idx):
        return self.data[idx], torch.flip(self.data[idx], dims=(0,))


class ReverseDataModule(L.LightningDataModule):
    def __init__(self, num_categories=16, seq_len=48, size=2048, batch_size=32, num_workers=2):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage):
        hp = self.hparams
        full = ReverseDataset(hp.num_categories, hp.seq_len, hp.size)
        self.train, self.val = random_split(full, [hp.size - hp.size // 8, hp.size // 8])

    def train_dataloader(self):
        return DataLoader(self.train, self.hparams.batch_size, shuffle=True, drop_last=True,
                          num_workers=self.hparams.num_workers, persistent_workers=True)

    def val_dataloader(self):
        return DataLoader(self.val, self.hparams.batch_size, num_workers=self.hparams.num_workers,
                          persistent_workers=True)


class TransformerPredictor(L.LightningModule):
    def __init__(self, num_categories=16, model_dim=64, heads=4, layers=3, lr=5e-4, warmup=50,
                 max_iters=1000, dropout=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.embed = nn.Embedding(num_categories, model_dim)
        self.positions = nn.Parameter(torch.zeros(1, 512, model_dim))
        layer = nn.TransformerEncoderLayer(model_dim, heads, model_dim * 4, dropout,
                                           batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(model_dim, model_dim), nn.LayerNorm(model_dim),
                                  nn.ReLU(inplace=True), nn.Dropout(dropout),
                                  nn.Linear(model_dim, num_categories))

    def forward(self, x):
        return self.head(self.encoder(self.embed(x) + self.positions[:, : x.size(1)]))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=self.hparams.warmup)
        return {"optimizer": optimizer,
                "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def _step(self, batch, mode):
        inp, labels = batch
        preds = self(inp)
        loss = nn.functional.cross_entropy(preds.flatten(0, 1), labels.flatten())
        acc = (preds.argmax(dim=-1) == labels).float().mean()
        self.log(f"{mode}_loss", loss, prog_bar=True)
        self.log(f"{mode}_acc", acc, on_step=mode == "train", on_epoch=True)
        return loss

    def training_step(self, batch, batch_idx):
        return self._step(batch, "train")

    def validation_step(self, batch, batch_idx):
        self._step(batch, "val")


def cli_main():
    L.seed_everything(42)
    parser = ArgumentParser()
    parser.add_argument("--batch_size", default=32, type=int)
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--max_epochs", default=2, type=int)
    parser.add_argument("--accumulate_grad_batches", default=1, type=int)
    args = parser.parse_args()

    trainer = L.Trainer(
        accelerator="auto", devices=1, precision=args.precision, max_epochs=args.max_epochs,
        accumulate_grad_batches=args.accumulate_grad_batches, gradient_clip_val=1.0,
        log_every_n_steps=5, logger=CSVLogger("logs", name="reverse"),
        callbacks=[ModelCheckpoint(monitor="val_acc", mode="max", save_last=True),
                   EarlyStopping("val_loss", patience=3), LearningRateMonitor("step")],
    )
    model = TransformerPredictor()
    trainer.fit(model, datamodule=ReverseDataModule(batch_size=args.batch_size))
    print(trainer.validate(model, datamodule=ReverseDataModule(batch_size=args.batch_size)))


if __name__ == "__main__":
    cli_main()
