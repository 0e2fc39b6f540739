"""GGUF files of text encoders: in libllama, back in transformers, and refused where GGUF has no place for a head."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.tests.builders.encoder_cases import ENCODERS
from candle_convert.tests.builders.packaged_models import minilm
from candle_convert.tests.oracles.libllama_encoder import CLS, MEAN, NONE, RANK, EncoderInLibllama
from candle_convert.tests.oracles.transformers import difference, made, transformers
from tokenizers import BertWordPieceTokenizer

CASES = {case.name: case for case in ENCODERS}
LOGITS = ("BertForSequenceClassification", "RobertaForSequenceClassification", "ModernBertForSequenceClassification")
HIDDEN = (
    "BertModel", "RobertaModel", "XLMRobertaModel", "DistilBertModel", "ModernBertModel", "nomic_bert", "eurobert",
    "jina_embeddings_v3",
)  # fmt: skip
LIBLLAMA = 2e-3
"""libllama computes GELU by a table of f16."""


def with_tokenizer(case, folder):
    """A checkpoint with a WordPiece vocabulary, which libllama needs; and the model as transformers reads it."""
    reference = made(case, 0, folder)
    texts = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(97, 123))]
    texts += [f"w{index}" for index in range(case.base["vocab_size"] - len(texts))]
    BertWordPieceTokenizer({text: index for index, text in enumerate(texts)}).save(str(folder / "tokenizer.json"))
    return reference


@pytest.mark.parametrize("name", [*HIDDEN, *LOGITS])
def test_as_libllama_and_back(name, tmp_path):
    import torch

    case, key = CASES[name], "logits" if name in LOGITS else "last_hidden_state"
    reference = with_tokenizer(case, tmp_path)
    path = tmp_path / "gguf" / "model.gguf"
    path.parent.mkdir()
    cc.convert(tmp_path, path)
    ids = np.random.default_rng(0).integers(5, 90, (1, 30))

    def computed(model):
        with torch.no_grad():
            return model(input_ids=torch.tensor(ids))[key].numpy()

    want = computed(reference)
    assert difference(models.load(path, threads=1)(input_ids=ids)[key], want) <= case.tolerance
    encoder = EncoderInLibllama(path, RANK if key == "logits" else NONE)
    assert difference(encoder(ids[0]), want[0]) <= LIBLLAMA
    encoder.close()
    cc.convert(path, tmp_path / "hf", to="safetensors")
    cls = "AutoModelForSequenceClassification" if key == "logits" else "AutoModel"
    again = getattr(transformers(), cls).from_pretrained(tmp_path / "hf").eval()
    assert difference(computed(again), want) <= case.tolerance


@pytest.mark.parametrize(
    "name",
    ["BertForMaskedLM", "BertForTokenClassification", "RobertaForQuestionAnswering", "ModernBertForTokenClassification",
     "DistilBertForSequenceClassification", "DebertaV2Model", "MPNetModel"],
)  # fmt: skip
def test_what_gguf_has_no_place_for_is_refused(name, tmp_path):
    made(CASES[name], 0, tmp_path)
    with pytest.raises(cc.UnsupportedError, match="E-OUT-ARCH"):
        cc.convert(tmp_path, tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()


def test_minilm(tmp_path):
    """Hidden states, both poolings and token ids of a trained model in libllama."""
    import torch
    from candle_convert.convert.load.attached_files import tokenizer_of

    path = tmp_path / "model.gguf"
    cc.convert(minilm(), path)
    library, model = (getattr(transformers(), cls).from_pretrained(minilm()) for cls in ("AutoTokenizer", "AutoModel"))
    ours = tokenizer_of(cc.open(path))
    encoder = EncoderInLibllama(path, NONE)
    texts = [
        "Hello world!",
        "Ünïcode Straße, naïve café",
        "日本語 text",
        "a-b_c 12.5% (x)",
        "",
        "  two   spaces\n\ttab",
    ]
    for text in texts:
        assert encoder.tokenize(text) == ours.encode(text) == library(text)["input_ids"]
    ids = library("unbelievable antidisestablishment")["input_ids"]
    with torch.no_grad():
        want = model.eval()(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy()
    assert difference(models.load(path, threads=1)(input_ids=[ids])["last_hidden_state"][0], want) <= 3e-5
    for pooling, expected in ((NONE, want), (MEAN, want.mean(0)), (CLS, want[0])):
        encoder.close()
        encoder = EncoderInLibllama(path, pooling)
        assert difference(encoder(ids), expected) <= LIBLLAMA
    encoder.close()
