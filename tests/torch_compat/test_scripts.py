"""Training scripts in the manner of public ones, each run twice: by torch, and with its imports changed. The first 20
losses agree."""

import re

import numpy as np
import pytest

COMMON = """
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

random = np.random.RandomState(0)

def filled(model):
    for p in model.parameters():
        fan = p.shape[-1] if p.dim() > 1 else 1
        p.data.copy_(torch.from_numpy((random.randn(*p.shape) / max(1, fan) ** 0.5 * (p.dim() > 1)).astype("float32")))
        if p.dim() == 1:
            p.data.fill_(0.1)
    return model

def floats(*shape):
    return torch.from_numpy(random.randn(*shape).astype("float32"))

losses = []
"""
SCRIPTS = {
    "character transformer": """
from dataclasses import dataclass
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed import init_process_group, destroy_process_group

@dataclass
class Settings:
    block: int = 8
    vocab: int = 13
    heads: int = 2
    width: int = 16

class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.qkv, self.out = nn.Linear(s.width, 3 * s.width, bias=False), nn.Linear(s.width, s.width)
        self.heads = s.heads

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.qkv(x).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(B, T, C))

class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.ln_1, self.attention, self.ln_2 = nn.LayerNorm(s.width), Attention(s), nn.LayerNorm(s.width)
        up, down = nn.Linear(s.width, 4 * s.width), nn.Linear(4 * s.width, s.width)
        self.mlp = nn.ModuleDict(dict(up=up, act=nn.GELU(), down=down))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        m = self.mlp
        return x + m.down(m.act(m.up(self.ln_2(x))))

class Model(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(s.vocab, s.width), nn.Embedding(s.block, s.width)
        self.blocks = nn.ModuleList([Block(s) for _ in range(2)])
        self.head = nn.Linear(s.width, s.vocab, bias=False)
        self.wte.weight = self.head.weight

    def forward(self, idx, targets=None):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.wte(idx) + self.wpe(pos)
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    @torch.no_grad()
    def generate(self, idx, count):
        for _ in range(count):
            logits, _ = self(idx[:, -8:], idx[:, -8:])
            v, _ = torch.topk(logits[:, -1, :], 3)
            logits = logits[:, -1, :]
            logits[logits < v[:, [-1]]] = -float("Inf")
            idx = torch.cat((idx, F.softmax(logits, dim=-1).argmax(-1, keepdim=True)), dim=1)
        return idx

s = Settings()
model = filled(Model(s))
decay = [p for p in model.parameters() if p.dim() >= 2]
rest = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-2, betas=(0.9, 0.95))
scaler = torch.cuda.amp.GradScaler(enabled=False)
text = torch.from_numpy(random.randint(0, s.vocab, 500))
for step in range(20):
    ix = torch.from_numpy(random.randint(0, 490, (4,)))
    x = torch.stack([text[i : i + s.block] for i in ix])
    y = torch.stack([text[i + 1 : i + 1 + s.block] for i in ix])
    for group in optimizer.param_groups:
        group["lr"] = 1e-2 * (step + 1) / 20
    _, loss = model(x, y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    losses.append(loss.item())
assert model.generate(text[None, :4], 5).shape == (1, 9)
""",
    "bigrams by hand": """
W = torch.from_numpy(random.randn(27, 27).astype("float32")).requires_grad_()
xs, ys = torch.from_numpy(random.randint(0, 27, 200)), torch.from_numpy(random.randint(0, 27, 200))
for step in range(20):
    counts = (F.one_hot(xs, num_classes=27).float() @ W).exp()
    probs = counts / counts.sum(1, keepdims=True)
    loss = -probs[torch.arange(200), ys].log().mean() + 0.01 * (W**2).mean()
    W.grad = None
    loss.backward()
    W.data += -10 * W.grad
    losses.append(loss.item())
""",
    "batch norm by hand": """
C, W1, W2 = floats(27, 4), floats(12, 20) * 0.5, floats(20, 27) * 0.1
gain, bias, mean_running = torch.ones((1, 20)), torch.zeros((1, 20)), torch.zeros((1, 20))
parameters = [C, W1, W2, gain, bias]
for p in parameters:
    p.requires_grad = True
X, Y = torch.from_numpy(random.randint(0, 27, (300, 3))), torch.from_numpy(random.randint(0, 27, 300))
for step in range(20):
    ix = torch.from_numpy(random.randint(0, 300, (32,)))
    before = C[X[ix]].view(-1, 12) @ W1
    mean, std = before.mean(0, keepdim=True), before.std(0, keepdim=True)
    h = torch.tanh(gain * (before - mean) / std + bias)
    with torch.no_grad():
        mean_running = 0.999 * mean_running + 0.001 * mean
    loss = F.cross_entropy(h @ W2, Y[ix])
    for p in parameters:
        p.grad = None
    loss.backward()
    for p in parameters:
        p.data += -0.1 * p.grad
    losses.append(loss.log10().item())
""",
    "scalars": """
a, b = torch.Tensor([-4.0]).double(), torch.Tensor([2.0]).double()
a.requires_grad, b.requires_grad = True, True
c = a + b
d = a * b + b**3
c = c + c + 1
c = c + 1 + c + (-a)
d = d + d * 2 + (b + a).relu()
d = d + 3 * d + (b - a).relu()
e = c - d
f = e**2
g = f / 2.0
g = g + 10.0 / f
g.backward()
losses += [g.data.item(), a.grad.item(), b.grad.item()]
""",
    "autoencoder": """
class VAE(nn.Module):
    def __init__(self):
        super(VAE, self).__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(64, 32), nn.Linear(32, 4), nn.Linear(32, 4)
        self.fc3, self.fc4 = nn.Linear(4, 32), nn.Linear(32, 64)

    def forward(self, x, eps):
        h = F.relu(self.fc1(x.view(-1, 64)))
        mu, logvar = self.fc21(h), self.fc22(h)
        z = mu + eps * torch.exp(0.5 * logvar)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar

model = filled(VAE()).to(torch.device("cpu"))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(20):
    x = torch.sigmoid(floats(16, 1, 8, 8))
    recon, mu, logvar = model(x, floats(16, 4))
    loss = F.binary_cross_entropy(recon, x.view(-1, 64), reduction="sum")
    loss = loss - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    optimizer.zero_grad()
    loss.backward()
    losses.append(loss.item())
    optimizer.step()
""",
    "adversarial": """
G = filled(nn.Sequential(
    nn.ConvTranspose2d(6, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
    nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False), nn.Tanh()))
D = filled(nn.Sequential(
    nn.Conv2d(1, 16, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(16, 1, 4, 1, 0, bias=False),
    nn.Sigmoid(), nn.Flatten(0)))
criterion = nn.BCELoss()
optimizers = [torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999)) for net in (D, G)]
for step in range(10):
    label = torch.full((8,), 1.0)
    D.zero_grad()
    real = criterion(D(floats(8, 1, 8, 8)), label)
    real.backward()
    fake = G(floats(8, 6, 1, 1))
    label.fill_(0.0)
    wrong = criterion(D(fake.detach()), label)
    wrong.backward()
    optimizers[0].step()
    G.zero_grad()
    label.fill_(1.0)
    loss = criterion(D(fake), label)
    loss.backward()
    optimizers[1].step()
    losses += [(real + wrong).item(), loss.item()]
""",
    "words": """
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.rnn, self.decoder = nn.Embedding(30, 12), nn.LSTM(12, 12, 2, dropout=0.0), nn.Linear(12, 30)

    def forward(self, x, hidden):
        found, hidden = self.rnn(self.encoder(x), hidden)
        return F.log_softmax(self.decoder(found).view(-1, 30), dim=1), hidden

def repackage(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage(v) for v in h)

model = filled(Words())
hidden = tuple(torch.zeros(2, 5, 12) for _ in range(2))
data = torch.from_numpy(random.randint(0, 30, (105, 5)))
criterion = nn.NLLLoss()
for i in range(0, 100, 5):
    model.zero_grad()
    hidden = repackage(hidden)
    found, hidden = model(data[i : i + 5], hidden)
    loss = criterion(found, data[i + 1 : i + 6].view(-1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-2.0)
    losses.append(loss.item())
""",
    "sequence": """
class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.linear = nn.LSTMCell(1, 9), nn.LSTMCell(9, 9), nn.Linear(9, 1)

    def forward(self, x):
        h = [torch.zeros(x.size(0), 9, dtype=torch.double) for _ in range(4)]
        found = []
        for part in x.split(1, dim=1):
            h[0], h[1] = self.one(part, (h[0], h[1]))
            h[2], h[3] = self.two(h[0], (h[2], h[3]))
            found += [self.linear(h[2])]
        return torch.cat(found, dim=1)

model = filled(Sequence()).double()
data = torch.from_numpy(np.sin(np.arange(12)[None] / 3 + random.rand(6, 1)))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.8, max_iter=5)
for step in range(4):
    def closure():
        optimizer.zero_grad()
        loss = nn.MSELoss()(model(data[:, :-1]), data[:, 1:])
        losses.append(loss.item())
        loss.backward()
        return loss
    optimizer.step(closure)
""",
    "super resolution": """
net = filled(nn.Sequential(
    nn.Conv2d(1, 8, (5, 5), (1, 1), (2, 2)), nn.ReLU(), nn.Conv2d(8, 4, 3, 1, 1), nn.PixelShuffle(2)))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for step in range(20):
    y = floats(4, 1, 8, 8)
    optimizer.zero_grad()
    loss = nn.MSELoss()(net(F.interpolate(y, scale_factor=0.5, mode="bilinear", align_corners=False)), y)
    losses.append(loss.item())
    loss.backward()
    optimizer.step()
""",
    "siamese": """
body = filled(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 8)))
head = filled(nn.Sequential(nn.Linear(16, 8), nn.ReLU(inplace=True), nn.Linear(8, 1), nn.Sigmoid()))
parameters = [*body.parameters(), *head.parameters()]
optimizer = torch.optim.Adadelta(parameters, lr=1.0)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.7)
for step in range(20):
    one, two = floats(6, 1, 8, 8), floats(6, 1, 8, 8)
    target = torch.from_numpy(random.randint(0, 2, 6)).float()
    optimizer.zero_grad()
    found = head(torch.cat((body(one), body(two)), 1)).squeeze()
    loss = nn.BCELoss()(found, target)
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
""",
    "digits": """
from torch.utils.data import DataLoader, TensorDataset
from torch.optim.lr_scheduler import StepLR

class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, 1), nn.Conv2d(8, 16, 3, 1)
        self.dropout1, self.fc1, self.fc2 = nn.Dropout(0.0), nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = torch.flatten(self.dropout1(x), 1)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)

torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
rows = TensorDataset(floats(80, 1, 8, 8), torch.from_numpy(random.randint(0, 10, 80)))
model = filled(Net()).to(device)
optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
for epoch in range(4):
    model.train()
    for data, target in DataLoader(rows, batch_size=16, shuffle=True):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    scheduler.step()
model.eval()
with torch.no_grad():
    found = model(rows[:][0])
    losses.append(found.argmax(dim=1, keepdim=True).eq(rows[:][1].view_as(found[:, :1].long())).sum().item())
""",
    "adder": """
from torch.utils.data import Dataset, DataLoader

class Sums(Dataset):
    digits = 2
    def __len__(self):
        return 160

    def __getitem__(self, i):
        a, b = i * 7 % 100, i * 31 % 100
        text = f"{a:02d}{b:02d}" + f"{a + b:03d}"[::-1]
        x = torch.tensor([int(c) for c in text], dtype=torch.long)
        y = x[1:].clone()
        y[: self.digits * 2 - 1] = -1
        return x[:-1], y

class Attention(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.c_attn, self.c_proj, self.n = nn.Linear(width, 3 * width), nn.Linear(width, width), heads
        self.register_buffer("bias", torch.tril(torch.ones(length, length)).view(1, 1, length, length))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.n, C // self.n).transpose(1, 2) for t in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / k.size(-1) ** 0.5)
        att = F.softmax(att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf")), dim=-1)
        return self.c_proj((att @ v).transpose(1, 2).contiguous().view(B, T, C))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(10, 16), wpe=nn.Embedding(6, 16),
            h=nn.ModuleList([nn.ModuleDict(dict(ln=nn.LayerNorm(16), at=Attention(16, 2, 6))) for _ in range(2)]),
            ln_f=nn.LayerNorm(16)))
        self.lm_head = nn.Linear(16, 10, bias=False)

    def forward(self, idx, targets=None):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device).unsqueeze(0)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = x + block.at(block.ln(x))
        logits = self.lm_head(self.transformer.ln_f(x))
        if targets is None:
            return logits
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

model = filled(Net())
decay = {n for n, p in model.named_parameters() if p.dim() >= 2 and "wte" not in n and "wpe" not in n}
named = dict(model.named_parameters())
optimizer = torch.optim.AdamW([
    {"params": [named[n] for n in sorted(decay)], "weight_decay": 0.1},
    {"params": [named[n] for n in sorted(named.keys() - decay)], "weight_decay": 0.0}], lr=5e-3, betas=(0.9, 0.95))
for batch in DataLoader(Sums(), batch_size=8):
    x, y = [t.to("cpu") for t in batch]
    loss = model(x, y)
    model.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
idx = x[:1, :4]
for _ in range(2):
    idx = torch.cat((idx, torch.topk(model(idx)[:, -1, :], k=1, dim=-1)[1]), dim=1)
losses.append(float(idx.sum()))
""",
    "names by a perceptron": """
text = ["emma", "olivia", "ava", "isabella", "sophia", "mia", "amelia"]
stoi = {c: i + 1 for i, c in enumerate(sorted(set("".join(text))))}
stoi["."] = 0
X, Y = [], []
for w in text:
    context = [0] * 3
    for ch in w + ".":
        X.append(context)
        Y.append(stoi[ch])
        context = context[1:] + [stoi[ch]]
X, Y = torch.tensor(X), torch.tensor(Y)
g = torch.Generator().manual_seed(2147483647)
C, W1, b1 = torch.randn((27, 4), generator=g), torch.randn((12, 30), generator=g), torch.randn(30, generator=g)
W2, b2 = torch.randn((30, 27), generator=g) * 0.1, torch.zeros(27)
parameters = [C, W1, b1, W2, b2]
for p in parameters:
    p.requires_grad = True
for i in range(25):
    ix = torch.randint(0, X.shape[0], (16,), generator=g)
    h = torch.tanh(C[X[ix]].view(-1, 12) @ W1 + b1)
    loss = F.cross_entropy(h @ W2 + b2, Y[ix])
    for p in parameters:
        p.grad = None
    loss.backward()
    for p in parameters:
        p.data += -(0.1 if i < 15 else 0.01) * p.grad
    losses.append(loss.log10().item())
losses.append(sum(p.nelement() for p in parameters))
""",
    "gradients by hand": """
n, vocab, hidden = 16, 9, 12
C, W1, b1 = floats(vocab, 4), floats(12, hidden) * 0.3, floats(hidden) * 0.1
gain, shift, W2, b2 = floats(1, hidden) * 0.1 + 1, floats(1, hidden) * 0.1, floats(hidden, vocab) * 0.1, floats(vocab)
parameters = [C, W1, b1, gain, shift, W2, b2]
with torch.no_grad():
    for step in range(20):
        Xb, Yb = torch.from_numpy(random.randint(0, vocab, (n, 3))), torch.from_numpy(random.randint(0, vocab, n))
        emb = C[Xb]
        embcat = emb.view(emb.shape[0], -1)
        pre = embcat @ W1 + b1
        mean, var = pre.mean(0, keepdim=True), pre.var(0, keepdim=True, unbiased=True)
        inv = (var + 1e-5) ** -0.5
        raw = (pre - mean) * inv
        h = torch.tanh(gain * raw + shift)
        logits = h @ W2 + b2
        loss = F.cross_entropy(logits, Yb)
        dlogits = F.softmax(logits, 1)
        dlogits[range(n), Yb] -= 1
        dlogits /= n
        dh, dW2, db2 = dlogits @ W2.T, h.T @ dlogits, dlogits.sum(0)
        dact = (1.0 - h**2) * dh
        dgain, dshift = (raw * dact).sum(0, keepdim=True), dact.sum(0, keepdim=True)
        dpre = gain * inv / n * (n * dact - dact.sum(0) - n / (n - 1) * raw * (dact * raw).sum(0))
        demb, dW1, db1 = (dpre @ W1.T).view(emb.shape), embcat.T @ dpre, dpre.sum(0)
        dC = torch.zeros_like(C)
        for k in range(Xb.shape[0]):
            for j in range(Xb.shape[1]):
                dC[Xb[k, j]] += demb[k, j]
        for p, grad in zip(parameters, [dC, dW1, db1, dgain, dshift, dW2, db2]):
            p.data += -0.1 * grad
        losses.append(loss.item())
""",
    "tree of convolutions": """
class Linear:
    def __init__(self, fan_in, fan_out, bias=True):
        self.weight = floats(fan_in, fan_out) / fan_in**0.5
        self.bias = torch.zeros(fan_out) if bias else None

    def __call__(self, x):
        self.out = x @ self.weight
        if self.bias is not None:
            self.out += self.bias
        return self.out

    def parameters(self):
        return [self.weight] + ([] if self.bias is None else [self.bias])

class BatchNorm1d:
    def __init__(self, dim):
        self.training, self.gamma, self.beta = True, torch.ones(dim), torch.zeros(dim)
        self.mean, self.var = torch.zeros(dim), torch.ones(dim)

    def __call__(self, x):
        dim = 0 if x.ndim == 2 else (0, 1)
        mean, var = (x.mean(dim, keepdim=True), x.var(dim, keepdim=True)) if self.training else (self.mean, self.var)
        self.out = self.gamma * (x - mean) / torch.sqrt(var + 1e-5) + self.beta
        if self.training:
            with torch.no_grad():
                self.mean, self.var = 0.9 * self.mean + 0.1 * mean, 0.9 * self.var + 0.1 * var
        return self.out

    def parameters(self):
        return [self.gamma, self.beta]

class Flatten:
    def __call__(self, x):
        B, T, C = x.shape
        x = x.view(B, T // 2, C * 2)
        return x.squeeze(1) if x.shape[1] == 1 else x

    def parameters(self):
        return []

class Tanh(Flatten):
    def __call__(self, x):
        return torch.tanh(x)

table = floats(11, 6)
layers = []
for width in (12, 24, 24):
    layers += [Flatten(), Linear(width, 12, bias=False), BatchNorm1d(12), Tanh()]
layers.append(Linear(12, 11))
with torch.no_grad():
    layers[-1].weight *= 0.1
parameters = [table] + [p for layer in layers for p in layer.parameters()]
for p in parameters:
    p.requires_grad = True
X, Y = torch.from_numpy(random.randint(0, 11, (200, 8))), torch.from_numpy(random.randint(0, 11, 200))

def forward(ix):
    x = table[ix]
    for layer in layers:
        x = layer(x)
    return x

for step in range(20):
    loss = F.cross_entropy(forward(X[step * 10 : step * 10 + 10]), Y[step * 10 : step * 10 + 10])
    for p in parameters:
        p.grad = None
    loss.backward()
    for p in parameters:
        p.data += -0.1 * p.grad
    losses.append(loss.item())
for layer in layers:
    layer.training = False
with torch.no_grad():
    losses.append(F.cross_entropy(forward(X), Y).item())
""",
}


def losses(source):
    names = {"__name__": "script"}
    exec(compile(source, "script", "exec"), names)
    return names["losses"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_losses_are_torchs(name):
    source = COMMON + SCRIPTS[name]
    changed = re.sub(r"^import torch$", "import candle_convert as torch", source, flags=re.M)
    changed = re.sub(r"^(import|from) torch\.", r"\1 candle_convert.", changed, flags=re.M)
    expected = losses(source)
    assert len(expected) >= (3 if name == "scalars" else 20)
    np.testing.assert_allclose(losses(changed), expected, rtol=2e-3, atol=1e-5)
    assert len({*expected}) > 2
