"""skorch: networks as scikit-learn's estimators."""

from __future__ import annotations

import pickle

import numpy as np
import torch
from sklearn.datasets import make_classification, make_regression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetBinaryClassifier, NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import Checkpoint, EarlyStopping, EpochScoring, LRScheduler
from torch import nn


class _Net(nn.Module):
    def __init__(self, width=8, outputs=2):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, outputs))

    def forward(self, x):
        y = self.layers(x)
        return y.squeeze(-1) if y.shape[-1] == 1 else y


def _rows():
    x, y = make_classification(60, 6, random_state=0)
    return x.astype("float32"), y.astype("int64")


def _classifier(device, **more):
    options = {"max_epochs": 3, "lr": 0.1, "batch_size": 16, "verbose": 0, "criterion": nn.CrossEntropyLoss}
    return NeuralNetClassifier(_Net, device=device, **{**options, **more})


def classifying(device):
    x, y = _rows()
    net = _classifier(device, iterator_train__shuffle=True).fit(x, y)
    return {
        "losses": net.history[:, ("train_loss", "valid_loss", "valid_acc")],
        "p": net.predict_proba(x[:5]),
        "score": net.score(x, y),
    }


def regression(device):
    x, y = make_regression(50, 6, random_state=0)
    net = NeuralNetRegressor(
        _Net, module__outputs=1, device=device, max_epochs=3, lr=0.01, verbose=0, optimizer=torch.optim.Adam
    )
    net.fit(x.astype("float32"), (y / 100).astype("float32"))
    return {"losses": net.history[:, "train_loss"], "y": net.predict(x[:5].astype("float32"))}


def searching(device):
    x, y = _rows()
    search = GridSearchCV(_classifier(device, train_split=None), {"module__width": [4, 8], "lr": [0.05, 0.1]}, cv=2)
    search.fit(x, y)
    return {"scores": search.cv_results_["mean_test_score"], "best": [search.best_params_["lr"]]}


def pipeline(device):
    x, y = _rows()
    pipe = Pipeline([("scale", StandardScaler()), ("net", _classifier(device))])
    torch.manual_seed(0)
    return {"scores": cross_val_score(pipe, x, y, cv=2)}


def callbacks(device):
    import tempfile

    x, y = _rows()
    with tempfile.TemporaryDirectory() as folder:
        net = _classifier(
            device,
            max_epochs=6,
            callbacks=[
                EpochScoring("roc_auc", lower_is_better=False, name="auc"),
                EarlyStopping(patience=2),
                LRScheduler(policy="StepLR", step_size=1, gamma=0.5),
                Checkpoint(dirname=folder),
            ],
        ).fit(x, y)
        again = _classifier(device).initialize()
        again.load_params(f_params=f"{folder}/params.pt")
        said = again.predict_proba(x[:3])
    return {"auc": net.history[:, "auc"], "losses": net.history[:, "train_loss"], "p": said}


def pickled(device):
    x, y = _rows()
    net = NeuralNetBinaryClassifier(_Net, module__outputs=1, device=device, max_epochs=2, lr=0.1, verbose=0)
    net.fit(x, y.astype("float32"))
    again = pickle.loads(pickle.dumps(net))
    again.partial_fit(x, y.astype("float32"))
    return {
        "p": again.predict_proba(x[:4]),
        "n": len(again.history),
        "same": bool(np.all(net.predict(x) == net.predict(x))),
    }
