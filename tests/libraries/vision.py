"""timm: a training script's parts with a small model; torchvision's operators beside it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.libraries.common import assert_on_cuda


def _allow_torchvision() -> None:
    # A torchvision that was built for CUDA has no operators beside a CPU build of PyTorch, and its import
    # stops where it describes the first of them.
    spec = importlib.util.find_spec("torchvision")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        try:
            torch.ops.load_library(str(Path(folder, "_C.so")))
        except OSError:
            for name in ("nms", "qnms"):
                torch.library.define(f"torchvision::{name}", "(Tensor a, Tensor b, float c) -> Tensor")


_allow_torchvision()
timm = pytest.importorskip("timm")


@pytest.mark.parametrize("name", ["resnet10t", "vit_tiny_patch16_224"])
def test_training(name: str) -> None:
    from timm.data import Mixup
    from timm.loss import SoftTargetCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.scheduler import CosineLRScheduler
    from timm.utils import ModelEmaV2, NativeScaler

    torch.manual_seed(0)
    sizes = {"img_size": 32, "patch_size": 8, "depth": 2} if name.startswith("vit") else {}
    model = timm.create_model(name, num_classes=4, **sizes).cuda()
    model = model.to(memory_format=torch.channels_last)
    assert_on_cuda(model.parameters())
    average = ModelEmaV2(model)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=2e-3)
    scheduler = CosineLRScheduler(optimizer, t_initial=8)
    scaler, mixup, loss_of = NativeScaler(), Mixup(0.2, num_classes=4), SoftTargetCrossEntropy()
    images = torch.randn(8, 3, 32, 32).cuda().contiguous(memory_format=torch.channels_last)
    labels = torch.arange(8).cuda() % 4
    losses = []
    for step in range(8):
        x, y = mixup(images.clone(), labels)
        with torch.autocast("cuda"):
            loss = loss_of(model(x), y)
        optimizer.zero_grad()
        scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
        torch.cuda.synchronize()
        average.update(model)
        scheduler.step(step)
        losses.append(loss.item())
    assert min(losses[4:]) < losses[0]
    assert_on_cuda(average.module.parameters())


def test_feature_maps_match_the_cpu() -> None:
    torch.manual_seed(0)
    model = timm.create_model("resnet10t", features_only=True).eval()
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        expected = model(x)
        found = model.cuda()(x.cuda())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-4)


def test_torchvision_operators() -> None:
    torchvision = pytest.importorskip("torchvision")
    ops = torchvision.ops
    if not torchvision.extension._has_ops():
        pytest.skip("this torchvision has no operators: it was built for another PyTorch")
    boxes = torch.tensor([[0, 0, 4, 4], [0, 0, 4, 5], [8, 8, 9, 9]], dtype=torch.float32)
    scores = torch.tensor([0.5, 0.9, 0.3])
    assert ops.nms(boxes.cuda(), scores.cuda(), 0.5).tolist() == ops.nms(boxes, scores, 0.5).tolist()
    maps = torch.arange(64.0).reshape(1, 1, 8, 8)
    places = torch.tensor([[0.0, 0, 0, 4, 4]])
    found = ops.roi_align(maps.cuda(), places.cuda(), 2)
    torch.testing.assert_close(found.cpu(), ops.roi_align(maps, places, 2))
    with torch.no_grad():
        assert nn.Identity()(found).is_cuda
