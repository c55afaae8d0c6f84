"""A vision transformer (https://arxiv.org/abs/2010.11929) from torch.nn's own encoder, and one with einops; mixed precision as on CUDA."""

import torch
from einops import rearrange, repeat
from einops.layers.torch import Rearrange, Reduce
from torch import einsum, nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"


class FeedForward(nn.Module):
    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, hidden_dim), nn.GELU(), nn.Linear(hidden_dim, dim))

    def forward(self, x):
        return self.net(x)


class Attention(nn.Module):
    def __init__(self, dim, heads=2, dim_head=8):
        super().__init__()
        inner = dim_head * heads
        self.heads, self.scale = heads, dim_head**-0.5
        self.norm = nn.LayerNorm(dim)
        self.to_qkv = nn.Linear(dim, inner * 3, bias=False)
        self.to_out = nn.Linear(inner, dim)

    def forward(self, x):
        q, k, v = (
            rearrange(t, "b n (h d) -> b h n d", h=self.heads) for t in self.to_qkv(self.norm(x)).chunk(3, dim=-1)
        )
        attn = (einsum("b h i d, b h j d -> b h i j", q, k) * self.scale).softmax(dim=-1)
        return self.to_out(rearrange(einsum("b h i j, b h j d -> b h i d", attn, v), "b h n d -> b n (h d)"))


class ViT(nn.Module):
    def __init__(self, image=8, patch=2, dim=16, depth=2, classes=3):
        super().__init__()
        patches = (image // patch) ** 2
        self.to_patch_embedding = nn.Sequential(
            Rearrange("b c (h p1) (w p2) -> b (h w) (p1 p2 c)", p1=patch, p2=patch),
            nn.LayerNorm(3 * patch**2),
            nn.Linear(3 * patch**2, dim),
            nn.LayerNorm(dim),
        )
        self.pos_embedding = nn.Parameter(torch.randn(1, patches + 1, dim) * 0.02)
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim))
        self.layers = nn.ModuleList([nn.ModuleList([Attention(dim), FeedForward(dim, 2 * dim)]) for _ in range(depth)])
        layer = nn.TransformerEncoderLayer(
            dim, nhead=2, dim_feedforward=32, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=1, enable_nested_tensor=False)
        self.pool = Reduce("b n d -> b d", "mean")
        self.head = nn.Linear(2 * dim, classes)

    def forward(self, img):
        x = self.to_patch_embedding(img)
        x = torch.cat((repeat(self.cls_token, "1 1 d -> b 1 d", b=x.shape[0]), x), dim=1) + self.pos_embedding
        for attention, feed_forward in self.layers:
            x = attention(x) + x
            x = feed_forward(x) + x
        x = self.encoder(x)
        return self.head(torch.cat((x[:, 0], self.pool(x)), dim=1))


def batch(n=16):
    label = torch.randint(3, (n,))
    image = torch.randn(n, 3, 8, 8)
    image[torch.arange(n), label] += 0.8
    return image.to(device), label.to(device)


model = ViT().to(device)
print(sum(p.numel() for p in model.parameters() if p.requires_grad))
optimizer = torch.optim.RAdam(model.parameters(), lr=3e-3, weight_decay=0.01, decoupled_weight_decay=True)
scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=25)
for step in range(50):
    image, label = batch()
    loss = nn.functional.cross_entropy(model(image), label)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    scheduler.step()
    if step % 10 == 9:
        print(f"step {step} loss {loss.item():.3f}")

with torch.autocast(device_type=device, dtype=torch.bfloat16), torch.no_grad():
    print(model.head(torch.randn(2, 32, device=device)).dtype)
