"""Part of backend_people.py: a few lines of ordinary use of libraries over PyTorch, on the device."""

from __future__ import annotations

import os
import tempfile
import warnings

import torch

from backend_people_common import D, answer, import_torchvision, near

warnings.simplefilter("ignore")
import_torchvision()
CASES = {}
IDS = torch.randint(2, 98, (2, 12), generator=torch.Generator().manual_seed(3))
#: how a script tells accelerate, and with it Trainer of transformers, of a device that it does not look for itself
os.environ["ACCELERATE_TORCH_DEVICE"] = D


def case(f):
    CASES[f"libraries/{f.__name__}"] = f
    return f


def llama():
    import transformers as T

    torch.manual_seed(0)
    return T.LlamaForCausalLM(
        T.LlamaConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=99,
            max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=98,
        )
    )  # fmt: skip


@case
def saved_and_loaded():
    """Files of safetensors; safetensors itself knows no such device by name (`load_file(device=)`), transformers does."""
    import transformers as T

    m = llama()
    want = m(IDS).logits
    with tempfile.TemporaryDirectory() as folder:
        m.to(D).save_pretrained(folder)
        n = T.AutoModelForCausalLM.from_pretrained(folder, device_map=D)
        assert n.device.type == D
        near(n(IDS.to(D)).logits, want)
        for dtype in (torch.float16, torch.bfloat16):
            n = T.AutoModelForCausalLM.from_pretrained(folder, device_map=D, dtype=dtype)
            assert n(IDS.to(D)).logits.dtype is dtype
            near(n(IDS.to(D)).logits, want, 2e-2)
            n.generate(IDS.to(D), max_new_tokens=4, do_sample=False)


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        return {"input_ids": IDS[i % 2], "labels": IDS[i % 2]}


@case
def trainer():
    """Trainer of transformers: steps, a checkpoint, an evaluation, and going on from the checkpoint."""
    import transformers as T

    with tempfile.TemporaryDirectory() as folder:
        kw = {"max_steps": 4, "save_steps": 2, "logging_steps": 1, "report_to": [], "disable_tqdm": True, "seed": 0}
        args = T.TrainingArguments(folder, per_device_train_batch_size=4, gradient_checkpointing=True, **kw)
        t = T.Trainer(llama(), args, train_dataset=Texts(), eval_dataset=Texts())
        t.train()
        losses = [x["loss"] for x in t.state.log_history if "loss" in x]
        assert args.device.type == D and losses[-1] < losses[0]
        near(torch.tensor(losses[0]), torch.tensor(4.62), 1e-3)  # the CPU's
        assert t.evaluate()["eval_loss"] < 4.61
        T.Trainer(llama(), args, train_dataset=Texts()).train(resume_from_checkpoint=f"{folder}/checkpoint-2")


@case
def hf_pipeline():
    import transformers as T
    from tokenizers import Tokenizer, models, pre_tokenizers

    tok = Tokenizer(
        models.WordLevel(
            {
                "<pad>": 0,
                "<s>": 1,
                **{f"w{i}": i for i in range(2, 98)},
                "</s>": 98,
            },
            unk_token="<pad>",
        )
    )
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    t = T.PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="<pad>", bos_token="<s>", eos_token="</s>")
    p = T.pipeline("text-generation", model=llama(), tokenizer=t, device=D)
    assert p.device.type == D
    a = p("w5 w6 w7", max_new_tokens=5, do_sample=False)
    b = T.pipeline("text-generation", model=llama(), tokenizer=t, device="cpu")(
        "w5 w6 w7", max_new_tokens=5, do_sample=False
    )
    assert a == b, (a, b)


@case
def accelerate_loop():
    from accelerate import Accelerator

    acc = Accelerator()
    assert acc.device.type == D
    m = torch.nn.Linear(4, 2)
    o = torch.optim.AdamW(m.parameters())
    dl = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 4), torch.randint(0, 2, (8,))), 4)
    m, o, dl = acc.prepare(m, o, dl)
    for x, y in dl:
        assert x.device.type == D
        l = torch.nn.functional.cross_entropy(m(x), y)
        acc.backward(l)
        acc.clip_grad_norm_(m.parameters(), 1.0)
        o.step()
        o.zero_grad()
    acc.gather(l)
    acc.unwrap_model(m)
    with tempfile.TemporaryDirectory() as d:
        acc.save_state(d)
        acc.load_state(d)


