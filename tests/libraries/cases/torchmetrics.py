"""torchmetrics: metrics as modules and functions, collections, over batches."""

from __future__ import annotations

import torch
import torchmetrics
from torchmetrics import functional as F

#: what is small there is a difference of numbers that are not
RTOL = {"images": 1e-3}


def classification(device):
    metrics = torchmetrics.MetricCollection(
        {
            "accuracy": torchmetrics.Accuracy(task="multiclass", num_classes=4),
            "f1": torchmetrics.F1Score(task="multiclass", num_classes=4, average="macro"),
            "precision": torchmetrics.Precision(task="multiclass", num_classes=4, average=None),
            "auroc": torchmetrics.AUROC(task="multiclass", num_classes=4),
            "confusion": torchmetrics.ConfusionMatrix(task="multiclass", num_classes=4),
            "calibration": torchmetrics.CalibrationError(task="multiclass", num_classes=4),
        }
    ).to(device)
    for _ in range(3):
        metrics.update(torch.randn(20, 4, device=device).softmax(-1), torch.randint(4, (20,), device=device))
    return metrics.compute()


def binary_curves(device):
    score, target = torch.rand(40, device=device), torch.randint(2, (40,), device=device)
    fpr, tpr, _ = F.roc(score, target, task="binary")
    precision, recall, thresholds = F.precision_recall_curve(score, target, task="binary", thresholds=5)
    return {
        "fpr": fpr,
        "tpr": tpr,
        "precision": precision,
        "recall": recall,
        "thresholds": thresholds,
        "ap": F.average_precision(score, target, task="binary"),
    }


def regression(device):
    preds, target = torch.randn(30, device=device), torch.randn(30, device=device)
    metrics = {
        "mse": torchmetrics.MeanSquaredError(),
        "mae": torchmetrics.MeanAbsoluteError(),
        "r2": torchmetrics.R2Score(),
        "pearson": torchmetrics.PearsonCorrCoef(),
        "spearman": torchmetrics.SpearmanCorrCoef(),
        "explained": torchmetrics.ExplainedVariance(),
    }
    found = {}
    for name, metric in metrics.items():
        metric = metric.to(device)
        metric(preds[:15], target[:15])
        metric(preds[15:], target[15:])
        found[name] = metric.compute()
    return found


def images(device):
    a, b = torch.rand(2, 3, 32, 32, device=device), torch.rand(2, 3, 32, 32, device=device)
    ssim = torchmetrics.image.StructuralSimilarityIndexMeasure(data_range=1.0).to(device)
    psnr = torchmetrics.image.PeakSignalNoiseRatio(data_range=1.0).to(device)
    return {"ssim": ssim(a, b), "psnr": psnr(a, b), "tv": F.image.total_variation(a)}


def text_and_retrieval(device):
    found = {
        "bleu": F.text.bleu_score(["the cat is on the mat"], [["there is a cat on the mat", "a cat is on the mat"]]),
        "wer": F.text.word_error_rate(["this is the prediction"], ["this is the reference"]),
        "perplexity": F.text.perplexity(torch.randn(2, 5, 7, device=device), torch.randint(7, (2, 5), device=device)),
    }
    metric = torchmetrics.retrieval.RetrievalMAP().to(device)
    indexes = torch.tensor([0, 0, 0, 1, 1, 1, 1], device=device)
    preds = torch.tensor([0.2, 0.3, 0.5, 0.1, 0.3, 0.5, 0.2], device=device)
    target = torch.tensor([False, False, True, False, True, False, True], device=device)
    return {**found, "map": metric(preds, target, indexes=indexes)}


def in_a_loop(device):
    net = torch.nn.Linear(5, 3).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=3).to(device)
    mean = torchmetrics.MeanMetric().to(device)
    said = []
    for _ in range(2):
        for _ in range(3):
            x, y = torch.randn(8, 5, device=device), torch.randint(3, (8,), device=device)
            logits = net(x)
            loss = torch.nn.functional.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            accuracy(logits, y)
            mean.update(loss)
        said.append([accuracy.compute().item(), mean.compute().item()])
        accuracy.reset()
        mean.reset()
    return {"said": said}
