"""Configurations that no model has: one clear error, in no time."""

import json

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.load.bind import bind_model, build_graph
from candle_convert.runtime.contract.weight_binding import list_names
from candle_convert.runtime.tensor.storage import Derived
from candle_convert.tests.oracles.cpu_time import within
from candle_convert.tests.oracles.transformers import cases, made

CASES = {
    "too many layers": ({"num_hidden_layers": 10**9}, "E-ARCH-KEY"),
    "less than no layers": ({"num_hidden_layers": -1}, "E-ARCH-KEY"),
    "heads of no width": ({"head_dim": 0, "num_heads": None}, "E-ARCH-KEY"),
    "no groups": ({"n_groups": 0}, "E-ARCH-KEY"),
    "groups of another number": ({"n_groups": 7}, "E-ARCH-KEY"),
    "an unknown activation": ({"hidden_act": "softplussed"}, "E-ARCH-KEY"),
    "limits of one number": ({"time_step_limit": [1.0]}, "E-ARCH-KEY"),
    "more layers than there are": ({"num_hidden_layers": 3}, "E-ARCH-MISSING"),
    "fewer layers than there are": ({"num_hidden_layers": 1}, "E-ARCH-EXTRA"),
    "a state of another width": ({"state_size": 9}, "E-ARCH-SHAPE"),
}


LLAMA = {
    "no heads": ({"num_attention_heads": 0}, "E-ARCH-KEY", "num_attention_heads"),
    "less than no heads": ({"num_attention_heads": -4}, "E-ARCH-KEY", "num_attention_heads"),
    "no heads of keys": ({"num_key_value_heads": 0}, "E-ARCH-KEY", "num_key_value_heads"),
    "heads of keys that heads cannot share": ({"num_key_value_heads": 3}, "E-ARCH-KEY", "num_key_value_heads"),
    "no width": ({"hidden_size": 0}, "E-ARCH-KEY", "hidden_size"),
    "heads of no width": ({"head_dim": 0}, "E-ARCH-KEY", "head_dim"),
    "a base of 0": ({"rope_theta": 0}, "E-ARCH-KEY", "rope_theta"),
    "a base below 0": ({"rope_theta": -5.0}, "E-ARCH-KEY", "rope_theta"),
    "a base that is no number": ({"rope_theta": float("nan")}, "E-ARCH-KEY", "rope_theta"),
    "a base without end": ({"rope_theta": float("inf")}, "E-ARCH-KEY", "rope_theta"),
    "an epsilon that is no number": ({"rms_norm_eps": float("nan")}, "E-ARCH-KEY", "rms_norm_eps"),
    "an unknown scaling": ({"rope_scaling": {"type": "wider"}}, "E-ARCH-KEY", "wider"),
    "a scaling by 0": ({"rope_scaling": {"type": "linear", "factor": 0}}, "E-ARCH-KEY", "factor"),
    "a scaling without its factor": ({"rope_scaling": {"type": "yarn"}}, "E-ARCH-KEY", "factor"),
    "a scaling by a text": ({"rope_scaling": {"type": "linear", "factor": "x"}}, "E-ARCH-KEY", "factor"),
    "a scaling without its lengths": (
        {"rope_scaling": {"rope_type": "llama3", "factor": 8}},
        "E-ARCH-KEY",
        "low_freq_factor",
    ),
    "factors of 0": (
        {"rope_scaling": {"type": "longrope", "short_factor": [1, 0], "long_factor": [1, 1]}},
        "E-ARCH-KEY",
        "short_factor",
    ),
    "another vocabulary": (
        {"vocab_size": 95},
        "E-ARCH-SHAPE",
        r"model\.embed_tokens\.weight is \[96, 64\], not \[95, 64\]",
    ),
    "all shapes": (
        {"intermediate_size": 95},
        "E-ARCH-SHAPE",
        r"9 weights.*layers\.\{0-2\}\.mlp\.gate_proj\.weight is \[96, 64\].*up_proj.*down_proj",
    ),
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mamba2")
    config = {
        "num_hidden_layers": 2,
        "state_size": 8,
        "num_heads": 8,
        "head_dim": 16,
        "n_groups": 2,
        "expand": 2,
        "tie_word_embeddings": False,
    }
    made(cases("Mamba2ForCausalLM", "mamba2", mamba2=config)[0], 0, folder)
    return folder, json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("what", CASES)
def test_refused(what, checkpoint):
    (folder, config), (changes, code) = checkpoint, CASES[what]
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(cc.FormatError) as caught:
        bind_model(cc.open(folder))
    assert caught.value.code == code


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    made(cases("LlamaForCausalLM", "llama", llama={"tie_word_embeddings": False})[0], 0, folder)
    return folder, json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("what", LLAMA)
def test_refused_with_the_parameter(what, llama):
    (folder, config), (changes, code, named) = llama, LLAMA[what]
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(cc.FormatError, match=named) as caught:
        bind_model(cc.open(folder))
    assert caught.value.code == code


def test_missing_and_extra_weights_are_all_listed(llama):
    folder, config = llama
    (folder / "config.json").write_text(json.dumps(config))
    graph = cc.open(folder)
    for i in range(3):
        del graph.weights[f"model.layers.{i}.self_attn.q_proj.weight"]
        graph.weights[f"model.layers.{i}.self_attn.p_proj.weight"] = graph["model.norm.weight"]
    del graph.weights["model.norm.weight"]
    graph.weights["x"] = graph["lm_head.weight"]
    with pytest.raises(cc.FormatError) as caught:
        bind_model(graph)
    assert caught.value.code == "E-ARCH-MISSING"
    for name in (
        "model.layers.{0-2}.self_attn.q_proj.weight",
        "model.norm.weight",
        "model.layers.{0-2}.self_attn.p_proj.weight",
        "x",
    ):
        assert name in caught.value.why
    assert "missing 4 weights of a llama model" in caught.value.why
    assert "4 weights not of a llama model" in caught.value.why


LISTS = {
    ("a.0.b", "a.1.b", "a.2.b", "a.7.b", "c"): "a.{0-2,7}.b, c",
    ("a.0.e.0", "a.0.e.1", "a.1.e.0"): "a.0.e.0, a.0.e.1, a.1.e.0",
    (
        "a.3.w is [2], not [3]",
        "a.4.w is [2], not [3]",
        "a.5.w is [9], not [3]",
    ): "a.{3-4}.w is [2], not [3], a.5.w is [9], not [3]",
    (): "",
}


@pytest.mark.parametrize("names", LISTS)
def test_lists_of_names(names):
    assert list_names(names) == LISTS[names]


def test_an_unknown_architecture_is_told_before_any_weight_is_read(llama):
    def read(start, stop):
        raise AssertionError("a weight was read")

    folder, config = llama
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "qwen33"}))
    graph = cc.open(folder)
    graph.weights = {
        name: cc.StoredTensor(each.dtype, each.shape, Derived(each.nbytes, 1, read))
        for name, each in graph.weights.items()
    }
    with pytest.raises(cc.UnsupportedError) as caught:
        bind_model(graph)
    assert caught.value.code == "E-ARCH"
    assert "qwen3" in caught.value.hint


