"""Tiny checkpoints of text models with a tokenizer, as transformers reads them."""

import json

import numpy as np
from candle_convert.tests.builders.encoder_cases import ENCODERS
from candle_convert.tests.oracles.transformers import made
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from tokenizers.implementations import BertWordPieceTokenizer

CASES = {case.name: case for case in ENCODERS}
WORDPIECE = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *"0123456789.,?!'-"]
BYTE_LEVEL = [
    "<s>",
    "<pad>",
    "</s>",
    "<unk>",
    "<mask>",
    "Ġ",
    *"abcdefghijklmnopqrstuvwxyz",
    *".,?!'",
    "Ġa",
    "Ġt",
    "Ġthe",
]
TEXTS = [
    "hello world, who is there?",
    "a",
    "the cat sat on the mat. it was a very long day for a cat that has no hat!",
    "berlin is 3 hours away",
    "what?",
    "",
]


def wordpiece(folder, size):
    """A WordPiece tokenizer of letters with `size` tokens, of BERT's kind."""
    texts = [*WORDPIECE, *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789")]
    texts += [f"[unused{index}]" for index in range(size - len(texts))]
    tokenizer = BertWordPieceTokenizer({text: index for index, text in enumerate(texts[:size])})
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    write(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "model_max_length": 64, **names})


def byte_level(folder, size):
    """A byte-level BPE tokenizer of `size` tokens, of RoBERTa's kind."""
    texts = [*BYTE_LEVEL, *(f"<extra{index}>" for index in range(size - len(BYTE_LEVEL)))]
    ids = {text: index for index, text in enumerate(texts)}
    merges = [("Ġ", "a"), ("Ġ", "t"), ("h", "e"), ("Ġt", "he")]
    ids["he"] = ids.pop(texts[-1])
    made = Tokenizer(models.BPE(ids, merges, unk_token="<unk>"))
    made.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.RobertaProcessing(("</s>", ids["</s>"]), ("<s>", ids["<s>"]), False)
    made.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>",
             "unk_token": "<unk>", "mask_token": "<mask>"}  # fmt: skip
    write(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 62, **names},
    )


def checkpoint(name, folder, **config):
    """A checkpoint with a tokenizer; the model as transformers reads it. `config` is added to config.json."""
    case = CASES[name]
    reference = made(case, 0, folder)
    kind = byte_level if case.config["model_type"] in ("roberta", "xlm-roberta") else wordpiece
    kind(folder, case.base["vocab_size"])
    if config:
        stated = json.loads((folder / "config.json").read_text())
        write(folder / "config.json", {**stated, **config})
    return reference


def write(path, value):
    """Write JSON."""
    path.write_text(json.dumps(value))


def sharpened(folder, factor, prefix):
    """Multiply the weights of a head, so that results differ clearly."""
    from safetensors.numpy import load_file, save_file

    state = load_file(folder / "model.safetensors")
    state = {
        name: np.asarray(array * factor if name.startswith(prefix) else array, array.dtype)
        for name, array in state.items()
    }
    save_file(state, folder / "model.safetensors", {"format": "pt"})
