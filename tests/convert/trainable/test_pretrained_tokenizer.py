"""Tokenizers by transformers' class names: encodings are those of transformers, and go into models as they are."""

import candle_convert as cc
import numpy as np
import pytest
import torch
import transformers
from candle_convert.convert.trainable.tokenizer_names import WITH_SEGMENTS, WITHOUT_SEGMENTS
from candle_convert.tests.builders.packaged_models import minilm
from candle_convert.tests.builders.paths import EXAMPLES

TEXTS = ["A man is eating food.", "Hello", "The stock market fell sharply, naïve as it was!"]
CALLS = {
    "one": (TEXTS[0], {}),
    "several": (TEXTS, {}),
    "padded": (TEXTS, {"padding": True}),
    "to a length": (TEXTS, {"padding": "max_length", "max_length": 20}),
    "cut": (TEXTS, {"truncation": True, "max_length": 5, "padding": "longest"}),
    "bare": (TEXTS, {"add_special_tokens": False}),
    "cut by its length": (TEXTS, {"max_length": 5}),
    "not cut": (TEXTS, {"max_length": 5, "truncation": False}),
    "padded, not cut": (TEXTS, {"max_length": 5, "padding": True}),
    "longest first": (TEXTS, {"max_length": 5, "truncation": "longest_first"}),
    "pair": (TEXTS[0], {"text_pair": TEXTS[2]}),
    "pairs cut": (list(zip(TEXTS, TEXTS[::-1], strict=True)), {"truncation": True, "max_length": 9}),
    "without masks": (TEXTS[0], {"return_attention_mask": False, "return_token_type_ids": False}),
}


@pytest.mark.parametrize("kind", ["AutoTokenizer", "BertTokenizer"])
@pytest.mark.parametrize("call", CALLS)
def test_encodings_are_those_of_transformers(kind, call):
    text, options = CALLS[call]
    ours, theirs = (getattr(package, kind).from_pretrained(minilm()) for package in (cc.models, transformers))
    assert dict(ours(text, **options)) == dict(theirs(text, **options))


def test_a_byte_level_tokenizer_pads_left():
    folder = EXAMPLES / "tiny_llama"
    ours, theirs = (package.AutoTokenizer.from_pretrained(folder) for package in (cc.models, transformers))
    assert ours(TEXTS) == dict(theirs(TEXTS))
    ours.padding_side = theirs.padding_side = "left"
    if theirs.pad_token is None:
        with pytest.raises(cc.UsageError, match="E-TOKENIZER-ROLE"):
            ours(TEXTS, padding=True)
    for tokenizer in (ours, theirs):
        tokenizer.pad_token = tokenizer.eos_token
    assert ours(TEXTS, padding=True) == dict(theirs(TEXTS, padding=True))
    for tokenizer in (ours, theirs):
        tokenizer.pad_token_id = 5
    assert (ours.pad_token, ours.pad_token_id) == (theirs.pad_token, theirs.pad_token_id)
    assert ours(TEXTS, padding=True) == dict(theirs(TEXTS, padding=True))
    with pytest.raises(cc.UsageError, match="no such token"):
        ours.pad_token = "no such token"
    ours.pad_token = None
    assert ours.pad_token_id is None


def test_vocabulary_and_text():
    ours, theirs = (package.AutoTokenizer.from_pretrained(minilm()) for package in (cc.models, transformers))
    ids = theirs(TEXTS[2])["input_ids"]
    assert ours.decode(ids) == theirs.decode(ids)
    assert ours.batch_decode([ids], skip_special_tokens=True) == theirs.batch_decode([ids], skip_special_tokens=True)
    assert ours.decode([ids, ids[:3]]) == theirs.decode([ids, ids[:3]])
    assert ours.decode(np.array([ids])) == theirs.decode(np.array([ids]))
    assert ours.tokenize(TEXTS[0]) == theirs.tokenize(TEXTS[0])
    assert ours.convert_ids_to_tokens([10**6, 2003]) == theirs.convert_ids_to_tokens([10**6, 2003])
    with pytest.raises(cc.UsageError, match="E-TOKENIZER-ID"):
        ours.convert_ids_to_tokens(-1)
    assert ours.convert_tokens_to_ids(["man", "[SEP]", "no such"]) == theirs.convert_tokens_to_ids(
        ["man", "[SEP]", "no such"]
    )
    for name in ("pad_token", "pad_token_id", "cls_token_id", "vocab_size", "model_max_length", "padding_side"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert len(ours) == len(theirs)
    assert ours.encode("Hello") == theirs.encode("Hello")


def test_a_model_takes_what_a_tokenizer_gives():
    device = cc.Device.cpu()
    inputs = cc.models.BertTokenizer.from_pretrained(minilm())(TEXTS, padding=True, return_tensors="pt").to(device)
    model = cc.models.BertModel.from_pretrained(minilm(), device=device)
    ids, mask = inputs["input_ids"], inputs.attention_mask
    found = model.forward(ids, attention_mask=mask).last_hidden_state
    theirs = transformers.BertModel.from_pretrained(minilm()).eval()
    with torch.no_grad():
        expected = theirs(torch.tensor(ids.numpy()), attention_mask=torch.tensor(mask.numpy())).last_hidden_state
    assert found.shape == tuple(expected.shape)
    seen = mask.numpy() == 1
    np.testing.assert_allclose(found.detach().numpy()[seen], expected.numpy()[seen], rtol=1e-3, atol=2e-5)
    with pytest.raises(cc.UsageError, match="E-TENSOR-DEVICE"):
        cc.models.BertModel.from_pretrained(minilm(), device=cc.Device.cuda())


def test_errors_name_the_next_step(tmp_path):
    tokenizer = cc.models.AutoTokenizer.from_pretrained(minilm(), use_fast=True, local_files_only=True)
    for strategy in ("only_first", "only_second", "shortest"):
        with pytest.raises(cc.UsageError, match="longest_first"):
            tokenizer(TEXTS, truncation=strategy)
    with pytest.raises(cc.UsageError, match="trust_remote_code"):
        cc.models.AutoTokenizer.from_pretrained(minilm(), trust_remote_code=True)
    with pytest.raises(cc.UsageError, match="padding=True"):
        tokenizer(TEXTS, return_tensors="pt")
    with pytest.raises(cc.UsageError, match="expected pt, np"):
        tokenizer(TEXTS[0], return_tensors="tf")
    with pytest.raises(cc.UsageError, match="E-OPTION"):
        cc.models.AutoTokenizer.from_pretrained(minilm(), padding=True)
    with pytest.warns(UserWarning, match="of the class BertTokenizer, not GPT2Tokenizer"):
        cc.models.GPT2Tokenizer.from_pretrained(minilm())


def test_names_and_their_inputs_are_those_of_transformers():
    for names, has in ((WITH_SEGMENTS, True), (WITHOUT_SEGMENTS, False)):
        for name in names:
            kind = getattr(transformers, name, None)
            if kind is not None and not issubclass(kind, transformers.BertTokenizer):
                assert ("token_type_ids" in kind.model_input_names) is has, name
            assert getattr(cc.models, name).__name__ == name
