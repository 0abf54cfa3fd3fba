"""Diffusers: a small DDPM learns scikit-learn's handwritten digits on the device, and draws what the CPU draws."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
import torch
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from sklearn.datasets import load_digits
from torch.nn import functional as F

from ecosystem.native import natively

STEPS, BATCH, TIMES = 40, 16, 100


def small_unet() -> UNet2DModel:
    torch.manual_seed(0)
    return UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=8,
        norm_num_groups=8,
    )


@dataclass
class Run:
    model: UNet2DModel
    losses: torch.Tensor
    out_types: set[torch.dtype]


def train(device: str, dtype: torch.dtype) -> Run:
    """The same images, noise and times on every device: all are drawn on the CPU."""
    images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 8 - 1
    model, scheduler = small_unet().to(device), DDPMScheduler(num_train_timesteps=TIMES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    generator = torch.Generator().manual_seed(1)
    types: set[torch.dtype] = set()
    model.mid_block.resnets[0].conv1.register_forward_hook(lambda _module, _inputs, out: types.add(out.dtype))
    losses = []
    with natively():
        for _ in range(STEPS):
            clean = images[torch.randint(len(images), (BATCH,), generator=generator)].to(device)
            noise = torch.randn(clean.shape, generator=generator).to(device)
            times = torch.randint(TIMES, (BATCH,), generator=generator).to(device)
            with torch.autocast(device, dtype, enabled=dtype != torch.float32):
                guess = model(scheduler.add_noise(clean, noise, times), times).sample
            loss = F.mse_loss(guess.float(), noise)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
    return Run(model, torch.stack(losses).cpu(), types)


def draw(model: UNet2DModel, device: str) -> torch.Tensor:
    """Four images between 0 and 1, from the same noise on every device: the pipeline draws it from a CPU generator."""
    pipeline = DDPMPipeline(model.to(device), DDPMScheduler(num_train_timesteps=TIMES))
    pipeline.set_progress_bar_config(disable=True)
    assert pipeline.device.type == device
    generator = torch.Generator().manual_seed(3)
    with natively():
        images = pipeline(batch_size=4, generator=generator, num_inference_steps=20, output_type="pt").images
    assert images.device.type == device and images.shape == (4, 1, 8, 8)
    return images.cpu().float()


@pytest.fixture(scope="module")
def fp32() -> Run:
    return train("neuron", torch.float32)


def test_float32_learns_as_on_the_cpu(fp32: Run) -> None:
    cpu = train("cpu", torch.float32)
    assert fp32.out_types == {torch.float32}
    torch.testing.assert_close(fp32.losses[:10], cpu.losses[:10], rtol=1e-5, atol=0.0)
    # Training at this rate makes differences of rounding grow; 4e-6 was measured at the end.
    torch.testing.assert_close(fp32.losses, cpu.losses, rtol=1e-4, atol=0.0)
    assert fp32.losses[-5:].mean() < 0.6 * fp32.losses[:5].mean()


def test_float32_draws_what_the_cpu_draws(fp32: Run) -> None:
    on_device = draw(fp32.model, "neuron")
    on_cpu = draw(copy.deepcopy(fp32.model), "cpu")
    torch.testing.assert_close(on_device, on_cpu, rtol=0.0, atol=1e-5)  # 2e-7 was measured, after 20 steps
    assert 0.1 < on_device.std() < 0.5


def test_bfloat16_learns_and_draws(fp32: Run) -> None:
    mixed = train("neuron", torch.bfloat16)
    assert mixed.out_types == {torch.bfloat16}
    # The first loss knows only rounding, 1 part in 256 for each product, and no difference that training has grown.
    torch.testing.assert_close(mixed.losses[0], fp32.losses[0], rtol=1 / 256, atol=0.0)
    assert torch.isfinite(mixed.losses).all()
    assert mixed.losses[-5:].mean() < 0.6 * mixed.losses[:5].mean()
    images = draw(mixed.model.to(torch.bfloat16), "neuron")
    assert torch.isfinite(images).all() and 0.1 < images.std() < 0.5