@case
def lightning_fit():
    import lightning as L

    class M(L.LightningModule):
        def __init__(s):
            super().__init__()
            s.l = torch.nn.Linear(4, 2)

        def training_step(s, b, i):
            return torch.nn.functional.cross_entropy(s.l(b[0]), b[1])

        def configure_optimizers(s):
            return torch.optim.Adam(s.parameters())

    dl = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 4), torch.randint(0, 2, (8,))), 4)
    from lightning.pytorch.accelerators import Accelerator
    from lightning.pytorch.strategies import SingleDeviceStrategy

    class WA(Accelerator):
        def setup_device(s, d):
            pass

        def get_device_stats(s, d):
            return {}

        def teardown(s):
            pass

        @staticmethod
        def parse_devices(d):
            return d

        @staticmethod
        def get_parallel_devices(d):
            return [torch.device(D, 0)]

        @staticmethod
        def auto_device_count():
            return 1

        @staticmethod
        def is_available():
            return True

        @staticmethod
        def name():
            return "webgpu"

    tr = L.Trainer(
        max_epochs=2,
        strategy=SingleDeviceStrategy(device=torch.device(D, 0), accelerator=WA()),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    m = M()
    tr.fit(m, dl)


@case
def peft_lora():
    import peft

    def go(d):
        torch.manual_seed(0)
        m = peft.get_peft_model(
            llama(), peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
        ).to(d)
        o = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=1e-2)
        r = []
        for _ in range(4):
            l = m(input_ids=IDS.to(d), labels=IDS.to(d)).loss
            l.backward()
            o.step()
            o.zero_grad()
            r.append(l.item())
        r.append(m.merge_and_unload()(input_ids=IDS.to(d), labels=IDS.to(d)).loss.item())
        return r

    a, b = go("cpu"), go(D)
    assert max(abs(x - y) for x, y in zip(a, b)) < 1e-4, (a, b)


@case
def diffusers_unet():
    import diffusers

    def go(d):
        torch.manual_seed(0)
        u = diffusers.UNet2DModel(
            sample_size=16,
            in_channels=3,
            out_channels=3,
            layers_per_block=1,
            block_out_channels=(8, 16),
            norm_num_groups=4,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            attention_head_dim=4,
        ).to(d)
        s = diffusers.DDPMScheduler(20)
        o = torch.optim.AdamW(u.parameters(), lr=1e-3)
        r = []
        x = torch.randn(2, 3, 16, 16).to(d)
        n = torch.randn(2, 3, 16, 16).to(d)
        t = torch.tensor([3, 11]).to(d)
        for _ in range(3):
            l = torch.nn.functional.mse_loss(u(s.add_noise(x, n, t), t).sample, n)
            l.backward()
            o.step()
            o.zero_grad()
            r.append(l.item())
        di = diffusers.DDIMScheduler(20)
        di.set_timesteps(3, device=d)
        y = n
        with torch.no_grad():
            for k in di.timesteps:
                y = di.step(u(y, k).sample, k, y).prev_sample
        eu = diffusers.EulerDiscreteScheduler(20)
        eu.set_timesteps(3, device=d)
        z = n * eu.init_noise_sigma
        with torch.no_grad():
            for k in eu.timesteps:
                z = eu.step(
                    u(eu.scale_model_input(z, k), k).sample, k, z, generator=torch.Generator().manual_seed(0)
                ).prev_sample
        dp = diffusers.DPMSolverMultistepScheduler(20)
        dp.set_timesteps(3, device=d)
        w = n
        with torch.no_grad():
            for k in dp.timesteps:
                w = dp.step(u(w, k).sample, k, w).prev_sample
        return r, y.cpu(), z.cpu(), w.cpu()

    a, b = go("cpu"), go(D)
    assert max(abs(x - y) for x, y in zip(a[0], b[0])) < 1e-4, (a[0], b[0])
    for x, y in zip(a[1:], b[1:]):
        near(y, x, 1e-3)


@case
def diffusers_pipeline():
    import diffusers

    torch.manual_seed(0)
    u = diffusers.UNet2DModel(
        sample_size=16,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4,
    )
    p = diffusers.DDPMPipeline(u, diffusers.DDPMScheduler(20))
    p.set_progress_bar_config(disable=True)
    a = p(batch_size=1, num_inference_steps=3, generator=torch.Generator().manual_seed(0), output_type="np").images
    b = p.to(D)(
        batch_size=1, num_inference_steps=3, generator=torch.Generator().manual_seed(0), output_type="np"
    ).images
    assert abs(a - b).max() < 1e-3
    v = diffusers.AutoencoderKL(
        in_channels=3, out_channels=3, block_out_channels=(8,), norm_num_groups=4, latent_channels=2
    ).eval()
    x = torch.randn(1, 3, 16, 16)
    with torch.no_grad():
        want = v(x).sample
        near(v.to(D)(x.to(D)).sample, want)
    c = diffusers.UNet2DConditionModel(
        sample_size=8,
        in_channels=2,
        out_channels=2,
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=8,
        attention_head_dim=4,
    ).eval()
    x = torch.randn(1, 2, 8, 8)
    h = torch.randn(1, 5, 8)
    with torch.no_grad():
        want = c(x, 3, h).sample
        near(c.to(D)(x.to(D), 3, h.to(D)).sample, want)


