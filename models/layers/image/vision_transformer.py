"""Vision transformer (ViT; Dosovitskiy et al. 2020, arXiv:2010.11929) under timm's names of weights: patches with
position embeddings, class and register tokens, pre-norm layers. Hyper-parameters are those of `schema/vit.py`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.ir.graph import Value
from ..linear import linear
from ..norm import layer_norm
from .image_net import ImageNet
from .patches import patch_embedding, positions
from .transformer import attention_pool, block

PREFIXES = ("cls_token", "dist_token", "reg_token")
"""Weights of tokens before the patches, in their order."""
CLS, LATENT, BOTH = "token", "map", "token_avg"
"""Poolings of tokens to one vector, other than their mean: the class token, attention, or the class token next to the
mean."""


def features(net: ImageNet) -> Value:
    """Normalized tokens [batch, prefixes + patches, width]."""
    x = embedded(net)
    if net.has("norm_pre.weight"):
        x = layer_norm(net, x, "norm_pre", net.config.eps)
    for i in range(net.config.layers):
        x = block(net, x, f"blocks.{i}", net.config.heads)
    return layer_norm(net, x, "norm", net.config.eps) if net.has("norm.weight") else x


def embedded(net: ImageNet, patches: Value | None = None) -> Value:
    """Tokens: class, distillation and register tokens, then the patches, with their positions; `patches` are those of
    the input, which is declared if None is given."""
    if patches is None:
        patches = patch_embedding(net, net.pixels("patch_embed.proj.weight"), "patch_embed.proj")
    x = net.flatten(patches)
    first = [net.vector(name) for name in PREFIXES if net.has(name)]
    if net.has("pos_embed"):
        rows, columns = net.config.grid
        placed = net.tensor("pos_embed").shape[1] - rows * columns
        table = net.vector("pos_embed")
        own = net.split(table, [placed, rows * columns], axis=1) if placed else [table]
        x = net.Add(x, positions(net, own[-1], (rows, columns), patches, antialias=net.config.antialias))
        if placed:
            together = net.Concat(*first, axis=1) if len(first) > 1 else first[0]
            known = sum(net.tensor(name).shape[1] for name in PREFIXES if net.has(name))
            padded = own[0] if placed == known else net.Pad(own[0], [0, 0, 0, 0, known - placed, 0])
            first = [net.Add(together, padded)]
    return before(net, first, x)


def with_prefixes(net: ImageNet, x: Value) -> Value:
    """Class and register tokens, then the tokens `x`."""
    return before(net, [net.vector(name) for name in PREFIXES if net.has(name)], x)


def before(net: ImageNet, first: Sequence[Value], x: Value) -> Value:
    """Tokens [1, count, width] of every image, then the tokens `x` [batch, length, width]."""
    if not first:
        return x
    batch = net.Concat(net.Shape(x, start=0, end=1), [1, 1], axis=0)
    tokens: Value = net.Concat(*(net.Expand(token, batch) for token in first), x, axis=1)
    return tokens


def prefix_count(net: ImageNet) -> int:
    """Number of tokens before the patches."""
    return sum(net.tensor(name).shape[1] for name in PREFIXES if net.has(name))


def token(net: ImageNet, x: Value, index: int = 0) -> Value:
    """One token of each image, [batch, width]."""
    value: Value = net.Gather(x, net.constant(np.array(index)), axis=1)
    return value


def _patches(net: ImageNet, x: Value) -> Value:
    """Tokens without those before the patches."""
    count = prefix_count(net)
    value: Value = net.Slice(x, [count], [np.iinfo(np.int64).max], [1]) if count else x
    return value


def pool(net: ImageNet, x: Value) -> Value:
    """One vector of the tokens, as the model's classifier takes it."""
    kind = net.config.pool
    if kind == LATENT:
        y = attention_pool(net, _patches(net, x), "attn_pool", net.config.heads)
    elif kind == CLS:
        y = token(net, x)
    else:
        y = net.ReduceMean(_patches(net, x), [1], keepdims=0)
        y = net.Concat(token(net, x), y, axis=-1) if kind == BOTH else y
    return layer_norm(net, y, "fc_norm", net.config.eps) if net.has("fc_norm.weight") else y


def pooler(net: ImageNet, x: Value) -> Value:
    """The output that transformers calls ``pooler_output``: a layer on the class token if the model has it, else that
    token."""
    if not net.has("pooler.dense.weight"):
        return token(net, x) if net.config.pool == BOTH else pool(net, x)
    y: Value = net.Tanh(linear(net, token(net, x), "pooler.dense"))
    return y


def logits(net: ImageNet, x: Value) -> Value:
    """Logits from the pooled vector."""
    return linear(net, x, "head")
