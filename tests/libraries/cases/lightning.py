"""lightning: Trainer with modules, data modules, callbacks, checkpoints; Fabric."""

from __future__ import annotations

import tempfile
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint, StochasticWeightAveraging
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class _Model(L.LightningModule):
    def __init__(self, width=8, rate=0.05):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))
        self.losses = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, i):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("train_loss", loss, prog_bar=True)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, i):
        x, y = batch
        logits = self(x)
        self.log("val_loss", nn.functional.cross_entropy(logits, y))
        self.log("val_accuracy", (logits.argmax(-1) == y).float().mean())

    def predict_step(self, batch, i):
        return self(batch[0])

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams.rate, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


class _Data(L.LightningDataModule):
    def setup(self, stage):
        g = torch.Generator().manual_seed(1)
        x = torch.randn(32, 4, generator=g)
        self.rows = TensorDataset(x, x[:, :3].argmax(-1))

    def train_dataloader(self):
        return DataLoader(self.rows, batch_size=8, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.rows, batch_size=16)

    predict_dataloader = val_dataloader


def _trainer(device, folder, **more):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    accelerator = "cpu" if device == "cpu" else "gpu"
    return L.Trainer(accelerator=accelerator, devices=1, default_root_dir=folder, **{**quiet, **more})


def fitting(device):
    L.seed_everything(0, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        model = _Model()
        trainer = _trainer(device, folder, max_epochs=2, gradient_clip_val=1.0, enable_checkpointing=False)
        trainer.fit(model, datamodule=_Data())
        said = trainer.validate(model, datamodule=_Data(), verbose=False)
        logits = torch.cat(trainer.predict(model, datamodule=_Data()))
    return {"losses": model.losses, "said": said[0], "logits": logits}


def checkpoints(device):
    L.seed_everything(0, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        keep = ModelCheckpoint(folder, monitor="val_loss", filename="{epoch}", save_last=True)
        trainer = _trainer(device, folder, max_epochs=2, callbacks=[keep])
        trainer.fit(_Model(width=6), datamodule=_Data())
        again = _Model.load_from_checkpoint(keep.best_model_path)
        more = _Model(width=6)
        going_on = _trainer(device, folder, max_epochs=3, enable_checkpointing=False)
        going_on.fit(more, datamodule=_Data(), ckpt_path=keep.last_model_path)
        name = Path(keep.best_model_path).name
    return {
        "name": name,
        "width": again.hparams.width,
        "score": keep.best_model_score,
        "weight": again.net[0].weight,
        "epochs": going_on.current_epoch,
        "more": more.net[0].weight,
    }


def callbacks(device):
    L.seed_everything(0, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        calls = [
            EarlyStopping("val_loss", patience=1, min_delta=10.0),
            StochasticWeightAveraging(0.01, swa_epoch_start=1),
        ]
        model = _Model()
        trainer = _trainer(
            device, folder, max_epochs=5, callbacks=calls, accumulate_grad_batches=2, enable_checkpointing=False
        )
        trainer.fit(model, datamodule=_Data())
    return {"epochs": trainer.current_epoch, "losses": model.losses, "weight": model.net[0].weight}


def logging_to_files(device):
    L.seed_everything(0, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        logger = L.pytorch.loggers.CSVLogger(folder)
        trainer = _trainer(
            device,
            folder,
            max_epochs=1,
            logger=logger,
            log_every_n_steps=1,
            enable_model_summary=True,
            callbacks=[LearningRateMonitor()],
        )
        trainer.fit(_Model(), datamodule=_Data())
        rows = (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()
    header = rows[0].split(",")
    at = header.index("train_loss")
    return {"header": sorted(header), "losses": [float(v) for row in rows[1:] if (v := row.split(",")[at])]}


def fabric(device):
    L.seed_everything(0, verbose=False)
    fabric = L.Fabric(accelerator="cpu" if device == "cpu" else "gpu", devices=1)
    model = nn.Linear(4, 3)
    model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), lr=0.1))
    data = _Data()
    data.setup("fit")
    losses = []
    for x, y in fabric.setup_dataloaders(DataLoader(data.rows, batch_size=8)):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        losses.append(loss.item())
    with tempfile.TemporaryDirectory() as folder:
        fabric.save(f"{folder}/state.ckpt", {"model": model, "optimizer": optimizer, "step": 4})
        state = {"model": model, "optimizer": optimizer}
        rest = fabric.load(f"{folder}/state.ckpt", state)
    return {"losses": losses, "weight": model.weight, "step": rest["step"]}
