"""CLIP's vocab.json and merges.txt, whose words end in a mark, against transformers."""

import pytest
from candle_convert.tests.builders.text_to_image import END, clip_tokenizer
from candle_convert.tests.builders.trained_tokenizers import file_tokenizer

TEXTS = (
    "a red fox in snow",
    "A  Red\tFOX,\nin   the snow!!",
    "it's the dog's 2nd 1024x768 picture",
    "été naïve \u0065\u0301 Straße 日本語 😀",
    "",
    "((masterpiece)), <lora:1>, 8k",
    f"one {END} two",
)


@pytest.mark.parametrize("pad", [END, "!"])
def test_words_end_in_a_mark(pad, tmp_path):
    theirs = clip_tokenizer(tmp_path, pad)
    ours = file_tokenizer({path.name: path.read_bytes() for path in tmp_path.iterdir()})
    for text in TEXTS:
        assert ours.encode(text) == theirs(text)["input_ids"], text
        plain = theirs.decode(theirs(text)["input_ids"], skip_special_tokens=True)
        assert ours.decode(ours.encode(text)).strip() == plain
    assert ours.vocabulary.roles["pad"] == theirs.pad_token_id


def test_the_class_follows_from_the_model_type(tmp_path):
    theirs = clip_tokenizer(tmp_path)
    named = {name: (tmp_path / name).read_bytes() for name in ("vocab.json", "merges.txt")}
    ours = file_tokenizer({**named, "config.json": '{"model_type": "clip_text_model"}'})
    assert ours.encode(TEXTS[1]) == theirs(TEXTS[1])["input_ids"]
