"""RWKV 5, 6 and 7 against the published recurrence in NumPy, from every kind of names that their weights are published
under."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.load.bind import Model, bind_model, build_graph
from candle_convert.convert.load.load_model import load
from candle_convert.models.generation.language_model import LanguageModel
from candle_convert.runtime.contract.architecture import GGUF, HF
from candle_convert.runtime.contract.weight_binding import bind, config_from, config_keys, find_architecture, unbind
from candle_convert.tests.builders.rwkv_checkpoints import (
    HEADS,
    LAYERS,
    LONG,
    SIZE,
    VOCABULARY,
    WIDTH,
    weights_of,
    write,
)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def normed(x, w, name, eps=1e-5):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * w[f"{name}.weight"] + w[
        f"{name}.bias"
    ]


def heads_normed(x, w, name):
    x = x.reshape(-1, HEADS, SIZE)
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 64e-5)
    return x.reshape(-1, WIDTH) * w[f"{name}.weight"] + w[f"{name}.bias"]


def difference(x):
    return np.concatenate([np.zeros((1, WIDTH)), x[:-1]]) - x


def attention_5_6(x, w, att, version):
    sx = difference(x)
    if version == 5:
        parts = {letter: x + sx * (1 - w[f"{att}time_mix_{letter}"][0]) for letter in "kvrg"}
        decay = np.broadcast_to(np.exp(-np.exp(w[f"{att}time_decay"])), (len(x), HEADS, SIZE))
    else:
        low = np.tanh((x + sx * w[f"{att}time_maa_x"][0]) @ w[f"{att}time_maa_w1"]).reshape(len(x), 5, 4)
        parts = {
            letter: x + sx * (w[f"{att}time_maa_{letter}"][0] + low[:, i] @ w[f"{att}time_maa_w2"][i])
            for i, letter in enumerate("wkvrg")
        }
        made = w[f"{att}time_decay"][0] + np.tanh(parts["w"] @ w[f"{att}time_decay_w1"]) @ w[f"{att}time_decay_w2"]
        decay = np.exp(-np.exp(made)).reshape(-1, HEADS, SIZE)
    k, v, r = ((parts[letter] @ w[f"{att}{LONG[letter]}.weight"].T).reshape(-1, HEADS, SIZE) for letter in "kvr")
    gate = parts["g"] @ w[f"{att}gate.weight"].T
    state, rows = np.zeros((HEADS, SIZE, SIZE)), []
    for t in range(len(x)):
        added = k[t][:, :, None] * v[t][:, None]
        rows.append(np.einsum("hk,hkv->hv", r[t], w[f"{att}time_faaaa"][:, :, None] * added + state))
        state = added + decay[t][:, :, None] * state
    return heads_normed(np.stack(rows), w, f"{att}ln_x") * gate * sigmoid(gate) @ w[f"{att}output.weight"].T


def attention_7(x, w, att, first):
    sx = difference(x)
    xr, xw, xk, xv, xa, xg = (x + sx * w[f"{att}x_{letter}"][0] for letter in "rwkvag")
    r, k, v = xr @ w[f"{att}receptance.weight"].T, xk @ w[f"{att}key.weight"].T, xv @ w[f"{att}value.weight"].T
    decay = np.exp(-0.606531 * sigmoid(w[f"{att}w0"][0] + np.tanh(xw @ w[f"{att}w1"]) @ w[f"{att}w2"])).reshape(
        -1, HEADS, SIZE
    )
    a = sigmoid(w[f"{att}a0"][0] + xa @ w[f"{att}a1"] @ w[f"{att}a2"])
    gate = sigmoid(xg @ w[f"{att}g1"]) @ w[f"{att}g2"]
    kk = (k * w[f"{att}k_k"][0]).reshape(-1, HEADS, SIZE)
    kk = kk / np.maximum(np.sqrt((kk**2).sum(-1, keepdims=True)), 1e-12)
    k = k * (1 + (a - 1) * w[f"{att}k_a"][0])
    first = v if first is None else first
    if first is not v:
        v = v + (first - v) * sigmoid(w[f"{att}v0"][0] + xv @ w[f"{att}v1"] @ w[f"{att}v2"])
    r3, k3, v3, a3 = (each.reshape(-1, HEADS, SIZE) for each in (r, k, v, a))
    state, rows = np.zeros((HEADS, SIZE, SIZE)), []
    for t in range(len(x)):
        taken = np.einsum("hvk,hk->hv", state, -kk[t])
        state = (
            state * decay[t][:, None]
            + taken[:, :, None] * (kk[t] * a3[t])[:, None]
            + v3[t][:, :, None] * k3[t][:, None]
        )
        rows.append(np.einsum("hvk,hk->hv", state, r3[t]))
    y = heads_normed(np.stack(rows), w, f"{att}ln_x") + (
        (r3 * k3 * w[f"{att}r_k"]).sum(-1, keepdims=True) * v3
    ).reshape(-1, WIDTH)
    return y * gate @ w[f"{att}output.weight"].T, first


def published(version, w, ids):
    """Logits [length, vocabulary] in f64."""
    w = {name: array.astype(np.float64) for name, array in w.items()}
    x, first = normed(w["emb.weight"][ids], w, "blocks.0.ln0"), None
    for i in range(LAYERS):
        att, ffn = f"blocks.{i}.att.", f"blocks.{i}.ffn."
        y = normed(x, w, f"blocks.{i}.ln1")
        if version == 7:
            y, first = attention_7(y, w, att, first)
        else:
            y = attention_5_6(y, w, att, version)
        x = x + y
        y = normed(x, w, f"blocks.{i}.ln2")
        mix = {
            letter: w[f"{ffn}{ {5: 'time_mix_', 6: 'time_maa_', 7: 'x_'}[version] }{letter}"][0]
            for letter in ("k" if version == 7 else "kr")
        }
        mix = {letter: y + difference(y) * (1 - part if version == 5 else part) for letter, part in mix.items()}
        out = np.maximum(mix["k"] @ w[f"{ffn}key.weight"].T, 0) ** 2 @ w[f"{ffn}value.weight"].T
        x = x + (out if version == 7 else sigmoid(mix["r"] @ w[f"{ffn}receptance.weight"].T) * out)
    return normed(x, w, "ln_out") @ w["head.weight"].T


CASES = [(5, "author"), (5, "hf"), (6, "author"), (6, "hf"), (6, "candle"), (7, "author"), (7, "fla")]


@pytest.mark.parametrize(("version", "style"), CASES)
def test_as_published(version, style, tmp_path):
    w, rng = weights_of(version, version), np.random.default_rng(0)
    model = load(write(tmp_path, version, w, style), threads=1)
    ids = rng.integers(0, VOCABULARY, (2, 11))
    want = np.stack([published(version, w, row) for row in ids])
    scale = np.abs(want).max()
    assert np.abs(model.logits(ids) - want).max() <= 2e-5 * scale
    mask = np.arange(11) >= np.array([[0], [4]])
    first, cache = model.step(ids[:, :6], mask=mask[:, :6])
    steps = [first]
    for at in range(6, 11):
        step, cache = model.step(ids[:, at : at + 1], cache, mask[:, at : at + 1])
        steps.append(step)
    got = np.concatenate(steps, axis=1)
    assert np.abs(got[0] - want[0]).max() <= 2e-5 * scale
    assert np.abs(got[1, 4:] - published(version, w, ids[1, 4:])).max() <= 2e-5 * scale


@pytest.mark.parametrize("version", [6, 7])
def test_in_the_names_of_gguf(version, tmp_path):
    w = weights_of(version, 1)
    model = bind_model(cc.open(write(tmp_path, version, w, "author")))
    said = config_keys(model.architecture, GGUF, model.config) | {"general.architecture": f"rwkv{version}"}
    weights = unbind(model.architecture, model.config, model.weights, GGUF)
    assert find_architecture(GGUF, said) is model.architecture
    config = config_from(model.architecture, GGUF, said)
    there = Model(model.architecture, GGUF, config, bind(model.architecture, config, weights, GGUF), model.source)
    ids = np.arange(9)
    want = published(version, w, ids)
    assert np.abs(LanguageModel(build_graph(there), 1).logits(ids)[0] - want).max() <= 2e-5 * np.abs(want).max()


def test_layers_of_gguf_are_halved_and_hugging_faces_are_whole(tmp_path):
    """llama.cpp's files have weights that are divided by powers of two, and halve what they add to."""
    w = weights_of(6, 1)
    folder = write(tmp_path, 6, w, "hf")
    (folder / "config.json").write_text(
        (folder / "config.json").read_text().replace('"rescale_every": 6', '"rescale_every": 1')
    )
    model = bind_model(cc.open(folder))
    assert config_keys(model.architecture, GGUF, model.config)["rwkv6.rescale_every_n_layers"] == 1
    weights = unbind(model.architecture, model.config, model.weights, GGUF)
    for ours, theirs in (
        ("att.output", "time_mix_output"),
        ("ffn.value", "channel_mix_value"),
        ("att.value", "time_mix_value"),
    ):
        for i in range(LAYERS):
            divisor = 2**i if ours != "att.value" else 1
            assert np.array_equal(weights[f"blk.{i}.{theirs}.weight"].numpy() * divisor, w[f"blocks.{i}.{ours}.weight"])
    ids = np.arange(9)
    want = published(6, w, ids)
    assert np.abs(LanguageModel(build_graph(model), 1).logits(ids)[0] - want).max() <= 1e-4 * np.abs(want).max()
    back = unbind(model.architecture, model.config, model.weights, HF)
    given = cc.open(folder)
    assert all(bytes(tensor.raw()) == bytes(given[name].raw()) for name, tensor in back.items())
    assert config_keys(model.architecture, HF, model.config)["rescale_every"] == 1
