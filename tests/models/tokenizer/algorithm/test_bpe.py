"""Byte-pair encodings from GGUF metadata against the tokenizers library with the patterns that the models' own files
have."""

import pytest
from candle_convert.tests.builders.trained_tokenizers import (
    PATTERNS,
    SAMPLE,
    SPECIALS,
    bpe_metadata,
    byte_bpe,
    gguf_tokenizer,
)

pytest.importorskip("tokenizers")


@pytest.mark.parametrize("pre", PATTERNS)
def test_ids_are_the_librarys(pre):
    library = byte_bpe(PATTERNS[pre], whole=pre == "llama-bpe")
    ours = gguf_tokenizer(bpe_metadata(library, pre))
    for text in SAMPLE:
        wanted = library.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, add_bos=False) == wanted, text
        assert ours.decode(wanted) == text


def test_special_tokens_in_a_text():
    library = byte_bpe(())
    ours = gguf_tokenizer(bpe_metadata(library, "gpt-2"))
    text = "<|im_start|>user\nhi<|im_end|>\n<s></s><|im_start|"
    assert ours.encode(text) == library.encode(text, add_special_tokens=False).ids
    assert ours.decode(ours.encode(text)) == "user\nhi\n<|im_start|"
    assert ours.decode(ours.encode(text), special=True) == text
    assert not {ours.id_of(special) for special in SPECIALS} & set(ours.encode(text, special=False))
    assert ours.unknown_markers("<|im_start|><|im_sep|>[INST]<|im_sep|>") == ["<|im_sep|>"]


def test_text_of_ids_that_come_one_by_one():
    ours = gguf_tokenizer(bpe_metadata(byte_bpe(()), "gpt-2"))
    for text in SAMPLE:
        stream = ours.stream()
        parts = [stream.push(token) for token in ours.encode(text)]
        assert "�" not in "".join(parts)
        assert "".join(parts) + stream.finish() == text
    stream = ours.stream()
    assert stream.push(ours.encode("🚀")[0]) == ""
    assert stream.finish() == "�"
