"""Attention and transformer layers against torch: masks, widths, weights, gradients."""

import candle_convert as cc
import numpy as np
import pytest
import torch

RNG = np.random.default_rng(2)
LENGTH, BATCH, WIDTH, HEADS = 5, 3, 8, 2


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def flat(found):
    return [each for each in (found if isinstance(found, tuple) else (found,)) if each is not None]


def run(m, layer, arrays, options):
    inputs = [m.tensor(each, requires_grad=True) for each in arrays]
    given = {key: m.tensor(each) if isinstance(each, np.ndarray) else each for key, each in options.items()}
    results = flat(layer(*inputs, **given))
    sum((each * each).sum() for each in results).backward()
    grads = [each.grad for each in (*inputs, *layer.parameters())]
    return [each.detach().numpy() for each in results], [None if each is None else each.numpy() for each in grads]


def compare(name, arguments, settings, arrays, options):
    layers = []
    for m in (cc, torch):
        m.manual_seed(1)
        layers.append(getattr(m.nn, name)(*arguments, **settings))
    ours, theirs = layers
    for (key, one), (other_key, other) in zip(ours.state_dict().items(), theirs.state_dict().items(), strict=True):
        assert key == other_key
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6, atol=1e-6, err_msg=key)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ours.load_state_dict(theirs.state_dict())
    for mode in (True, False):
        expected = run(torch, theirs.train(mode), arrays, options)
        found = run(cc, ours.train(mode), arrays, options)
        for part, other in zip(found, expected, strict=True):
            for one, two in zip(part, other, strict=True):
                assert (one is None) == (two is None)
                if one is not None:
                    np.testing.assert_allclose(one, two, rtol=1e-4, atol=3e-5)


X = normal(LENGTH, BATCH, WIDTH)
Y, Z = normal(7, BATCH, WIDTH), normal(7, BATCH, WIDTH)
CAUSAL = np.triu(np.ones((LENGTH, LENGTH), bool), 1)
PADDING = np.arange(7) >= np.array([[7], [4], [6]])


@pytest.mark.parametrize(
    ("settings", "arrays", "options"),
    [
        ({}, (X, X, X), {"attn_mask": CAUSAL}),
        ({}, (X, Y, Z), {"key_padding_mask": PADDING}),
        ({"batch_first": True}, (normal(BATCH, 5, WIDTH), normal(BATCH, 7, WIDTH), normal(BATCH, 7, WIDTH)), {}),
        ({"kdim": 6, "vdim": 4}, (X, normal(7, BATCH, 6), normal(7, BATCH, 4)), {"average_attn_weights": False}),
        ({"bias": False}, (normal(5, WIDTH), normal(7, WIDTH), normal(7, WIDTH)), {}),
        (
            {"add_bias_kv": True, "add_zero_attn": True},
            (X, Y, Z),
            {"key_padding_mask": PADDING, "attn_mask": np.tile(CAUSAL[:, :1], (1, 7))},
        ),
        ({}, (X, Y, Z), {"attn_mask": normal(BATCH * HEADS, LENGTH, 7), "need_weights": False}),
    ],
)
def test_multihead_attention(settings, arrays, options):
    compare("MultiheadAttention", (WIDTH, HEADS), settings, arrays, options)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_transformer_layers(norm_first, batch_first):
    settings = {
        "dim_feedforward": 12, "dropout": 0.0, "activation": "gelu", "norm_first": norm_first,
        "batch_first": batch_first,
    }  # fmt: skip
    x, y = (each.transpose(1, 0, 2) if batch_first else each for each in (X, Y))
    compare("TransformerEncoderLayer", (WIDTH, HEADS), settings, (x,), {"src_mask": CAUSAL})
    compare(
        "TransformerDecoderLayer",
        (WIDTH, HEADS),
        settings,
        (x, y),
        {"tgt_mask": CAUSAL, "memory_key_padding_mask": PADDING},
    )


def test_transformer():
    arguments = (WIDTH, HEADS, 2, 1, 12, 0.0)
    compare("Transformer", arguments, {}, (Y, X), {"tgt_mask": np.where(CAUSAL, -np.inf, 0).astype(np.float32)})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"attn_mask": np.tri(5, 7, 3, dtype=bool)},
        {"attn_mask": normal(2, 1, 5, 7), "scale": 0.2},
        {"enable_gqa": True},
    ],
)
def test_scaled_dot_product_attention(options):
    shared = 2 if options.get("enable_gqa") else 4
    arrays = [normal(2, 4, 5, 6), normal(2, shared, 7, 6), normal(2, shared, 7, 3)]
    found = []
    for m in (cc, torch):
        inputs = [m.tensor(each, requires_grad=True) for each in arrays]
        given = {key: m.tensor(each) if isinstance(each, np.ndarray) else each for key, each in options.items()}
        result = m.nn.functional.scaled_dot_product_attention(*inputs, **given)
        result.square().sum().backward()
        found.append([result.detach().numpy(), *[each.grad.numpy() for each in inputs]])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)
