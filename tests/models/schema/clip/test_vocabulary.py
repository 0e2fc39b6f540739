"""CLIP's vocabulary against published ids."""

import json

import pytest
from candle_convert.models.schema.clip.vocabulary import VOCABULARY, tokenizer_files
from candle_convert.tests.builders.trained_tokenizers import file_tokenizer

PUBLISHED = {"a diagram": [320, 22697], "a dog": [320, 1929], "a cat": [320, 2368]}
"""Ids in the README of OpenAI's CLIP."""
BEGIN, END = 49406, 49407


@pytest.fixture(scope="module")
def ours():
    return file_tokenizer({name: text.encode() for name, text in tokenizer_files("!").items()})


def test_published_ids(ours):
    assert sorted(json.loads(tokenizer_files()["vocab.json"]).values()) == list(range(VOCABULARY))
    assert ours.vocabulary.roles["pad"] == 0
    for text, ids in PUBLISHED.items():
        assert ours.encode(text) == [BEGIN, *ids, END]