@case
def torchmetrics_use():
    import torchmetrics as tm

    p = torch.rand(16, 3).softmax(1)
    y = torch.randint(0, 3, (16,))
    for mk in (
        lambda: tm.Accuracy(task="multiclass", num_classes=3),
        lambda: tm.F1Score(task="multiclass", num_classes=3, average="macro"),
        lambda: tm.ConfusionMatrix(task="multiclass", num_classes=3),
        lambda: tm.AUROC(task="multiclass", num_classes=3),
        lambda: tm.AveragePrecision(task="multiclass", num_classes=3),
        lambda: tm.CalibrationError(task="multiclass", num_classes=3),
        lambda: tm.CohenKappa(task="multiclass", num_classes=3),
        lambda: tm.MatthewsCorrCoef(task="multiclass", num_classes=3),
    ):
        a = mk()
        b = mk().to(D)
        a.update(p, y)
        b.update(p.to(D), y.to(D))
        r = b.compute()
        assert r.device.type == D
        near(r, a.compute())
    for mk in (
        tm.MeanSquaredError,
        tm.R2Score,
        tm.PearsonCorrCoef,
        tm.SpearmanCorrCoef,
        tm.MeanMetric,
        tm.ExplainedVariance,
        tm.CosineSimilarity,
        tm.KendallRankCorrCoef,
    ):
        u, v = (torch.rand(16, 3), torch.rand(16, 3)) if mk is tm.CosineSimilarity else (torch.rand(16), torch.rand(16))
        a = mk()
        b = mk().to(D)
        if mk is tm.MeanMetric:
            a.update(u)
            b.update(u.to(D))
        else:
            a.update(u, v)
            b.update(u.to(D), v.to(D))
        try:
            near(b.compute(), a.compute())
        except Exception as e:
            raise AssertionError(f"{mk}: {e}") from e
    from torchmetrics.image import PeakSignalNoiseRatio as P
    from torchmetrics.image import StructuralSimilarityIndexMeasure as S

    i, j = torch.rand(1, 3, 16, 16), torch.rand(1, 3, 16, 16)
    near(S(data_range=1.0).to(D)(i.to(D), j.to(D)), S(data_range=1.0)(i, j))
    near(P(data_range=1.0).to(D)(i.to(D), j.to(D)), P(data_range=1.0)(i, j))
    near(
        tm.text.Perplexity().to(D)(torch.rand(2, 4, 5).to(D), torch.randint(0, 5, (2, 4)).to(D)).isfinite().float(),
        torch.ones(()),
    )


@case
def geometric():
    import torch_geometric.nn as G
    from torch_geometric.data import Batch, Data

    x = torch.randn(6, 4)
    e = torch.tensor([[0, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 3]])
    for mk in (
        lambda: G.GCNConv(4, 3),
        lambda: G.GATConv(4, 3, heads=2),
        lambda: G.SAGEConv(4, 3),
        lambda: G.GINConv(torch.nn.Linear(4, 3)),
        lambda: G.ChebConv(4, 3, 2),
        lambda: G.GATv2Conv(4, 3),
        lambda: G.TransformerConv(4, 3),
        lambda: G.GraphConv(4, 3, aggr="max"),
    ):
        torch.manual_seed(0)
        m = mk()
        want = m(x, e)
        (want**2).sum().backward()
        g = [p.grad.clone() for p in m.parameters()]
        m.zero_grad()
        n = m.to(D)
        r = n(x.to(D), e.to(D))
        near(r, want)
        (r**2).sum().backward()
        for p, q in zip(n.parameters(), g):
            near(p.grad, q, 1e-3)
    b = Batch.from_data_list([Data(x=x, edge_index=e)] * 2).to(D)
    near(G.global_mean_pool(b.x, b.batch), torch.stack([x.mean(0)] * 2))
    G.global_max_pool(b.x, b.batch)
    G.global_add_pool(b.x, b.batch)
    from torch_geometric.utils import (
        add_self_loops,
        coalesce,
        degree,
        softmax,
        to_dense_adj,
        to_dense_batch,
        to_undirected,
    )

    to_dense_adj(e.to(D))
    softmax(x.to(D), torch.tensor([0, 0, 1, 1, 2, 2]).to(D))
    degree(e[0].to(D))
    to_dense_batch(b.x, b.batch)
    add_self_loops(e.to(D))
    to_undirected(e.to(D))
    coalesce(e.to(D))


