"""Validation of tokenizer.json before the tokenizers library loads it: valid ids, and no parts that could hang or crash
the library.

Parts that are known to be harmless run at once. Others, patterns above all, get a `Gate`, which tries every text in a
child process first.

Source: the tokenizers library, for what each part may hold.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ....runtime.base.errors import FormatError, LimitError
from ....runtime.base.gc_pause import unsearched
from ....runtime.base.units import counted
from ....runtime.base.untrusted import limited_process
from ....runtime.base.untrusted.json import unique
from ..algorithm import library_gate

CODE = "E-TOKENIZER-JSON"
HOLES = 1 << 16
"""Unused ids that any vocabulary may have, in addition to as many as it has tokens."""
LONGEST_WORD = 10_000
"""Characters of a word that WordPiece takes apart; its time grows with their square. Published vocabularies have
100."""
LONGEST_STRING = 10_000
"""Characters of a pattern, a replacement or a prefix; published tokenizers have fewer than 1,000."""
LARGEST_CHARSMAP = 4 << 20
"""Characters of a character map in base64; SentencePiece's have under 500,000."""
MAX_PARTS = 1_000
"""Components of a normalizer, pre-tokenizer, decoder or post-processor, each of which goes over every text."""
GROWTH = 16
"""Limit of the factor by which a part's replacements lengthen a text."""
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
ENDS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
)
PATTERNS = frozenset(
    (
        rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{SYMBOLS}|{ENDS}",
        rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{SYMBOLS}|{ENDS}",
        rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{ENDS}",
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        rf"{CASED % ('', '')}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{ENDS}",
        rf"{CASED % (CONTRACTIONS + '?', CONTRACTIONS + '?')}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{ENDS}",
        r"\p{N}",
        r"\p{N}{1,3}",
        "[0-9][0-9][0-9]",
        "[一-龥぀-ゟ゠-ヿ]+",
        " {2,}",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| "
        r"?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    )
)
"""Patterns of published models, which run in about linear time."""
CHARSMAPS = frozenset(
    (
        "1e2c7b43d3ee9755ceaa2ac335e253d8703604e0249ee1e81156c92b46423844",
        "7e46d9e08af4b6a37991b04fb8388644c1595a0abcd0f26d6a5d575e2a3663ea",
        "2c03512e62f9ed965ec90d85314211b63b5b8aa0395311ea2147eec9ff738907",
        "d8dfef3d6db0eef0742f8b55a73aee7fce6c1e21d26a09b8d3d4b52c42a791cb",
    )
)
"""SHA-256 of SentencePiece's character maps: nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf."""
HARMLESS = frozenset(
    (
        "NFC",
        "NFD",
        "NFKC",
        "NFKD",
        "Nmt",
        "Lowercase",
        "StripAccents",
        "Strip",
        "BertNormalizer",
        "ByteLevel",
        "BertPreTokenizer",
        "Metaspace",
        "Whitespace",
        "WhitespaceSplit",
        "CharDelimiterSplit",
        "Punctuation",
        "Digits",
        "UnicodeScripts",
        "ByteFallback",
        "Fuse",
        "WordPiece",
        "BPEDecoder",
    )
)
"""Types of parts that run in about linear time with any settings."""
PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
"""Keys of tokenizer.json whose components work on every text."""
LOADED = 1 << 20
"""Bytes of a tokenizer that are loaded in a processor second at the least."""
LISTS = ("normalizers", "pretokenizers", "decoders")
"""Keys of the parts of sequences."""


class Gate:
    """Tries what the library is about to do with a text in the child of limited calls.

    Args:
        tokenizer: a tokenizer.json of the same parts around a vocabulary of one token.
        decodes: whether what its decoder does is tried, too.
    """

    def __init__(self, tokenizer: str, decodes: bool, path: str | None) -> None:
        self._tokenizer, self._decodes = tokenizer, decodes
        hint = "One of its patterns or replacements takes too much; use a tokenizer of another source"
        self._work = limited_process.Work(
            "E-TOKENIZER", "the tokenizer", path, hint, per_byte=256, bytes_per_second=1 << 18,
            fixed=len(tokenizer), fixed_seconds=len(tokenizer) / LOADED,
        )  # fmt: skip

    def encoding(self, texts: Sequence[str]) -> None:
        """Raise LimitError or FormatError where the library would hang or fail on one of the texts."""
        self._try(texts, ())

    def decoding(self, tokens: Sequence[str]) -> None:
        """Raise them where it would on decoding the tokens."""
        if self._decodes:
            self._try((), tokens)

    def _try(self, texts: Sequence[str], tokens: Sequence[str]) -> None:
        limited_process.call(
            library_gate.__name__,
            "tried",
            {"tokenizer": self._tokenizer, "texts": list(texts), "tokens": list(tokens)},
            self._work,
        )


def vetted(text: str, path: str | None) -> Gate | None:
    """Check a tokenizer.json; return the gate that its texts go through first, None if none of its parts is harmful.

    The gate has been tried in the child process. Raises FormatError for a file that contradicts itself.
    """
    said = _parsed(text, path)
    model = said.get("model")
    if not isinstance(model, Mapping):
        raise FormatError(CODE, path, "tokenizer.json has no model")
    _check_model(model, said.get("added_tokens"), path)
    check_parts({name: said.get(name) for name in PARTS}, path)
    _check_templates(said.get("post_processor"), path)
    return gate_for(
        {name: said.get(name) for name in ("normalizer", "pre_tokenizer", "decoder")},
        said.get("added_tokens") or [],
        path,
    )


def gate_for(parts: Mapping[str, Any], added: Any, path: str | None) -> Gate | None:
    """A gate for a normalizer, a pre-tokenizer and a decoder, tried in the child process; None if all are harmless.

    Args:
        parts: by what tokenizer.json calls them.
        added: the added tokens, as tokenizer.json lists them.
    """
    wary = {name for name, part in parts.items() if not _harmless(part)}
    if not wary:
        return None
    empty = {"type": "WordLevel", "vocab": {PROBE: 0}, "unk_token": PROBE}
    check_parts(parts, path)
    gate = Gate(
        json.dumps({"version": "1.0", "added_tokens": added, "post_processor": None, **parts, "model": empty}),
        "decoder" in wary,
        path,
    )
    gate.encoding((PROBE,))
    return gate


PROBE = "a"


def check_parts(parts: Mapping[str, Any], path: str | None) -> None:
    """LimitError for parts of tokenizer.json with more components or longer strings than any tokenizer needs: each is
    work for every text."""
    for name, part in parts.items():
        pending, count = [("", part)], 0
        while pending:
            key, item = pending.pop()
            count += 1
            if count > MAX_PARTS and name != "post_processor":
                raise _oversized(f"{name} of tokenizer.json has over {MAX_PARTS:,} components and settings", path)
            if isinstance(item, Mapping):
                pending += item.items()
            elif isinstance(item, list):
                pending += [(key, element) for element in item]
            elif isinstance(item, str):
                longest = LARGEST_CHARSMAP if key == "precompiled_charsmap" else LONGEST_STRING
                if len(item) > longest:
                    length = counted(len(item), "character")
                    why = f"{name} of tokenizer.json has a {key} of {length}, at most {longest:,}"
                    raise _oversized(f"{why} are taken", path)


def _check_templates(part: Any, path: str | None) -> None:
    """LimitError for a post-processor that repeats the text, or adds tokens to it, more than any tokenizer does: each
    template of a sequence works on what the one before it made."""
    growth, added, pending = 1, 0, [part]
    while pending:
        item = pending.pop()
        if not isinstance(item, Mapping):
            continue
        inner = item.get("processors")
        pending += reversed(inner) if isinstance(inner, list) else ()
        if item.get("type") != "TemplateProcessing":
            continue
        sizes = [_template_size(item.get(name), item.get("special_tokens")) for name in ("single", "pair")]
        times = max(repeats for repeats, _ in sizes)
        growth *= max(1, times)
        added = added * max(1, times) + max(tokens for _, tokens in sizes)
        if growth > GROWTH or added > MAX_PARTS:
            why = (
                f"the templates of tokenizer.json repeat a text "
                f"{counted(growth, 'time')} and add {counted(added, 'token')}"
            )
            raise _oversized(why, path)


def _template_size(pieces: Any, special: Any) -> tuple[int, int]:
    """How often a template has a text, and the tokens that it adds."""
    repeats, tokens = Counter[str](), 0
    for piece in pieces if isinstance(pieces, list) else ():
        if not isinstance(piece, Mapping):
            continue
        text = piece.get("Sequence")
        repeats[str(text.get("id")) if isinstance(text, Mapping) else ""] += "Sequence" in piece
        named = piece.get("SpecialToken")
        name = named.get("id") if isinstance(named, Mapping) else None
        stated = special.get(name) if isinstance(special, Mapping) and isinstance(name, str) else None
        ids = stated.get("ids") if isinstance(stated, Mapping) else None
        tokens += len(ids) if isinstance(ids, list) else 0
    return max(repeats.values(), default=0), tokens


def _oversized(why: str, path: str | None) -> LimitError:
    return LimitError("E-TOKENIZER-SIZE", path, why, hint="Use the tokenizer of another source")


@unsearched
def _parsed(text: str, path: str | None) -> Mapping[str, Any]:
    try:
        said = json.loads(text, object_pairs_hook=unique)
    except RecursionError as error:
        raise FormatError(CODE, path, "tokenizer.json is nested too deeply") from error
    except ValueError as error:
        raise FormatError(CODE, path, f"tokenizer.json cannot be read: {error}") from error
    if not isinstance(said, Mapping):
        raise FormatError(CODE, path, "tokenizer.json is not a JSON object")
    return said


def _check_model(model: Mapping[str, Any], added: Any, path: str | None) -> None:
    """Ids that fit the vocabulary, the unknown token where it is needed, words that are not too long."""
    vocab = model.get("vocab")
    named = [token.get("id") for token in added if isinstance(token, Mapping)] if isinstance(added, list) else []
    ids = [*(vocab.values() if isinstance(vocab, Mapping) else ()), *named]
    count = len(ids) + (len(vocab) if isinstance(vocab, list) else 0)
    check_ids(ids, count, "tokenizer.json", CODE, path)
    unknown = model.get("unk_token", "[UNK]")
    if (
        isinstance(vocab, Mapping)
        and model.get("type") in ("WordPiece", "WordLevel")
        and not (isinstance(unknown, str) and unknown in vocab)
    ):
        why = f"the vocabulary of tokenizer.json lacks its unknown token {str(unknown)[:40]!r}"
        raise FormatError(CODE, path, why, hint="Download the tokenizer again, or add the token to its vocabulary")
    _check_merges(model, path)
    longest = model.get("max_input_chars_per_word", 100)
    if isinstance(longest, int) and longest > LONGEST_WORD:
        raise FormatError(
            CODE,
            path,
            f"tokenizer.json takes words of {counted(longest, 'character')} apart",
            expected=f"at most {LONGEST_WORD:,}",
        )


def _check_merges(model: Mapping[str, Any], path: str | None) -> None:
    """Second sides of merges that begin as pieces within a word do, where these have a prefix: the library cuts it off
    unseen."""
    prefix, merges = model.get("continuing_subword_prefix"), model.get("merges")
    if not prefix or not isinstance(prefix, str) or not isinstance(merges, list):
        return
    for pair in merges:
        other = (
            pair[-1] if isinstance(pair, list) and pair else pair.rpartition(" ")[2] if isinstance(pair, str) else None
        )
        if not isinstance(other, str) or not other.startswith(prefix):
            why = f"the merge {str(pair)[:40]!r} of tokenizer.json has a second side without the prefix {prefix[:20]!r}"
            raise FormatError(CODE, path, why)


def check_ids(ids: Iterable[Any], count: int, what: str, code: str, path: str | None) -> None:
    """FormatError for ids that are not integers, negative, or far beyond the number of tokens, which may leave some ids
    out."""
    bound = 2 * count + HOLES
    for token in ids:
        if type(token) is not int or not 0 <= token < bound:
            why = f"{what} gives a token the id {str(token)[:40]}, and lists {counted(count, 'token')}"
            raise FormatError(code, path, why, hint="Ids begin at 0 and leave few out; download the file again")


def _harmless(part: Any) -> bool:
    """Whether a normalizer, pre-tokenizer or decoder is known to take about as long as the text, and to lengthen it
    little."""
    growth, pending = 1.0, [part]
    while pending:
        item = pending.pop()
        if item is None:
            continue
        kind = item.get("type") if isinstance(item, Mapping) else None
        inner = (
            next((item[name] for name in LISTS if isinstance(item.get(name), list)), None)
            if isinstance(item, Mapping)
            else None
        )
        if kind == "Sequence" and inner is not None:
            pending += inner
        elif isinstance(kind, str) and kind in CHECKED:
            factor = CHECKED[kind](item)
            growth *= factor
        elif not isinstance(kind, str) or kind not in HARMLESS:
            return False
        if growth > GROWTH:
            return False
    return True


def _replace(item: Mapping[str, Any]) -> float:
    """How many times longer a Replace makes a text at most; infinite where that is not known."""
    pattern, content = item.get("pattern"), item.get("content")
    if not isinstance(pattern, Mapping) or not isinstance(content, str):
        return float("inf")
    plain = pattern.get("String")
    if isinstance(plain, str) and plain:
        return max(1.0, len(content.encode("utf-8", "replace")) / len(plain.encode("utf-8", "replace")))
    return max(1, len(content)) if _published(pattern) else float("inf")


def _split(item: Mapping[str, Any]) -> float:
    pattern = item.get("pattern")
    known = isinstance(pattern, Mapping) and (bool(pattern.get("String")) or _published(pattern))
    return 1 if known else float("inf")


def _published(pattern: Mapping[str, Any]) -> bool:
    regex = pattern.get("Regex")
    return isinstance(regex, str) and regex in PATTERNS


def _prepend(item: Mapping[str, Any]) -> float:
    return 1 if isinstance(item.get("prepend"), str) and len(item["prepend"]) <= GROWTH else float("inf")


def _precompiled(item: Mapping[str, Any]) -> float:
    try:
        data = base64.b64decode(item.get("precompiled_charsmap") or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        return float("inf")
    return 1 if hashlib.sha256(data).hexdigest() in CHARSMAPS else float("inf")


CHECKED: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "Replace": _replace, "Split": _split, "Prepend": _prepend, "Precompiled": _precompiled,
}  # fmt: skip
"""Types of parts that depend on their options, and what says how many times longer each makes a text."""
