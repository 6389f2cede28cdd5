"""torchmetrics: states on the device, values as on the CPU."""

from __future__ import annotations

import pytest
import torch
import torchmetrics
from torchmetrics import classification, image, regression

from tests.libraries.common import assert_on_cuda

CLASSES = {"task": "multiclass", "num_classes": 4}
CASES = {
    "accuracy": lambda: torchmetrics.Accuracy(**CLASSES),
    "f1": lambda: torchmetrics.F1Score(**CLASSES, average="macro"),
    "auroc": lambda: torchmetrics.AUROC(**CLASSES),
    "confusion": lambda: torchmetrics.ConfusionMatrix(**CLASSES),
    "calibration": lambda: torchmetrics.CalibrationError(**CLASSES),
    "average precision": lambda: torchmetrics.AveragePrecision(**CLASSES, thresholds=20),
    "top 2": lambda: classification.MulticlassAccuracy(4, top_k=2),
}


@pytest.mark.parametrize("name", CASES)
def test_classification(name: str) -> None:
    torch.manual_seed(0)
    scores, target = torch.randn(200, 4).softmax(1), torch.randint(4, (200,))
    on_device, on_cpu = CASES[name]().cuda(), CASES[name]()
    for start in range(0, 200, 50):
        part = slice(start, start + 50)
        on_device.update(scores[part].cuda(), target[part].cuda())
        on_cpu.update(scores[part], target[part])
    found = on_device.compute()
    assert found.is_cuda
    torch.testing.assert_close(found.cpu(), on_cpu.compute())


def test_others() -> None:
    torch.manual_seed(0)
    x, y = torch.rand(100), torch.rand(100)
    for kind in (regression.PearsonCorrCoef, regression.R2Score, regression.SpearmanCorrCoef):
        torch.testing.assert_close(
            kind().cuda()(x.cuda(), y.cuda()).cpu(), kind()(x, y), rtol=1e-4, atol=1e-5
        )
    a, b = torch.rand(2, 3, 24, 24), torch.rand(2, 3, 24, 24)
    ssim = image.StructuralSimilarityIndexMeasure
    torch.testing.assert_close(
        ssim(data_range=1.0).cuda()(a.cuda(), b.cuda()).cpu(), ssim(data_range=1.0)(a, b)
    )
    together = torchmetrics.MetricCollection(
        [torchmetrics.MeanSquaredError(), torchmetrics.MeanAbsoluteError()]
    )
    assert_on_cuda(together.cuda()(x.cuda(), y.cuda()).values())