def test_factors_of_a_gguf_file_that_are_no_numbers(llama, tmp_path):
    folder, config = llama
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    (folder / "config.json").write_text(json.dumps(config | {"rope_scaling": scaling}))
    cc.convert(folder, tmp_path / "m.gguf")
    graph = cc.open(tmp_path / "m.gguf")
    for bad in (0.0, np.nan):
        factors = graph["rope_freqs.weight"].numpy().copy()
        factors[1] = bad
        graph.weights["rope_freqs.weight"] = cc.StoredTensor.of(factors)
        with pytest.raises(cc.FormatError) as caught:
            bind_model(graph)
        assert caught.value.code == "E-ARCH-ROPE"
        graph = cc.open(tmp_path / "m.gguf")


MISTRAL = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
WRONG_TYPES = {
    "a factor that is true": (
        {"rope_scaling": {"type": "linear", "factor": True}},
        r"rope_scaling\.factor.*true is not a number",
    ),
    "a scaling that is a list": ({"rope_scaling": [1]}, "a list of 1 is not an object"),
    "a type that is a number": ({"rope_scaling": {"type": 3, "factor": 1.0}}, "scaling type 3"),
    "factors of another length": (
        {"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0, 1.0]}},
        "as long as",
    ),
    "heads that are a text": ({"num_attention_heads": "4"}, 'num_attention_heads.*"4" is not an integer'),
    "heads in no even share": (
        {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": None},
        "not divisible by 6 heads",
    ),
    "65,535 layers": ({"num_hidden_layers": 65535}, "num_hidden_layers.*65,535 is more than 1,024"),
    "an epsilon past f32": ({"rms_norm_eps": 1e308}, "rms_norm_eps.*more than"),
    "architectures that are a number": ({"architectures": 7}, "architectures"),
    "a window of half a token": ({**MISTRAL, "sliding_window": 0.5}, "sliding_window"),
    "layers of no kind": ({**MISTRAL, "sliding_window": 8, "layer_types": ["full_attention"]}, "layer_types"),
}


@pytest.mark.parametrize("what", WRONG_TYPES)
def test_types_are_told(what, llama):
    (folder, config), (changes, named) = llama, WRONG_TYPES[what]
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(cc.FormatError, match=named) as caught:
        build_graph(bind_model(cc.open(folder)))
    assert caught.value.code == "E-ARCH-KEY"
    assert caught.value.exit_code == 3


def test_layers_are_counted_before_they_are_gone_through(llama):
    folder, config = llama
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1000}))
    with pytest.raises(cc.FormatError, match="says 1,000 layers, the file has weights of 3"):
        within(0.5, lambda: bind_model(cc.open(folder)))