@case
def gpytorch_fit():
    import gpytorch

    def go(d):
        torch.manual_seed(0)
        x = torch.linspace(0, 1, 12).to(d)
        y = torch.sin(6 * x)

        class GP(gpytorch.models.ExactGP):
            def __init__(s, x, y, l):
                super().__init__(x, y, l)
                s.mean = gpytorch.means.ConstantMean()
                s.k = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

            def forward(s, x):
                return gpytorch.distributions.MultivariateNormal(s.mean(x), s.k(x))

        l = gpytorch.likelihoods.GaussianLikelihood()
        m = GP(x, y, l).to(d)
        l.to(d)
        o = torch.optim.Adam(m.parameters(), lr=0.1)
        ml = gpytorch.mlls.ExactMarginalLogLikelihood(l, m)
        r = []
        m.train()
        l.train()
        for _ in range(4):
            o.zero_grad()
            k = -ml(m(x), y)
            k.backward()
            o.step()
            r.append(k.item())
        m.eval()
        l.eval()
        with torch.no_grad(), gpytorch.settings.fast_pred_var():
            p = l(m(torch.linspace(0, 1, 5).to(d)))
            return r, p.mean.cpu(), p.variance.cpu()

    a, b = go("cpu"), go(D)
    assert max(abs(x - y) for x, y in zip(a[0], b[0])) < 1e-3, (a[0], b[0])
    near(b[1], a[1], 1e-3)
    near(b[2], a[2], 1e-3)


@case
def pyro_svi():
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO
    from pyro.infer.autoguide import AutoNormal

    pyro.clear_param_store()
    torch.set_default_device(D)
    try:
        data = torch.randn(20) + 3

        def model(data):
            mu = pyro.sample("mu", dist.Normal(torch.tensor(0.0), torch.tensor(5.0)))
            with pyro.plate("d", len(data)):
                pyro.sample("o", dist.Normal(mu, 1.0), obs=data)

        g = AutoNormal(model)
        s = SVI(model, g, pyro.optim.Adam({"lr": 0.1}), Trace_ELBO())
        for _ in range(30):
            l = s.step(data)
        assert l < 200
        from pyro.infer import MCMC, NUTS

        mc = MCMC(NUTS(model), num_samples=4, warmup_steps=4, disable_progbar=True)
        mc.run(data)
        mc.get_samples()["mu"].mean()
    finally:
        torch.set_default_device("cpu")


@case
def kornia_ops():
    import kornia as K

    x = torch.rand(1, 3, 16, 16)
    for f in (
        lambda t: K.filters.gaussian_blur2d(t, (3, 3), (1.0, 1.0)),
        K.filters.sobel,
        K.color.rgb_to_grayscale,
        K.color.rgb_to_hsv,
        K.color.rgb_to_lab,
        lambda t: K.geometry.rotate(t, torch.tensor([30.0], device=t.device)),
        lambda t: K.geometry.resize(t, (8, 8)),
        lambda t: K.morphology.dilation(t, torch.ones(3, 3, device=t.device)),
        lambda t: K.enhance.equalize_clahe(t),
        lambda t: K.filters.canny(t)[0],
        lambda t: K.filters.median_blur(t, (3, 3)),
        lambda t: K.enhance.adjust_hue(t, 0.2),
        lambda t: K.geometry.warp_perspective(t, torch.eye(3, device=t.device)[None], (16, 16)),
        lambda t: K.feature.harris_response(t),
    ):
        want = f(x)
        r = f(x.to(D))
        assert r.device.type == D
        near(r, want, 1e-3)
    K.augmentation.AugmentationSequential(
        K.augmentation.RandomHorizontalFlip(p=1.0),
        K.augmentation.ColorJitter(0.1, 0.1, 0.1, 0.1, p=1.0),
        K.augmentation.RandomAffine(10.0, p=1.0),
    )(x.to(D))


