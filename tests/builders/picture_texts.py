"""Files of models that write text about pictures: a tokenizer, a preprocessor and a picture."""

import json

import numpy as np
import transformers
from candle_convert.tests.builders.dual_encoders import END, START, clip_tokenizer
from PIL import Image

NAMES = {"bos_token": START, "eos_token": END, "pad_token": END, "unk_token": END}


def add_files(folder, processor, tokenizer=None, **settings):
    """Writes a tokenizer, `processor`, ``a.png`` and generation_config.json with `settings` into the folder of a
    model."""
    (tokenizer or clip_tokenizer()).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **NAMES}))
    (folder / "generation_config.json").write_text(json.dumps(settings))
    processor.save_pretrained(folder)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 70, 3), np.uint8)).save(folder / "a.png")


def square(processor, edge=32):
    """An image processor that resizes pictures to a square."""
    return getattr(transformers, processor)(size={"height": edge, "width": edge})


def until_end(tokens, end=1):
    """Tokens up to and including the first end token."""
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens
