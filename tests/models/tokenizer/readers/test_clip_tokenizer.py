"""CLIP's vocab.json and merges.txt, whose words end in a mark, against transformers."""

import json

import pytest
from candle_convert.tests.builders.trained_tokenizers import corpus, file_tokenizer

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")
BEGIN, END = "<|startoftext|>", "<|endoftext|>"
TEXTS = (
    "a red fox in snow",
    "A  Red\tFOX,\nin   the snow!!",
    "it's the dog's 2nd 1024x768 picture",
    "été naïve \u0065\u0301 Straße 日本語 😀",
    "",
    "((masterpiece)), <lora:1>, 8k",
    f"one {END} two",
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """vocab.json and merges.txt of a small trained vocabulary, in CLIP's order: merges after the alphabet."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE(end_of_word_suffix="</w>"))
    made.normalizer = tokenizers.normalizers.Lowercase()
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=alphabet, end_of_word_suffix="</w>", show_progress=False
    )
    made.train_from_iterator([*corpus(), *TEXTS], trainer)
    known = made.get_vocab()
    whole = [*known, *(f"{letter}</w>" for letter in alphabet if f"{letter}</w>" not in known), BEGIN, END]
    folder = tmp_path_factory.mktemp("clip")
    made.model.save(str(folder))
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(whole)}))
    return folder


@pytest.mark.parametrize("pad", [END, "!"])
def test_words_end_in_a_mark(files, pad):
    config = {"tokenizer_class": "CLIPTokenizer", "bos_token": BEGIN, "eos_token": END, "unk_token": END}
    (files / "tokenizer_config.json").write_text(json.dumps(config | {"pad_token": pad, "model_max_length": 77}))
    theirs = transformers.CLIPTokenizer.from_pretrained(str(files))
    ours = file_tokenizer({path.name: path.read_bytes() for path in files.iterdir()})
    for text in TEXTS:
        assert ours.encode(text) == theirs(text)["input_ids"], text
        plain = theirs.decode(theirs(text)["input_ids"], skip_special_tokens=True)
        assert ours.decode(ours.encode(text)).strip() == plain
    assert ours.vocabulary.roles["pad"] == theirs.pad_token_id


def test_the_class_follows_from_the_model_type(files):
    named = {name: (files / name).read_bytes() for name in ("vocab.json", "merges.txt")}
    ours = file_tokenizer({**named, "config.json": '{"model_type": "clip_text_model"}'})
    theirs = transformers.CLIPTokenizer.from_pretrained(str(files), pad_token=END)
    assert ours.encode(TEXTS[1]) == theirs(TEXTS[1])["input_ids"]
