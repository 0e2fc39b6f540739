"""SentencePiece models whose pieces have other ids in the model: those of fairseq (mBART, mBART-50, NLLB, XLM-R), and
Pegasus.

Source: transformers' tokenizers of these models.
"""

from __future__ import annotations

from dataclasses import replace

from ..core.language_codes import MBART, MBART50_FURTHER, NLLB
from ..core.vocabulary import CONTROL, UNKNOWN
from .sentencepiece import Model
from .tokenizer_json import CompanionFiles, token_text

FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
"""The first tokens; those of the SentencePiece model are <unk>, <s> and </s>."""
LANGUAGES = {
    "XLMRobertaTokenizer": "",
    "MBartTokenizer": MBART,
    "MBart50Tokenizer": f"{MBART} {MBART50_FURTHER}",
    "NllbTokenizer": NLLB,
}
"""Codes of languages by `tokenizer_class`."""
PEGASUS = "PegasusTokenizer"
MAX_OFFSET = 1024


def renumbered(model: Model, name: str, companion_files: CompanionFiles) -> Model | None:
    """A model with the pieces in the order of the ids, None for tokenizer classes that do not change it.

    Args:
        name: `tokenizer_class`, without ``Fast``.
    """
    if name in LANGUAGES:
        return _of_fairseq(model, LANGUAGES[name].split())
    return _of_pegasus(model, companion_files) if name == PEGASUS else None


def _of_fairseq(model: Model, languages: list[str]) -> Model:
    """The tokens of fairseq, the pieces, the languages and the mask."""
    first = [(text, 0.0, UNKNOWN if text == "<unk>" else CONTROL) for text in FAIRSEQ]
    last = [(text, 0.0, CONTROL) for text in (*languages, "<mask>")]
    pieces = [*first, *model.pieces[3:], *last]
    return replace(model, pieces=pieces, roles={"bos": 0, "pad": 1, "eos": 2, "unk": 3, "mask": len(pieces) - 1})


def _of_pegasus(model: Model, companion_files: CompanionFiles) -> Model:
    """Padding, end and masks, tokens of pre-training up to the offset, and the pieces."""
    said = companion_files.config.get("offset", 103)
    offset = said if isinstance(said, int) and 0 <= said <= MAX_OFFSET else 103
    masks = [
        token_text(companion_files, role) or usual for role, usual in (("mask_sent", "<mask_1>"), ("mask", "<mask_2>"))
    ]
    first = ["<pad>", "</s>", *masks, *(f"<unk_{index}>" for index in range(2, offset))]
    rows = [(text, 0.0, CONTROL) for text in first[: offset + 2]]
    roles = {"pad": 0, "eos": 1, "unk": model.roles.get("unk", 2) + offset}
    return replace(model, pieces=[*rows, *model.pieces[2:]], roles=roles)