@case
def sb3_ppo():
    import stable_baselines3 as S

    for A, kw in (
        (S.PPO, {"n_steps": 32, "batch_size": 16, "n_epochs": 1}),
        (S.DQN, {"learning_starts": 10}),
        (S.A2C, {}),
    ):
        m = A("MlpPolicy", "CartPole-v1", device=D, **kw)
        assert m.device.type == D
        m.learn(64)
        m.predict(m.env.reset())
    S.SAC("MlpPolicy", "Pendulum-v1", device=D, learning_starts=10, batch_size=8).learn(16)


@case
def torchdiffeq_ode():
    from torchdiffeq import odeint, odeint_adjoint

    def go(d, f=odeint):
        torch.manual_seed(0)
        m = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).to(d)

        class Flow(torch.nn.Module):
            def __init__(s):
                super().__init__()
                s.m = m

            def forward(s, t, y):
                return s.m(y)

        y = f(
            Flow(),
            torch.ones(2, device=d),
            torch.linspace(0, 1, 4, device=d),
            **({"method": "rk4"} if f is odeint else {"rtol": 1e-4, "atol": 1e-4}),
        )
        y.sum().backward()
        return y.cpu(), [p.grad.cpu() for p in m.parameters()]

    for f in (odeint, odeint_adjoint):
        a, b = go("cpu", f), go(D, f)
        near(b[0], a[0], 1e-3)
        for p, q in zip(a[1], b[1]):
            near(q, p, 1e-3)


@case
def tensordict_use():
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule

    t = TensorDict({"a": torch.randn(3, 4), "b": {"c": torch.arange(3)}}, [3]).to(D)
    assert t.device.type == D
    torch.stack([t, t])
    t[1:]
    t.clone()
    t.cpu()
    TensorDictModule(torch.nn.Linear(4, 2).to(D), ["a"], ["o"])(t)
    torch.cat([t, t])
    t.apply(lambda x: x + 1)


@case
def open_clip_use():
    import open_clip

    torch.manual_seed(0)
    m = open_clip.CLIP(
        16,
        {"image_size": 32, "patch_size": 8, "width": 32, "layers": 2, "head_width": 8},
        {"context_length": 12, "vocab_size": 99, "width": 32, "heads": 4, "layers": 2},
    ).eval()
    x, t = torch.randn(2, 3, 32, 32), torch.randint(0, 99, (2, 12))
    a = m(x, t)
    b = m.to(D)(x.to(D), t.to(D))
    for u, v in zip(a, b):
        near(v, u)
    from open_clip.loss import ClipLoss

    ClipLoss()(*b).backward()


@case
def smp_unet():
    import segmentation_models_pytorch as smp

    torch.manual_seed(0)
    m = smp.Unet("resnet18", encoder_weights=None, classes=2).eval()
    x = torch.randn(1, 3, 64, 64)
    want = m(x)
    near(m.to(D)(x.to(D)), want, 1e-3)
    L = smp.losses.DiceLoss("multiclass")
    y = torch.randint(0, 2, (1, 64, 64))
    a = L(want, y)
    b = L(m(x.to(D)), y.to(D))
    near(b, a, 1e-3)
    b.backward()
    smp.losses.LovaszLoss("multiclass")(m(x.to(D)), y.to(D))
    smp.losses.FocalLoss("multiclass")(m(x.to(D)), y.to(D))


@case
def x_transformers_use():
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    torch.manual_seed(0)
    m = TransformerWrapper(
        num_tokens=99,
        max_seq_len=32,
        attn_layers=Decoder(dim=32, depth=2, heads=4, rotary_pos_emb=True, attn_flash=True),
    ).eval()
    want = m(IDS)
    near(m.to(D)(IDS.to(D)), want)
    a = AutoregressiveWrapper(m)
    a(IDS.to(D)).backward()
    a.generate(IDS[:, :3].to(D), 4)


@case
def lion():
    from lion_pytorch import Lion

    def go(d):
        torch.manual_seed(0)
        m = torch.nn.Linear(4, 2).to(d)
        o = Lion(m.parameters(), lr=1e-2)
        x = torch.randn(8, 4).to(d)
        for _ in range(3):
            l = m(x).pow(2).mean()
            l.backward()
            o.step()
            o.zero_grad()
        return l

    near(go(D), go("cpu"))


@case
def captum_ig():
    from captum.attr import IntegratedGradients, Saliency

    torch.manual_seed(0)
    m = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    x = torch.randn(2, 4)
    a = IntegratedGradients(m).attribute(x, target=1, n_steps=8)
    m.to(D)
    near(IntegratedGradients(m).attribute(x.to(D), target=1, n_steps=8), a)
    Saliency(m).attribute(x.to(D).requires_grad_(), target=0)


if __name__ == "__main__":
    answer(CASES)
