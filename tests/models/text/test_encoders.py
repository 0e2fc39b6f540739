"""Every text encoder with every head, against transformers, and its ONNX file in onnxruntime."""

import json

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
from candle_convert import models
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.encoder_cases import ENCODERS, inputs
from candle_convert.tests.oracles.transformers import difference, made


def expected(model, arrays):
    """The outputs of transformers by name."""
    import torch

    with torch.no_grad():
        found = model(**{name: torch.tensor(array) for name, array in arrays.items()})
    return {name: value.numpy() for name, value in found.items() if isinstance(value, torch.Tensor)}


def masked_difference(got, want, mask):
    """The largest difference at tokens, relative to the largest value there; pooled arrays have one row a text."""
    if mask is not None and want.shape[:2] == mask.shape:
        tokens = mask.reshape(*mask.shape, *[1] * (want.ndim - 2))
        got, want = got * tokens, want * tokens
    return difference(got, want)


SEEDED = [(case, seed) for number, case in enumerate(ENCODERS) for seed in ((0, 1), (1, 0))[number % 2]]
"""With choices of the configuration; both seeds by turns where one of two cases runs."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("case", "seed"), SEEDED, ids=[f"{case.name}-{seed}" for case, seed in SEEDED])
def test_as_transformers(case, seed, tmp_path):
    reference = made(case, seed, tmp_path)
    model = models.load(tmp_path, threads=1)
    for variant, arrays in inputs(case, seed).items():
        want, got = expected(reference, arrays), model(**arrays)
        assert set(got) == set(want)
        for name, array in want.items():
            assert masked_difference(got[name], array, arrays.get("attention_mask")) <= case.tolerance, (variant, name)


PADDED_ONLY = ("MPNetModel", "DebertaV2Model", "ModernBertModel", "JinaBertModel")
"""Encoders whose attention depends on distances."""


@pytest.mark.parametrize("case", [case for case in ENCODERS if case.name.endswith("Model")], ids=lambda case: case.name)
def test_packed_texts_as_transformers(case, tmp_path):
    """The mean of hidden states, of texts that transformers computes one by one."""
    reference = made(case, 0, tmp_path)
    model = models.load(tmp_path, threads=2, task="feature-extraction")
    assert model.packs == (not case.name.startswith(PADDED_ONLY))
    rng = np.random.default_rng(0)
    texts = [rng.integers(5, case.base["vocab_size"], count).tolist() for count in (7, 1, 20, 3, 12, 1)]
    found = model.embed(texts, 4, pooling="mean", normalize=False)
    for vector, ids in zip(found, texts, strict=True):
        states = expected(reference, {"input_ids": np.array([ids])})["last_hidden_state"]
        assert difference(vector, states.mean(1)[0]) <= case.tolerance


@pytest.mark.parametrize(
    ("case", "dtype", "tolerance"),
    [pytest.param(case, None, case.tolerance, id=case.name) for case in ENCODERS if not case.name.endswith("Answering")]
    + [pytest.param(case, "f16", 2e-2, id=f"{case.name}-f16") for case in ENCODERS if case.name.endswith("Model")],
)  # fmt: skip
def test_the_onnx_file_computes_the_same(case, dtype, tolerance, tmp_path):
    reference = made(case, 0, tmp_path / "checkpoint")
    cc.convert(tmp_path / "checkpoint", tmp_path / "onnx", to="onnx", dtype=dtype)
    session = onnxruntime.InferenceSession(str(tmp_path / "onnx/model.onnx"), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    arrays = inputs(case, 0)["padded"]
    feeds = {name: np.asarray(arrays[name], np.int64) for name in names}
    found = dict(zip([value.name for value in session.get_outputs()], session.run(None, feeds), strict=True))
    for name, array in expected(reference, arrays).items():
        assert masked_difference(found[name].astype(np.float32), array, arrays["attention_mask"]) <= tolerance, name


def test_a_checkpoint_from_tensorflow(tmp_path):
    """Norms named gamma and beta."""
    case = next(case for case in ENCODERS if case.name == "BertForMaskedLM")
    reference = made(case, 0, tmp_path)
    weights = dict(cc.open(tmp_path).weights)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor.numpy()
        for name, tensor in weights.items()
    }
    assert sum(name.endswith("gamma") for name in old) > 4
    cc.save_file(old, tmp_path / "model.safetensors")
    arrays = inputs(case, 0)["single"]
    got, want = models.load(tmp_path, threads=1)(**arrays)["logits"], expected(reference, arrays)["logits"]
    assert difference(got, want) <= case.tolerance


@pytest.mark.parametrize(
    ("arrays", "code"),
    [
        ({}, "E-RUN-INPUT"),
        ({"input_ids": [[5]], "pixels": [[1]]}, "E-RUN-INPUT"),
        ({"input_ids": [[5, 6]], "attention_mask": [[1]]}, "E-RUN-SHAPE"),
    ],
)
def test_wrong_inputs_are_refused(tmp_path, arrays, code):
    case = next(case for case in ENCODERS if case.name == "BertModel")
    made(case, 0, tmp_path)
    with pytest.raises(cc.UsageError, match=code):
        models.load(tmp_path, threads=1)(**arrays)


def test_a_task_without_weights_or_definition_is_refused(tmp_path):
    made(next(case for case in ENCODERS if case.name == "BertModel"), 0, tmp_path)
    with pytest.raises(cc.UsageError, match="E-ARCH-TASK"):
        models.load(tmp_path, task="fill-mask")
    config = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(
        config.replace('"bert"', '"jina_embeddings_v3"').replace("BertModel", "JinaEmbeddingsV3ForMaskedLM")
    )
    with pytest.raises(cc.Error, match="E-ARCH-TASK"):
        models.load(tmp_path)


@pytest.mark.parametrize(("key", "value"), [("activation_function", "gelu"), ("rotary_emb_fraction", 0.5)])
def test_other_layouts_of_nomic_bert_are_refused(tmp_path, key, value):
    made(next(case for case in ENCODERS if case.name == "nomic_bert"), 0, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, key: value}))
    with pytest.raises(cc.FormatError, match=key):
        models.load(tmp_path)


@pytest.mark.parametrize("words", [["generate", "-p", "hi"], ["eval", "-d", __file__, "--metric", "ppl"]])
def test_commands_for_language_models_refuse_it(tmp_path, capsys, words):
    made(next(case for case in ENCODERS if case.name == "BertModel"), 0, tmp_path)
    assert run([words[0], str(tmp_path), *words[1:]]) == 2
    assert "E-LM-TASK" in capsys.readouterr().err


def test_commands_show_its_tasks(tmp_path, capsys):
    made(next(case for case in ENCODERS if case.name == "BertModel"), 0, tmp_path)
    assert run(["models", "show", str(tmp_path)]) == 0
    assert "feature-extraction, fill-mask, text-classification" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["ElectraModel", "BertModel", "RobertaModel"])
def test_sizes_that_the_configuration_leaves_out(name, tmp_path):
    """As of published ELECTRA files without the number of heads: transformers' defaults."""
    import transformers

    cls = getattr(transformers, name)
    kept = {"vocab_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "max_position_embeddings": 64}
    reference = cls(cls.config_class(**kept)).eval()
    reference.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    stated = json.loads(path.read_text())
    for key in ("num_attention_heads", "hidden_size"):
        del stated[key]
    path.write_text(json.dumps(stated))
    arrays = {"input_ids": np.arange(3, 30)[None], "attention_mask": np.ones((1, 27), np.int64)}
    want = expected(reference, arrays)["last_hidden_state"]
    assert difference(models.load(tmp_path, threads=1)(**arrays)["last_hidden_state"], want) <= 3e-5
