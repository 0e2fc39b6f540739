"""Networks exported by torch: fused operators, and equal outputs."""

import math
import warnings

import numpy as np
import onnx
import pytest
from candle_convert.tests.oracles.before_and_after_pass import rewritten

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
        self.q, self.k, self.v, self.o = (
            torch.nn.Linear(WIDTH, width) for width in (WIDTH, groups * SIZE, groups * SIZE, WIDTH)
        )

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (f(x).view(batch, length, -1, SIZE).transpose(1, 2) for f in (self.q, self.k, self.v))
        if self.rotary:
            angles = torch.arange(length).float()[:, None] * 10 ** -(torch.arange(0, SIZE, 2).float() / SIZE)
            angles = torch.cat((angles, angles), dim=-1)[None, None]
            cos, sin = angles.cos(), angles.sin()
            q, k = q * cos + rotated(q) * sin, k * cos + rotated(k) * sin
        if self.groups != HEADS:
            k, v = (
                y[:, :, None]
                .expand(batch, self.groups, HEADS // self.groups, length, SIZE)
                .reshape(batch, HEADS, length, SIZE)
                for y in (k, v)
            )
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
    "llama": (
        lambda: Block(RMSNorm, Attention(), torch.nn.SiLU()),
        {"Attention": 1, "RMSNormalization": 2, "RotaryEmbedding": 2, "Swish": 1},
    ),
    "llama with torch's attention": (
        lambda: Block(RMSNorm, Attention(eager=False), torch.nn.SiLU()),
        {"Attention": 1, "RMSNormalization": 2, "RotaryEmbedding": 2, "Swish": 1},
    ),
    "bert": (
        lambda: Block(layer_norm, Attention(HEADS, True, False, False), torch.nn.GELU()),
        {"Attention": 1, "LayerNormalization": 2, "Gelu": 1},
    ),
    "vit": (
        lambda: Block(layer_norm, Attention(HEADS, False, False, False), torch.nn.GELU("tanh")),
        {"Attention": 1, "LayerNormalization": 2, "Gelu": 1},
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
        torch.onnx.export(
            make().eval(),
            (x,),
            str(tmp_path / "m.onnx"),
            dynamo=False,
            opset_version=opset,
            input_names=["x"],
            dynamic_axes=axes,
        )
    graph = rewritten(onnx.load(tmp_path / "m.onnx"), {"x": x.numpy()}, tmp_path)
    names = [node.op.name for node in graph.nodes]
    assert {operator: names.count(operator) for operator in expected} == expected
    left = {"Slice"} if "rotary" in name or "llama" in name else set()
    assert not (INSIDE - left) & set(names)
    assert "MatMul" in names or "Gemm" in names


class Cached(torch.nn.Module):
    """Keys and values behind those of earlier positions, all of them results too; a mask over all positions is
    given."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(WIDTH, width) for width in (WIDTH, 2 * SIZE, 2 * SIZE))

    def forward(self, x, past_k, past_v, mask):
        batch, length, _ = x.shape
        q, k, v = (f(x).view(batch, length, -1, SIZE).transpose(1, 2) for f in (self.q, self.k, self.v))
        k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
        wide = [
            y[:, :, None].expand(batch, 2, HEADS // 2, y.shape[2], SIZE).reshape(batch, HEADS, y.shape[2], SIZE)
            for y in (k, v)
        ]
        scores = q @ wide[0].transpose(2, 3) / math.sqrt(SIZE) + mask[:, :, :, : wide[0].shape[2]]
        y = torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype) @ wide[1]
        return y.transpose(1, 2).reshape(batch, length, WIDTH), k, v


def test_attention_with_earlier_keys(tmp_path):
    torch.manual_seed(5)
    feeds = {"x": torch.randn(2, 3, WIDTH), "past_k": torch.randn(2, 2, 5, SIZE), "past_v": torch.randn(2, 2, 5, SIZE)}
    feeds["mask"] = torch.where(torch.rand(2, 1, 3, 10) < 0.3, torch.finfo(torch.float32).min, 0.0)
    past = {0: "batch", 2: "past"}
    axes = {
        "x": {0: "batch", 1: "length"},
        "past_k": past,
        "past_v": past,
        "mask": {0: "batch", 2: "length", 3: "most"},
    }
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Cached().eval(), tuple(feeds.values()), str(tmp_path / "m.onnx"),
            dynamo=False, opset_version=17, input_names=list(feeds), dynamic_axes=axes,
        )  # fmt: skip
    graph = rewritten(onnx.load(tmp_path / "m.onnx"), {name: array.numpy() for name, array in feeds.items()}, tmp_path)
    (node,) = (node for node in graph.nodes if node.op.name == "Attention")
    assert "Softmax" not in {node.op.name for node in graph.nodes}
    assert node.inputs[1].shape[1] == 2


class Calling(torch.nn.Module):
    """A model of transformers on ids, a mask, and keys and values of earlier positions; gives those of all positions
    too."""

    def __init__(self, model, cache):
        super().__init__()
        self.model, self.cache = model, cache

    def forward(self, ids, mask, *past):
        cache = self.cache() if past else None
        for index in range(0, len(past), 2):
            cache.update(past[index], past[index + 1], index // 2)
        found = self.model(
            input_ids=ids, attention_mask=mask, **({"past_key_values": cache, "use_cache": True} if past else {})
        )
        layers = found.past_key_values.layers if past else ()
        return (found[0], *(item for layer in layers for item in (layer.keys, layer.values)))


def tiny(transformers, family):
    """A model of two layers, and how many heads its keys have where it takes those of earlier positions."""
    tiny = {
        "num_hidden_layers": 2,
        "hidden_size": WIDTH,
        "num_attention_heads": HEADS,
        "vocab_size": 50,
        "max_position_embeddings": 64,
    }
    if family == "Bert":
        return transformers.BertModel(transformers.BertConfig(**tiny, intermediate_size=64), add_pooling_layer=False), 0
    if family == "GPT2":
        return transformers.GPT2Model(transformers.GPT2Config(**tiny, bos_token_id=None, eos_token_id=None)), HEADS
    config = getattr(transformers, f"{family}Config")(
        **tiny, intermediate_size=64, num_key_value_heads=2, head_dim=SIZE
    )
    return getattr(transformers, f"{family}Model")(config), 2


TRANSFORMERS = {
    "Bert": {"Attention": 2, "LayerNormalization": 5, "Gelu": 2},
    "GPT2": {"Attention": 2, "LayerNormalization": 5, "Gelu": 2},
    "Llama": {"Attention": 2, "RMSNormalization": 5, "RotaryEmbedding": 4, "Swish": 2},
    "Qwen3": {"Attention": 2, "RMSNormalization": 9, "RotaryEmbedding": 4, "Swish": 2},
}


@pytest.mark.parametrize("family", TRANSFORMERS)
def test_models_of_transformers(tmp_path, family):
    transformers = pytest.importorskip("transformers", reason="needs transformers' models")
    torch.manual_seed(6)
    model, heads = tiny(transformers, family)
    past = 5 if heads else 0
    feeds = {"ids": torch.randint(0, 50, (2, 6)), "mask": torch.ones(2, 6 + past, dtype=torch.int64)}
    feeds["mask"][1, 1:3] = 0
    feeds |= {f"past{index}": torch.randn(2, heads, past, SIZE) for index in range(4 if heads else 0)}
    axes = {name: {0: "batch", 2: "past"} if name.startswith("past") else {0: "batch", 1: name} for name in feeds}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Calling(model.eval(), transformers.DynamicCache), tuple(feeds.values()), str(tmp_path / "m.onnx"),
            dynamo=False, opset_version=17, input_names=list(feeds), dynamic_axes=axes,
        )  # fmt: skip
    graph = rewritten(onnx.load(tmp_path / "m.onnx"), {name: array.numpy() for name, array in feeds.items()}, tmp_path)
    names = [node.op.name for node in graph.nodes]
    assert {operator: names.count(operator) for operator in TRANSFORMERS[family]} == TRANSFORMERS[family]
    assert not (INSIDE - {"Slice", "Neg"}) & set(names)


def test_a_block_with_convolutions(tmp_path):
    torch.manual_seed(4)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.GroupNorm(2, 8),
        torch.nn.Hardswish(),
        torch.nn.Conv2d(8, 8, 1),
        torch.nn.BatchNorm2d(8),
        torch.nn.Mish(),
        torch.nn.ZeroPad2d(1),
        torch.nn.Conv2d(8, 4, 3),
    ).eval()
    x = torch.randn(2, 3, 9, 8)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (x,), str(tmp_path / "m.onnx"), dynamo=False, opset_version=17, input_names=["x"])
    graph = rewritten(onnx.load(tmp_path / "m.onnx"), {"x": x.numpy()}, tmp_path)
    assert [node.op.name for node in graph.nodes] == ["Conv", "GroupNormalization", "HardSwish", "Conv", "Mish", "Conv"]
    assert np.all([node.op.domain == "" for node in graph.nodes])
