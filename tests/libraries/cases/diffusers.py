"""diffusers: U-Nets, autoencoders and schedulers of small configurations, pipelines, training."""

from __future__ import annotations

import tempfile

import torch
from diffusers import (
    AutoencoderKL,
    DDIMPipeline,
    DDIMScheduler,
    DDPMPipeline,
    DDPMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    LMSDiscreteScheduler,
    PNDMScheduler,
    UNet2DConditionModel,
    UNet2DModel,
)
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel

_BLOCKS = {"block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4}


def _unet():
    return UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=8,
        **_BLOCKS,
    )


def training(device):
    model, scheduler = _unet().to(device), DDPMScheduler(num_train_timesteps=50)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rate = get_cosine_schedule_with_warmup(optimizer, 1, 4)
    ema = EMAModel(model.parameters(), decay=0.9)
    images = torch.randn(4, 1, 8, 8).to(device)
    losses = []
    for _ in range(3):
        noise = torch.randn(images.shape).to(device)
        steps = torch.randint(50, (4,)).to(device)
        noisy = scheduler.add_noise(images, noise, steps)
        loss = torch.nn.functional.mse_loss(model(noisy, steps, return_dict=False)[0], noise)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        optimizer.zero_grad()
        ema.step(model.parameters())
        losses.append(loss.item())
    ema.copy_to(model.parameters())
    return {"losses": losses, "rate": rate.get_last_lr(), "weight": model.conv_in.weight}


def pipelines(device):
    model = _unet().to(device)
    ddpm = DDPMPipeline(unet=model, scheduler=DDPMScheduler(num_train_timesteps=50))
    ddim = DDIMPipeline(unet=model, scheduler=DDIMScheduler(num_train_timesteps=50))
    for pipe in (ddpm, ddim):
        pipe.set_progress_bar_config(disable=True)
    made = ddpm(batch_size=1, num_inference_steps=3, generator=torch.Generator().manual_seed(0), output_type="np")
    other = ddim(
        batch_size=1, num_inference_steps=3, generator=torch.Generator().manual_seed(0), output_type="np", eta=0.5
    )
    return {"ddpm": made.images, "ddim": other.images}


def schedulers(device):
    model = _unet().to(device).eval()
    found = {}
    kinds = (EulerDiscreteScheduler, DPMSolverMultistepScheduler, PNDMScheduler, LMSDiscreteScheduler)
    for kind in (*kinds, FlowMatchEulerDiscreteScheduler):
        scheduler = kind(num_train_timesteps=50)
        scheduler.set_timesteps(4, device=device)
        x = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(0)).to(device)
        x = x * getattr(scheduler, "init_noise_sigma", 1.0)
        for t in scheduler.timesteps:
            scaled = scheduler.scale_model_input(x, t) if hasattr(scheduler, "scale_model_input") else x
            with torch.no_grad():
                noise = model(scaled, t.expand(1)).sample
            x = scheduler.step(noise, t, x).prev_sample
        found[kind.__name__] = x
    return found


def autoencoder(device):
    model = AutoencoderKL(
        in_channels=3,
        out_channels=3,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        **_BLOCKS,
    ).to(device)
    x = torch.randn(2, 3, 16, 16).to(device)
    hidden = model.encode(x).latent_dist
    z = hidden.sample(generator=torch.Generator().manual_seed(0))
    y = model.decode(z).sample
    loss = (y - x).square().mean() + 1e-3 * hidden.kl().mean()
    loss.backward()
    return {"loss": loss, "z": z, "y": y, "grad": model.encoder.conv_in.weight.grad}


def conditioned(device):
    model = UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        cross_attention_dim=12,
        attention_head_dim=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        **_BLOCKS,
    ).to(device)
    x, words = torch.randn(2, 4, 8, 8).to(device), torch.randn(2, 5, 12).to(device)
    y = model(x, torch.tensor([3, 40]).to(device), encoder_hidden_states=words).sample
    y.square().mean().backward()
    return {"y": y, "grad": model.conv_out.weight.grad}


def saved_and_loaded(device):
    model = _unet().to(device).eval()
    x = torch.randn(1, 1, 8, 8).to(device)
    with tempfile.TemporaryDirectory() as folder:
        pipe = DDPMPipeline(unet=model, scheduler=DDPMScheduler(num_train_timesteps=50))
        pipe.save_pretrained(folder)
        again = DDPMPipeline.from_pretrained(folder).to(device)
    y = again.unet.eval()(x, 3).sample
    return {"y": y, "same": torch.allclose(y, model(x, 3).sample, atol=1e-5)}
