"""diffusers: a pipeline of a tiny UNet, whole and with its offload hooks."""

from __future__ import annotations

import pytest
import torch
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

from tests.libraries.common import assert_on_cuda


def tiny_pipeline() -> DDPMPipeline:
    torch.manual_seed(0)
    unet = UNet2DModel(
        sample_size=8,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4,
    )
    pipeline = DDPMPipeline(unet=unet, scheduler=DDPMScheduler(num_train_timesteps=20))
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def images(pipeline: DDPMPipeline) -> torch.Tensor:
    generator = torch.Generator("cpu").manual_seed(3)
    made = pipeline(num_inference_steps=3, generator=generator, output_type="np").images
    return torch.from_numpy(made)


def test_pipeline() -> None:
    on_device = tiny_pipeline().to("cuda")
    assert_on_cuda(on_device.unet.parameters())
    assert on_device.device.type == "cuda"
    torch.testing.assert_close(images(on_device), images(tiny_pipeline()), rtol=1e-3, atol=1e-3)


def test_generator_of_the_device() -> None:
    pipeline = tiny_pipeline().to("cuda", torch.float16)
    generator = torch.Generator("cuda").manual_seed(3)
    assert pipeline(num_inference_steps=2, generator=generator, output_type="np").images.shape == (1, 8, 8, 3)


@pytest.mark.parametrize("way", ["enable_model_cpu_offload", "enable_sequential_cpu_offload"])
def test_offload(way: str) -> None:
    pipeline = tiny_pipeline()
    pipeline.model_cpu_offload_seq = "unet"
    getattr(pipeline, way)()
    torch.testing.assert_close(images(pipeline), images(tiny_pipeline()), rtol=1e-3, atol=1e-3)


def test_training_step() -> None:
    pipeline = tiny_pipeline()
    unet = pipeline.unet.cuda().train()
    x, noise = torch.randn(2, 3, 8, 8).cuda(), torch.randn(2, 3, 8, 8).cuda()
    steps = torch.randint(20, (2,), device="cuda")
    loss = (unet(pipeline.scheduler.add_noise(x, noise, steps), steps).sample - noise).square().mean()
    loss.backward()
    assert_on_cuda(parameter.grad for parameter in unet.parameters() if parameter.grad is not None)
