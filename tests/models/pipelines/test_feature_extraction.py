"""Vectors of texts as sentence-transformers computes them from the same directory."""

import json

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.convert.cli.main import run
from candle_convert.models.pipelines.text_inputs import TruncationWarning
from candle_convert.tests.builders.packaged_models import minilm
from candle_convert.tests.builders.text_checkpoints import TEXTS, checkpoint, write

MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
TOLERANCE = 1e-5


def library():
    """sentence-transformers."""
    return pytest.importorskip("sentence_transformers")


def module(name):
    """A module's class."""
    from sentence_transformers.base import modules
    from sentence_transformers.sentence_transformer import modules as further

    return getattr(modules, name, None) or getattr(further, name)


def saved(folder, name, pooling, *stages, prompts=None, default=None, length=None, include_prompt=True):
    """A directory of sentence-transformers; `stages` make further modules from the width of the vectors."""
    checkpoint(name, folder / "base")
    first = module("Transformer")(str(folder / "base"), **({} if length is None else {"max_seq_length": length}))
    parts = [first, module("Pooling")(first.get_embedding_dimension(), pooling, include_prompt)]
    for stage in stages:
        parts.append(
            stage(parts[-1].pooling_output_dimension if len(parts) == 2 else parts[-1].get_embedding_dimension())
        )
    made = library().SentenceTransformer(modules=parts, prompts=prompts, default_prompt_name=default, device="cpu")
    made.save(str(folder / "model"))
    return library().SentenceTransformer(str(folder / "model"), device="cpu")


def assert_close(got, want):
    assert got.shape == want.shape
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, atol=TOLERANCE * max(1, np.abs(want).max()))


@pytest.mark.parametrize("pooling", [*MODES, ("cls", "max", "lasttoken")], ids=str)
def test_poolings(pooling, tmp_path):
    want = saved(tmp_path, "BertModel", pooling)
    model = models.load(tmp_path / "model", threads=1)
    assert (model.task, model.verbs) == ("feature-extraction", ("embed", "rerank"))
    assert_close(model.embed(TEXTS, batch=2), want.encode(TEXTS))
    assert_close(model.embed(TEXTS[0]), want.encode(TEXTS[0]))


PACKED = ("BertModel", "RobertaModel", "DistilBertModel", "AlbertModel", "ElectraModel")


@pytest.mark.parametrize("name", [*PACKED, "MPNetModel", "DebertaV2Model", "ModernBertModel"])
def test_families(name, tmp_path):
    want = saved(tmp_path, name, "mean")
    model = models.load(tmp_path / "model", threads=1)
    assert model.packs == (name in PACKED)
    assert_close(model.embed(TEXTS), want.encode(TEXTS))


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_texts_of_all_lengths_are_packed(batch, tmp_path, monkeypatch):
    """Long texts beside short ones, in several batches, and a text that holds the token of padding."""
    monkeypatch.setattr("candle_convert.models.pipelines.packed_batches.MAX_TOKENS", 70)
    want = saved(tmp_path, "RobertaModel", "mean")
    model = models.load(tmp_path / "model", threads=2)
    texts = [*TEXTS[1:], *("a cat sleeps " * count for count in (1, 9, 2, 12, 3)), "dog"] * 3
    assert_close(model.embed(texts, batch), want.encode(texts))
    monkeypatch.setattr("candle_convert.models.pipelines.packed_batches.MIN_TOKENS", 8)
    told = []
    found = model.embed(texts, batch, progress=lambda *done: told.append(done))
    assert_close(found, want.encode(texts))
    assert told[-1] == (len(texts), len(texts))
    assert told == sorted(told)
    assert np.array_equal(found, models.load(tmp_path / "model", threads=3).embed(texts, batch))
    padding = want.tokenizer.pad_token
    assert_close(model.embed([*TEXTS, f"a {padding} cat"], batch), want.encode([*TEXTS, f"a {padding} cat"]))


