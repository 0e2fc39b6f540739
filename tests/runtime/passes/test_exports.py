"""Networks as torch exports them: what is recognised, and the same outputs."""

import math
import warnings

import numpy as np
import onnx
import pytest
from rewriting import rewritten

torch = pytest.importorskip("torch", reason="needs torch's exporter")
HEADS, SIZE = 4, 8
WIDTH = HEADS * SIZE


class RMSNorm(torch.nn.Module):
    """As transformers write it: in f32, with a cast around."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x):
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


def rotated(x):
    one, two = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-two, one), dim=-1)


class Attention(torch.nn.Module):
    """Grouped heads with rotary embeddings, keys repeated, a causal mask."""

    def __init__(self, groups=2, eager=True, rotary=True, causal=True):
        super().__init__()
        self.groups, self.eager, self.rotary, self.causal = groups, eager, rotary, causal
        self.q, self.k, self.v, self.o = (torch.nn.Linear(WIDTH, width) for width in (WIDTH, groups * SIZE, groups * SIZE, WIDTH))

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (f(x).view(batch, length, -1, SIZE).transpose(1, 2) for f in (self.q, self.k, self.v))
        if self.rotary:
            angles = torch.arange(length).float()[:, None] * 10 ** -(torch.arange(0, SIZE, 2).float() / SIZE)
            angles = torch.cat((angles, angles), dim=-1)[None, None]
            cos, sin = angles.cos(), angles.sin()
            q, k = q * cos + rotated(q) * sin, k * cos + rotated(k) * sin
        if self.groups != HEADS:
            k, v = (y[:, :, None].expand(batch, self.groups, HEADS // self.groups, length, SIZE).reshape(batch, HEADS, length, SIZE) for y in (k, v))
        mask = None
        if self.causal:
            mask = torch.full((length, length), torch.finfo(torch.float32).min).triu(1)[None, None]
        if self.eager:
            scores = q @ k.transpose(2, 3) / math.sqrt(SIZE)
            y = torch.softmax(scores if mask is None else scores + mask, dim=-1) @ v
        else:
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o(y.transpose(1, 2).reshape(batch, length, WIDTH))


class Block(torch.nn.Module):
    def __init__(self, norm, attention, activation):
        super().__init__()
        self.first, self.second, self.attention, self.activation = norm(), norm(), attention, activation
        self.up, self.down = torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.down(self.activation(self.up(self.second(x))))


def layer_norm():
    return torch.nn.LayerNorm(WIDTH)


BLOCKS = {
    "llama": (lambda: Block(RMSNorm, Attention(), torch.nn.SiLU()), {"Attention": 1, "RMSNormalization": 2, "RotaryEmbedding": 2, "Swish": 1}),
    "llama with torch's attention": (
        lambda: Block(RMSNorm, Attention(eager=False), torch.nn.SiLU()), {"Attention": 1, "RMSNormalization": 2, "RotaryEmbedding": 2, "Swish": 1},
    ),
    "bert": (
        lambda: Block(layer_norm, Attention(HEADS, True, False, False), torch.nn.GELU()), {"Attention": 1, "LayerNormalization": 2, "Gelu": 1},
    ),
    "vit": (
        lambda: Block(layer_norm, Attention(HEADS, False, False, False), torch.nn.GELU("tanh")), {"Attention": 1, "LayerNormalization": 2, "Gelu": 1},
    ),
}
INSIDE = {"Softmax", "Erf", "Tanh", "ReduceMean", "Sqrt", "Neg", "Slice"}


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("opset", [14, 18])
@pytest.mark.parametrize("symbolic", [False, True], ids=["fixed", "symbolic"])
def test_blocks_of_transformers(tmp_path, name, opset, symbolic):
    make, expected = BLOCKS[name]
    torch.manual_seed(3)
    x = torch.randn(2, 6, WIDTH)
    axes = {"x": {0: "batch", 1: "length"}} if symbolic else None
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(make().eval(), (x,), str(tmp_path / "m.onnx"), dynamo=False, opset_version=opset, input_names=["x"], dynamic_axes=axes)
    graph = rewritten(onnx.load(tmp_path / "m.onnx"), {"x": x.numpy()}, tmp_path)
    names = [node.op.name for node in graph.nodes]
    assert {operator: names.count(operator) for operator in expected} == expected
    left = {"Slice"} if "rotary" in name or "llama" in name else set()
    assert not (INSIDE - left) & set(names)
    assert "MatMul" in names or "Gemm" in names


def test_a_block_with_convolutions(tmp_path):
    torch.manual_seed(4)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.GroupNorm(2, 8), torch.nn.Hardswish(), torch.nn.Conv2d(8, 8, 1), torch.nn.BatchNorm2d(8), torch.nn.Mish(),
        torch.nn.ZeroPad2d(1), torch.nn.Conv2d(8, 4, 3),
    ).eval()
    x = torch.randn(2, 3, 9, 8)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (x,), str(tmp_path / "m.onnx"), dynamo=False, opset_version=17, input_names=["x"])
    graph = rewritten(onnx.load(tmp_path / "m.onnx"), {"x": x.numpy()}, tmp_path)
    assert [node.op.name for node in graph.nodes] == ["Conv", "GroupNormalization", "HardSwish", "Conv", "Mish", "Conv"]
    assert np.all([node.op.domain == "" for node in graph.nodes])
