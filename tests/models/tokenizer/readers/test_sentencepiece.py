"""SentencePiece models, BPE and unigram, against the sentencepiece library; the same vocabularies in GGUF metadata."""

import json

import numpy as np
import pytest
from candle_convert.tests.builders.trained_tokenizers import SAMPLE, file_tokenizer, gguf_tokenizer, sentencepiece

spm = pytest.importorskip("sentencepiece")
TEXTS = [text.replace("\0", "") for text in SAMPLE]
VARIANTS = {
    "bpe, as llama has it": {"kind": "bpe"},
    "bpe, normalized": {"kind": "bpe", "normalization_rule_name": "nmt_nfkc", "remove_extra_whitespaces": True},
    "bpe, own tokens": {"kind": "bpe", "user_defined_symbols": "<one>,de,  ", "add_dummy_prefix": False},
    "bpe, no bytes": {"kind": "bpe", "byte_fallback": False},
    "unigram, as t5 has it": {
        "kind": "unigram",
        "byte_fallback": False,
        "normalization_rule_name": "nmt_nfkc",
        "remove_extra_whitespaces": True,
    },
    "unigram, bytes, own tokens": {"kind": "unigram", "user_defined_symbols": "<one>,de"},
    "unigram, folded, suffixes": {
        "kind": "unigram",
        "normalization_rule_name": "nfkc_cf",
        "treat_whitespace_as_suffix": True,
    },
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_ids_and_texts_are_the_librarys(variant):
    model = sentencepiece(**VARIANTS[variant])
    library = spm.SentencePieceProcessor(model_proto=model)
    ours = file_tokenizer({"tokenizer.model": model})
    for text in TEXTS:
        wanted = library.encode(text)
        assert ours.encode(text, special=False, add_bos=False, add_eos=False) == wanted, text
        if "suffixes" not in variant:
            assert ours.decode(wanted, special=True).replace("<unk>", " ⁇ ") == library.decode(wanted).replace(
                "<unk>", " ⁇ "
            )
    assert [ours.bos, ours.eos, ours.unk] == [library.bos_id(), library.eos_id(), library.unk_id()]


def _metadata(model):
    library = spm.SentencePieceProcessor(model_proto=model)
    count = range(library.get_piece_size())
    tests = {2: library.is_unknown, 3: library.is_control, 5: library.is_unused, 6: library.is_byte}
    kinds = [next((kind for kind, test in tests.items() if test(token)), 1) for token in count]
    return library, {
        "tokens": [library.id_to_piece(i) for i in count],
        "scores": np.array([library.get_score(i) for i in count], np.float32),
        "token_type": np.array(kinds, np.int32),
        "bos_token_id": np.uint32(1),
        "eos_token_id": np.uint32(2),
        "unknown_token_id": np.uint32(0),
    }


def test_gguf_vocabularies_give_the_same_ids():
    library, metadata = _metadata(sentencepiece())
    ours = gguf_tokenizer({"model": "llama", **metadata})
    for text in TEXTS:
        assert ours.encode(text, special=False) == [1, *library.encode(text)]
        assert ours.decode(ours.encode(text)) == text
    library, metadata = _metadata(sentencepiece("unigram", byte_fallback=False, remove_extra_whitespaces=True))
    ours = gguf_tokenizer({"model": "t5", "add_space_prefix": True, "remove_extra_whitespaces": True, **metadata})
    for text in TEXTS:
        assert ours.encode(text, special=False) == [*library.encode(text), 2]


def test_special_tokens_and_those_of_other_files():
    model = sentencepiece()
    count = spm.SentencePieceProcessor(model_proto=model).get_piece_size()
    added = json.dumps({"<extra>": count, "<|im_end|>": count + 2})
    config = json.dumps(
        {"add_bos_token": False, "added_tokens_decoder": {count + 2: {"content": "<|im_end|>", "special": True}}}
    )
    ours = file_tokenizer({"tokenizer.model": model, "added_tokens.json": added, "tokenizer_config.json": config})
    ids = ours.encode("<extra>a</s><|im_end|>")
    assert ids[0] == count
    assert ids[-2:] == [2, count + 2]
    assert len(ours) == count + 3
    assert ours.vocabulary.texts[count + 1] == f"[PAD{count + 1}]"
    assert ours.ends >= {2, count + 2}
    assert count + 2 not in ours.encode("<|im_end|>", special=False)