@pytest.mark.parametrize("activation", ["Identity", "Tanh", "GELU", "SiLU", "ReLU", "Sigmoid"])
def test_further_modules(activation, tmp_path):
    import torch

    function = getattr(torch.nn, activation)()
    stages = [
        lambda width: module("Dense")(
            width, 24, bias=activation != "ReLU", activation_function=function, use_residual=activation == "SiLU"
        ),
        module("LayerNorm"),
    ]
    want = saved(tmp_path, "BertModel", "mean", *stages)
    assert_close(models.load(tmp_path / "model", threads=1).embed(TEXTS), want.encode(TEXTS))
    copy = tmp_path / "copy"
    cc.convert(tmp_path / "model", copy, to="safetensors")
    assert_close(models.load(copy, threads=1).embed(TEXTS), want.encode(TEXTS))
    assert_close(library().SentenceTransformer(str(copy), device="cpu").encode(TEXTS), want.encode(TEXTS))


@pytest.mark.parametrize("normalize", [None, True])
@pytest.mark.parametrize("stages", [(), ("Normalize",)], ids=["plain", "normalized"])
@pytest.mark.parametrize("stated", [None, 24], ids=str)
def test_shortened_vectors(stated, stages, normalize, tmp_path):
    """Matryoshka: the first elements, as config_sentence_transformers.json states or as asked for."""
    saved(tmp_path, "BertModel", "mean", *(lambda width, name=name: module(name)() for name in stages))
    settings = tmp_path / "model" / "config_sentence_transformers.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"truncate_dim": stated}))
    want = library().SentenceTransformer(str(tmp_path / "model"), device="cpu")
    model = models.load(tmp_path / "model", threads=1)
    for dim in (None, 8, 1000):
        expected = want.encode(TEXTS, truncate_dim=dim, normalize_embeddings=bool(normalize))
        assert_close(model.embed(TEXTS, dim=dim, normalize=normalize), expected)
    shown = run(["embed", str(tmp_path / "model"), TEXTS[0], "--dim", "8", "-o", str(tmp_path / "vectors.npy")])
    assert shown == 0
    assert_close(np.load(tmp_path / "vectors.npy"), want.encode(TEXTS[:1], truncate_dim=8))
    with pytest.raises(cc.UsageError, match="at least 1 dimension"):
        model.embed(TEXTS, dim=0)


@pytest.mark.parametrize("include", [True, False])
def test_prompts(include, tmp_path):
    prompts = {"query": "find a text: ", "document": "this is it: "}
    want = saved(tmp_path, "BertModel", "weightedmean", prompts=prompts, default="query", include_prompt=include)
    model = models.load(tmp_path / "model", threads=1)
    assert_close(model.embed(TEXTS), want.encode(TEXTS))
    assert_close(model.embed(TEXTS, prompt_name="document"), want.encode(TEXTS, prompt_name="document"))
    assert_close(model.embed(TEXTS, prompt="hm "), want.encode(TEXTS, prompt="hm "))
    found = model.rerank("cat", TEXTS)
    scores = want.similarity(want.encode_query(["cat"]), want.encode_document(TEXTS))[0].numpy()
    assert [each["index"] for each in found] == np.argsort(-scores, kind="stable").tolist()
    np.testing.assert_allclose([each["score"] for each in found], np.sort(scores)[::-1], atol=TOLERANCE)
    with pytest.raises(cc.UsageError, match=r"E-TEXT-PROMPT.*document"):
        model.embed(TEXTS, prompt_name="passage")


def test_long_texts_are_cut_with_a_warning(tmp_path):
    want = saved(tmp_path, "BertModel", "mean", length=12)
    with pytest.warns(TruncationWarning, match="3 texts of 6 have more than 12 tokens"):
        got = models.load(tmp_path / "model", threads=1).embed(TEXTS)
    assert_close(got, want.encode(TEXTS))


