"""Keys that a config.json leaves out have the defaults of transformers' classes, in every architecture that it has."""

import contextlib
import json
import warnings

import pytest
from candle_convert.runtime.base.errors import FormatError, UnsupportedError
from candle_convert.runtime.contract.architecture import HF, TEXT_GENERATION
from candle_convert.runtime.contract.weight_binding import architectures, config_from, config_keys, find_architecture
from candle_convert.tests.oracles.transformers import transformers

KINDS = sorted({kind for architecture in architectures() for kind in architecture.model_types})
WITHOUT_CLASS = {
    "FluxTransformer2DModel", "RefinedWeb", "RefinedWebModel", "SD3Transformer2DModel", "ZImageTransformer2DModel",
    "bidir_mistral", "chatglm", "crepe", "davit",
    "kimi_k2", "metavoice_first_stage", "metavoice_second_stage", "mixformer-sequential", "moondream1",
    "moondream_vision", "parler_tts", "phi-msft", "rwkv5", "rwkv6", "rwkv7", "silero_vad", "snac",
    "speaker_encoder",
}  # fmt: skip
"""Model types of other libraries and of ours."""
COMPOSED = {"vision-encoder-decoder"}
"""Model types whose parts have no default classes."""
FROM_WEIGHTS = {
    "label_names": "the head's rows are the classes; LABEL_0 and so on without names",
    "text.label_names": "as above",
    "normed": "Falcon-H1's norms are there if the weights are, which transformers would leave out with a warning",
}
"""Parameters that stay open until the weights are read, by the architecture's name."""
DIFFERENT = {
    ("depth_anything", "backbone_config"): "the hub's files state it; heads have 64 elements otherwise, as published",
    ("depth_anything", "backbone_config", "num_attention_heads"): "as above",
    ("swin", "num_heads"): "tables of relative positions show them",
    ("deepseek_v3", "num_key_value_heads"): "neither library uses it: latent attention has one cached vector",
}
"""Keys that files always state, by model type."""
SMALLER = {"num_attention_heads": 8, "hidden_size": 512, "num_key_value_heads": 8}
"""A second configuration, of which defaults that are computed differ from those that are constants."""


STATED = {"glm4_moe": {"head_dim": 128}}
"""Keys without which a class's own defaults do not fit together."""


def read(config):
    """Our parameters of a config.json, without those that name the source."""
    values = config_from(find_architecture(HF, config), HF, config).values
    return {name: value for name, value in values.items() if name not in ("path", "parts")}


def configurations(kind):
    """Full configurations of a model type, as transformers writes them."""
    cls = transformers().CONFIG_MAPPING[kind]
    full = plain(cls(**STATED.get(kind, {})), kind)
    yield cls, full
    if SMALLER.keys() <= full.keys():
        yield cls, {**full, **SMALLER}


def plain(config, kind):
    return {**json.loads(json.dumps(config.to_dict(), default=str)), "model_type": kind}


def keys(config):
    """Keys of a config.json and of objects in it, other than those of RoPE, which go together."""
    for key, value in config.items():
        yield (key,)
        if isinstance(value, dict) and key.endswith(("_config", "_encoder", "decoder")):
            yield from ((key, inner) for inner in value)


def without(config, path):
    copy = json.loads(json.dumps(config))
    section = copy
    for step in path[:-1]:
        section = section[step]
    del section[path[-1]]
    return copy


YARN = {"beta_fast": 32.0, "beta_slow": 1.0}
"""What YaRN computes with if a file has no such keys, in both libraries; the length is stated elsewhere too."""


def same(ours, theirs, name):
    """Whether a parameter has transformers' value, or is open until the weights are read: none but sizes are."""
    if ours is None and "heads" not in name:
        return True
    if isinstance(ours, dict) and isinstance(theirs, dict):
        ours, theirs = (
            {key: inner for key, inner in {**YARN, **value}.items() if key != "max_position_embeddings"}
            for value in (ours, theirs)
        )
    return repr(ours) == repr(theirs) or ours == theirs


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_are_those_of_transformers(kind):
    if kind in WITHOUT_CLASS | COMPOSED:
        assert (kind in COMPOSED) == (kind in transformers().CONFIG_MAPPING)
        return
    wrong = {}
    for cls, full in configurations(kind):
        assert read(full), "every default of transformers is a valid value"
        for path in keys(full):
            if path[-1] in ("model_type", "architectures", "id2label", "label2id") or (kind, *path) in DIFFERENT:
                continue
            stated = without(full, path)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    theirs = plain(cls.from_dict(json.loads(json.dumps(stated))), kind)
            except Exception:  # transformers refuses it too
                continue
            with contextlib.suppress(FormatError, UnsupportedError):  # said, not guessed
                ours = read(stated)
                want = read(theirs)
                wrong |= {
                    (".".join(path), name): (ours.get(name), value)
                    for name, value in want.items()
                    if not same(ours.get(name), value, name) and name not in FROM_WEIGHTS
                }
    assert not wrong


LEFT_OUT = [(a, kind, key) for a in architectures() for kind, values in a.defaults.items() for key in values]


@pytest.mark.parametrize(("architecture", "kind", "key"), LEFT_OUT, ids=lambda value: getattr(value, "name", value))
def test_null_is_kept(architecture, kind, key):
    """A key that is null does not come back with the default after config.json is written."""
    if kind not in transformers().CONFIG_MAPPING:
        pytest.skip("nested in another class")
    full = plain(transformers().CONFIG_MAPPING[kind](), kind)
    try:
        config = config_from(architecture, HF, {**full, key: None})
    except FormatError:
        return
    if architecture.model_types[0] == kind:
        written = {"model_type": kind, **config_keys(architecture, HF, config)}
        again, before = read(written), read({**full, key: None})
        assert not {name for name in before if not same(again[name], before[name], name) and name not in FROM_WEIGHTS}


def may_be_tied(architecture):
    """Whether an architecture generates text, or has a head that may be its embedding."""
    rows = (*architecture.weights, *(row for task in architecture.tasks for row in task.weights))
    heads = any(row.optional and f".{row.name}".endswith(".head.weight") for row in rows)
    return heads or any(task.name == TEXT_GENERATION for task in architecture.tasks)


DECODERS = [
    (architecture, kind)
    for architecture in architectures()
    if may_be_tied(architecture)
    for kind in architecture.model_types
    if kind not in (*WITHOUT_CLASS, "chinese_clip_text_model")  # which has no head
]


@pytest.mark.parametrize(("architecture", "kind"), DECODERS, ids=lambda value: getattr(value, "name", value))
def test_models_are_tied_by_default_as_in_transformers(architecture, kind):
    stated = getattr(transformers().CONFIG_MAPPING[kind](), "tie_word_embeddings", False)
    assert architecture.tied == (stated is True)
