"""Tokenizers in several files (vocab.json and merges.txt; vocab.txt), converted for the tokenizers library as
transformers does.

Source: transformers' GPT2Converter, CLIPConverter and BertConverter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....runtime.base.errors import FormatError
from .tokenizer_json import CompanionFiles, guarded, library, token_text
from .vet_tokenizer_json import check_ids

if TYPE_CHECKING:
    import tokenizers

CODE = "E-TOKENIZER-VOCAB"
ROBERTA = ("RobertaTokenizer", "BartTokenizer")
"""Tokenizer classes of byte-level BPE whose texts stand between CLS and SEP."""
ROBERTA_TOKENS = {
    "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "</s>", "pad_token": "<pad>",
    "cls_token": "<s>", "mask_token": "<mask>",
}  # fmt: skip
"""Their special tokens, if the configuration does not name others."""
CLIP = "CLIPTokenizer"
CLIP_TOKENS = {
    "bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>",
    "pad_token": "<|endoftext|>",
}  # fmt: skip
CLIP_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
WORD_END = "</w>"
"""Suffix of the last token of each word in CLIP's vocabulary."""


def byte_level_bpe(
    vocab: Mapping[str, Any],
    merges: str,
    companion_files: CompanionFiles,
    added: Mapping[int, tuple[str, bool]],
    path: str | None,
) -> tokenizers.Tokenizer:
    """GPT-2's kind: byte-level BPE with special tokens that the configuration names."""
    tokenizers = library(path)
    check_ids(vocab.values(), len(vocab), "vocab.json", CODE, path)
    with guarded(path):
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=dict(vocab), merges=_pairs(merges, path)))
    spaced = bool(companion_files.config.get("add_prefix_space", False))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    _name(tokenizer, companion_files, added, path)
    return tokenizer


def clip_bpe(
    vocab: Mapping[str, Any],
    merges: str,
    companion_files: CompanionFiles,
    added: Mapping[int, tuple[str, bool]],
    path: str | None,
) -> tokenizers.Tokenizer:
    """CLIP's kind: byte-level BPE of lowercased words, the last token of which ends in `WORD_END`, between the tokens
    of the beginning and the end."""
    tokenizers = library(path)
    check_ids(vocab.values(), len(vocab), "vocab.json", CODE, path)
    unknown = token_text(companion_files, "unk")
    with guarded(path):
        tokenizer = tokenizers.Tokenizer(
            tokenizers.models.BPE(
                vocab=dict(vocab),
                merges=_pairs(merges, path),
                continuing_subword_prefix="",
                end_of_word_suffix=WORD_END,
                unk_token=unknown if unknown in vocab else None,
            )
        )
    normalizers, splitters, decoders = tokenizers.normalizers, tokenizers.pre_tokenizers, tokenizers.decoders
    spaces = normalizers.Replace(tokenizers.Regex(r"\s+"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), spaces, normalizers.Lowercase()])
    words = splitters.Split(tokenizers.Regex(CLIP_WORDS), "removed", invert=True)
    tokenizer.pre_tokenizer = splitters.Sequence([words, splitters.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace(WORD_END, " ")])
    _name(tokenizer, companion_files, added, path)
    between(tokenizer, companion_files, path, ("bos", "eos"))
    return tokenizer


def _pairs(merges: str, path: str | None) -> list[tuple[str, ...]]:
    """The pairs of tokens in a merges.txt."""
    lines = [line.rstrip("\r") for line in merges.split("\n")]
    pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    wrong = next((pair for pair in pairs if len(pair) != 2), None)
    if wrong is not None:
        raise FormatError(
            CODE, path, f"merges.txt has the line {' '.join(wrong)[:40]!r}, which is not a pair of tokens"
        )
    return pairs


def wordpiece(
    vocab: str, companion_files: CompanionFiles, added: Mapping[int, tuple[str, bool]], path: str | None
) -> tokenizers.Tokenizer:
    """BERT's kind: WordPiece between CLS and SEP."""
    tokenizers = library(path)
    ids = {line.rstrip("\r"): token for token, line in enumerate(vocab.removesuffix("\n").split("\n"))}
    settings = companion_files.config
    names = {role: token_text(companion_files, role) or f"[{role.upper()}]" for role in ("unk", "cls", "sep")}
    if not set(names.values()) <= ids.keys():
        raise FormatError(CODE, path, f"vocab.txt has no {', '.join(sorted(set(names.values()) - ids.keys()))}")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab=ids, unk_token=names["unk"]))
    lowercase = bool(settings.get("do_lower_case", True))
    accents = settings.get("strip_accents")
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
        lowercase=lowercase,
        strip_accents=accents,
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    _name(tokenizer, companion_files, added, path)
    between(tokenizer, companion_files, path)
    return tokenizer


def between(
    made: tokenizers.Tokenizer,
    companion_files: CompanionFiles,
    path: str | None,
    roles: tuple[str, str] = ("cls", "sep"),
) -> None:
    """Put texts between the tokens of two roles."""
    first, last = (token_text(companion_files, role) or f"[{role.upper()}]" for role in roles)
    ids = {text: made.token_to_id(text) for text in (first, last)}
    if None in ids.values():
        missing = ", ".join(text for text, token in ids.items() if token is None)
        raise FormatError(CODE, path, f"the vocabulary has no {missing}", hint="Correct tokenizer_config.json")
    made.post_processor = library(path).processors.TemplateProcessing(
        single=f"{first} $A {last}", pair=f"{first} $A {last} $B:1 {last}:1", special_tokens=list(ids.items())
    )


def _name(
    made: tokenizers.Tokenizer, companion_files: CompanionFiles, added: Mapping[int, tuple[str, bool]], path: str | None
) -> None:
    """Tell the library the special tokens, in the order of their ids."""
    tokenizers = library(path)
    special = [
        text
        for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
        if (text := token_text(companion_files, role))
    ]
    known = [text for text in dict.fromkeys(special) if made.token_to_id(text) is not None]
    made.add_special_tokens([tokenizers.AddedToken(text, special=True, normalized=False) for text in known])
    for _, (text, control) in sorted(added.items()):
        token = tokenizers.AddedToken(text, special=control, normalized=False)
        (made.add_special_tokens if control else made.add_tokens)([token])