def test_a_directory_without_modules(tmp_path):
    """The mean of the tokens, of as many tokens as there are positions."""
    checkpoint("RobertaModel", tmp_path)
    (tmp_path / "special_tokens_map.json").unlink(missing_ok=True)
    texts = [*TEXTS, "a cat " * 40]
    want = library().SentenceTransformer(str(tmp_path), device="cpu").encode(texts)
    with pytest.warns(TruncationWarning, match="2 texts of 7 have more than 62 tokens"):
        got = models.load(tmp_path, threads=1).embed(texts)
    assert_close(got, want)
    said = json.loads((tmp_path / "tokenizer_config.json").read_text())
    del said["model_max_length"]
    write(tmp_path / "tokenizer_config.json", said)
    with pytest.warns(TruncationWarning, match="2 texts of 7 have more than 62 tokens"):
        got = models.load(tmp_path, threads=1).embed(texts)
    assert_close(got, want)


def test_minilm_in_every_format(tmp_path):
    want = library().SentenceTransformer(str(minilm()), device="cpu").encode(TEXTS)
    cc.convert(minilm(), tmp_path / "m.gguf")
    cc.convert(minilm(), tmp_path / "network", to="onnx")
    cc.convert(tmp_path / "m.gguf", tmp_path / "back", to="safetensors")
    for path in (minilm(), tmp_path / "m.gguf", tmp_path / "network", tmp_path / "back"):
        assert_close(models.load(path, threads=1).embed(TEXTS), want)
    assert_close(library().SentenceTransformer(str(tmp_path / "back"), device="cpu").encode(TEXTS), want)


@pytest.mark.parametrize(
    ("file", "content", "code"),
    [
        (
            "modules.json",
            [{"type": "models.CNN", "path": "2_CNN"}, {"type": "x.CNN", "path": "3"}],
            "E-SENTENCE-MODULE",
        ),
        ("modules.json", {"type": 3}, "E-SENTENCE-MODULE"),
        ("1_Pooling/config.json", {"pooling_mode": "median"}, "E-SENTENCE-MODULE.*median"),
        ("sentence_bert_config.json", {"max_seq_length": -3}, "E-SENTENCE-MODULE.*max_seq_length"),
        ("config_sentence_transformers.json", {"prompts": {"query": 3}}, "E-SENTENCE-MODULE.*prompts.query"),
    ],
)
def test_damaged_files(file, content, code, tmp_path):
    saved(tmp_path, "BertModel", "mean")
    write(tmp_path / "model" / file, content)
    with pytest.raises(cc.Error, match=code):
        models.load(tmp_path / "model", threads=1).embed(TEXTS)


def test_a_tokenizer_of_another_model(tmp_path):
    checkpoint("BertModel", tmp_path)
    said = json.loads((tmp_path / "tokenizer.json").read_text())
    said["model"]["vocab"]["##more"] = 96
    write(tmp_path / "tokenizer.json", said)
    with pytest.raises(cc.FormatError, match=r"E-LM-VOCABULARY.*at most 96, found 97"):
        models.load(tmp_path, threads=1).embed(TEXTS)
    with pytest.raises(cc.FormatError, match="E-LM-VOCABULARY"):
        models.load(tmp_path, threads=1).embed([[3, 96]])


@pytest.mark.parametrize(("options", "code"), [({"pooling": "median"}, "E-OPTION"), ({"batch": 0}, "E-OPTION")])
def test_wrong_options(options, code, tmp_path):
    checkpoint("BertModel", tmp_path)
    with pytest.raises(cc.UsageError, match=code):
        models.load(tmp_path, threads=1).embed(TEXTS, **options)


def test_other_uses_are_refused(tmp_path):
    checkpoint("BertForMaskedLM", tmp_path)
    model = models.load(tmp_path, threads=1)
    with pytest.raises(cc.UsageError, match=r"E-MODEL-VERB.*fill-mask.*predict"):
        model.embed(TEXTS)
    with pytest.raises(cc.UsageError, match=r"E-MODEL-VERB.*generate"):
        model.generate("a")
    assert not hasattr(model, "speak")
    assert models.load(tmp_path, threads=1, task="feature-extraction").embed(TEXTS).shape == (len(TEXTS), 64)
