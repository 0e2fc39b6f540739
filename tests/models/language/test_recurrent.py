"""Families whose layers carry states: against transformers padded, step by step, through the other names and back."""

import json

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.convert.load.bind import bind_model, build_graph
from candle_convert.models.generation.language_model import LanguageModel
from candle_convert.runtime.contract.architecture import GGUF, HF, OWN_HEAD
from candle_convert.runtime.contract.weight_binding import unbind
from candle_convert.runtime.plan.plan import PythonStep
from candle_convert.tests.builders.decoder_cases import DECODERS, WITHOUT_GGUF
from candle_convert.tests.builders.recurrent_cases import BEYOND_GGUF, RECURRENT
from candle_convert.tests.oracles.transformers import converted, expected, made, texts


def close(got, want, tolerance):
    return np.abs(got - want).max() <= tolerance * np.abs(want).max()


@pytest.mark.parametrize("case", RECURRENT, ids=lambda case: case.name)
def test_as_transformers(case, tmp_path):
    reference = made(case, 0, tmp_path)
    model = models.load(tmp_path, threads=1)
    for variant, (ids, mask) in texts(case, 0, reference).items():
        got = model.logits(ids, mask)
        assert close(got if mask is None else got * mask[..., None], expected(reference, ids, mask), case.tolerance), (
            variant
        )


@pytest.mark.parametrize("case", RECURRENT, ids=lambda case: case.name)
def test_token_by_token_in_a_padded_batch(case, tmp_path):
    reference = made(case, 1, tmp_path)
    ids = np.random.default_rng(1).integers(3, reference.config.vocab_size, (3, 13))
    mask = np.arange(13) >= np.array([[0], [3], [6]])
    model = models.load(tmp_path, threads=1)
    whole = model.logits(ids, mask)
    first, cache = model.step(ids[:, :7], mask=mask[:, :7])
    steps = [first]
    for at in range(7, ids.shape[1]):
        step, cache = model.step(ids[:, at : at + 1], cache, mask[:, at : at + 1])
        steps.append(step)
    assert close(np.concatenate(steps, axis=1) * mask[..., None], whole * mask[..., None], case.tolerance)
    # at padding, a bias reaches the convolutions
    biased = any(getattr(reference.config, key, False) for key in ("use_bias", "conv_bias"))
    for row, first in enumerate(() if biased else (0, 3, 6)):
        assert close(whole[row, first:], model.logits(ids[row : row + 1, first:])[0], case.tolerance), "padding shows"


@pytest.mark.parametrize("case", RECURRENT, ids=lambda case: case.name)
def test_plans_are_whole(case, tmp_path):
    made(case, 0, tmp_path)
    model = models.load(tmp_path)
    cache = model.start(1)
    for tokens in ([5, 6, 7], [8]):
        model.advance(tokens, cache)
    plans = model.session("last_logits").program.plans
    assert len(plans) == 2
    assert [plan.rest for plan in plans] == [None, None]
    assert not any(isinstance(step, PythonStep) for plan in plans for step in plan.steps)


@pytest.mark.parametrize(
    "case", [case for case in RECURRENT if case.name not in BEYOND_GGUF], ids=lambda case: case.name
)
def test_through_gguf_names_and_back(case, tmp_path):
    reference = made(case, 2, tmp_path)
    ids = texts(case, 2, reference)["single"][0]
    model = bind_model(cc.open(tmp_path))
    there = converted(model, GGUF)
    if case.name != "falcon_mamba":  # whose second epsilon GGUF files do not have
        assert close(LanguageModel(build_graph(there), 1).logits(ids), expected(reference, ids, None), case.tolerance)
    back = unbind(model.architecture, there.config, there.weights, HF)
    for name, tensor in unbind(model.architecture, there.config, model.weights, HF).items():
        assert back[name].shape == tensor.shape, name
        assert np.allclose(back[name].numpy(), tensor.numpy(), 1e-6, 1e-6), name
    again = converted(there, HF).config.values
    kept = again.keys() - {"names", OWN_HEAD}  # GGUF files without a head tie it
    assert {key: again[key] for key in kept} == {key: there.config.values[key] for key in kept}


def test_first_published_configuration_of_mamba(tmp_path):
    reference = made(RECURRENT[0], 0, tmp_path)
    ids = texts(RECURRENT[0], 0, reference)["single"][0]
    rank = reference.config.time_step_rank
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "d_model": 64,
                "n_layer": 2,
                "vocab_size": 93,
                "ssm_cfg": {"d_state": 8, "dt_rank": rank},
                "rms_norm": True,
                "pad_vocab_size_multiple": 8,
            }
        )
    )
    assert close(models.load(tmp_path, threads=1).logits(ids), expected(reference, ids, None), 3e-5)


EXPORTED = [
    "mamba2",
    "recurrent_gemma",
    "jamba",
    "granite_hybrid",
    "falcon_h1",
    "qwen3_next",
    "qwen3_5",
    "chunked",
    "gemma3n_ranks",
    "gemma4",
    "tempered",
]


@pytest.mark.parametrize("name", EXPORTED)
def test_in_onnxruntime_token_by_token(name, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    case = next(case for case in (*RECURRENT, *DECODERS, *WITHOUT_GGUF) if case.name == name)
    reference = made(case, 3, tmp_path)
    ids = texts(case, 3, reference)["single"][0]
    cc.convert(tmp_path, tmp_path / "out.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    inputs = {value.name: value.shape for value in session.get_inputs()}
    pasts = [name for name in inputs if name.startswith("past")]
    presents = [
        name.replace("past_key_values", "present") if "key_values" in name else name.replace("past", "present")
        for name in pasts
    ]
    states = {
        name: np.zeros(
            [length if isinstance(length, int) else 1 - bool(axis) for axis, length in enumerate(inputs[name])],
            np.float32,
        )
        for name in pasts
    }
    rows = []
    for at in range(ids.shape[1]):
        feeds = {
            "input_ids": ids[:, at : at + 1],
            "attention_mask": np.ones((1, at + 1), np.int64),
            "position_ids": np.array([[at]]),
            **states,
        }
        logits, *found = session.run(
            ["logits", *presents], {name: array for name, array in feeds.items() if name in inputs}
        )
        states = dict(zip(pasts, found, strict=True))
        rows.append(logits)
    assert close(np.concatenate(rows, axis=1), expected(reference, ids, None), 1e-4)


def test_heads_of_each_layer_are_int32_in_gguf(tmp_path):
    gguf = pytest.importorskip("gguf")
    made(next(case for case in RECURRENT if case.name == "lfm2"), 0, tmp_path)
    cc.convert(tmp_path, tmp_path / "out.gguf")
    field = gguf.GGUFReader(tmp_path / "out.gguf").fields["lfm2.attention.head_count_kv"]
    assert (field.contents(), field.types[1]) == ([0, 2, 0], gguf.GGUFValueType.INT32)


@pytest.mark.parametrize("limit", ["[0.0, Infinity]", '[0.0, {"__float__": "Infinity"}]'])
def test_infinity_in_a_configuration(limit, tmp_path):
    made(next(case for case in RECURRENT if case.name == "mamba2"), 0, tmp_path)
    text = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(text[:-1] + f', "time_step_limit": {limit}}}')
    assert bind_model(cc.open(tmp_path)).config.widths == [0.0, float("inf")]
    cc.convert(tmp_path, tmp_path / "out.gguf")
    assert "mamba2.ssm.group_count" in cc.open(tmp_path / "out.gguf").metadata
