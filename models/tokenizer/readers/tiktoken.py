"""Tiktoken files: base64 tokens with ranks, one per line; pairs with the lowest-rank union are merged first.

Source: the tiktoken library; the tokenizers that Llama 3 and Qwen came with for the patterns and special tokens, which
no file has.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError
from ..algorithm.merge_loop import merged
from ..algorithm.pre_tokenizer import PRE, Splitting
from ..core.special_roles import end_tokens, found_by_text
from ..core.special_split import Leftmost
from ..core.tokenizer import ByteEngine, Tokenizer
from ..core.vocabulary import CONTROL, NORMAL, Vocabulary, byte_level, letters_bytes, written

CODE = "E-TOKENIZER-TIKTOKEN"
LLAMA3 = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|reserved_special_token_0|>",
    "<|reserved_special_token_1|>",
    "<|finetune_right_pad_id|>",
    "<|step_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|python_tag|>",
    *(f"<|reserved_special_token_{number}|>" for number in range(2, 247)),
)
QWEN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{number}|>" for number in range(205)))
GLM4 = (
    "<|endoftext|>",
    "[MASK]",
    "[gMASK]",
    "[sMASK]",
    "<sop>",
    "<eop>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
    "<|begin_of_image|>",
    "<|end_of_image|>",
    "<|begin_of_video|>",
    "<|end_of_video|>",
)


@dataclass(frozen=True)
class Family:
    """Defaults of a model family that its files do not state: special tokens, pre-tokenizer, strings of roles, opening
    tokens, and end tokens other than EOS."""

    special: tuple[str, ...]
    pre: str
    roles: Mapping[str, str]
    opening: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()


FAMILIES = {
    "llama3": Family(
        LLAMA3,
        "llama-bpe",
        {"bos": "<|begin_of_text|>", "eos": "<|end_of_text|>", "pad": "<|finetune_right_pad_id|>"},
        ("<|begin_of_text|>",),
    ),
    "qwen": Family(QWEN, "qwen2", {"eos": "<|endoftext|>", "pad": "<|endoftext|>"}),
    "whisper": Family((), "gpt-2", {"eos": "<|endoftext|>", "pad": "<|endoftext|>"}),
    "glm4": Family(
        GLM4,
        "glm4",
        {"eos": "<|endoftext|>", "pad": "<|endoftext|>"},
        ("[gMASK]", "<sop>"),
        ("<|user|>", "<|observation|>"),
    ),
}


def family_of(name: str, model_type: object) -> Family:
    """The family of a file by its name and its directory's model type."""
    if model_type == "whisper":
        return FAMILIES["whisper"]
    return FAMILIES[
        "qwen" if name.endswith(".tiktoken") else "glm4" if model_type in ("chatglm", "glm", "glm4") else "llama3"
    ]


def looks_like(data: bytes) -> bool:
    """Whether a file begins with a base64 token and its rank."""
    parts = data[:200].split(b"\n")[0].split(b" ")
    return len(parts) == 2 and parts[1].strip().isdigit() and len(parts[0]) % 4 == 0 and parts[0].strip(b"=").isalnum()


def from_tiktoken(
    data: bytes,
    family: Family,
    templates: Mapping[str, str],
    path: str | None = None,
    added: Mapping[int, tuple[str, bool]] | None = None,
) -> Tokenizer:
    """The tokenizer of a tiktoken file. FormatError for invalid lines.

    Args:
        added: special tokens that other files name, instead of the family's.
    """
    pieces = _pieces(data, path)
    own = _behind(added or {}, len(pieces)) or family.special
    texts = [*(written(piece) for piece in pieces), *own]
    kinds = [*[NORMAL] * len(pieces), *[CONTROL] * len(own)]
    roles = {role: len(pieces) + own.index(text) for role, text in family.roles.items() if text in own}
    vocabulary = Vocabulary(texts, kinds, roles=roles)
    vocabulary = replace(vocabulary, roles={**found_by_text(vocabulary), **roles})
    vocabulary = replace(
        vocabulary, ends=end_tokens(vocabulary) | {len(pieces) + own.index(text) for text in family.ends if text in own}
    )
    special = Leftmost([(text, len(pieces) + index) for index, text in enumerate(own)])
    engine = ByteEngine(
        vocabulary, letters_bytes, Ranked(vocabulary, len(pieces), PRE[family.pre]), special, Leftmost(())
    )
    opening = [len(pieces) + own.index(text) for text in family.opening if text in own]
    return Tokenizer(vocabulary, engine, opening=opening, templates=templates, origin="tiktoken")


def _behind(added: Mapping[int, tuple[str, bool]], count: int) -> Sequence[str]:
    """Strings of tokens after the first `count`, if their ids are contiguous."""
    texts = [text for token, (text, _) in sorted(added.items()) if token >= count]
    return texts if texts and all(count + index in added for index in range(len(texts))) else ()


def _pieces(data: bytes, path: str | None) -> list[bytes]:
    """Tokens by rank."""
    found: dict[int, bytes] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            found[int(rank)] = b"" if token == b"=" else base64.b64decode(token, validate=True)
        except (ValueError, binascii.Error) as error:
            raise FormatError(CODE, path, f"line {number} is not a base64 token with its rank") from error
    if sorted(found) != list(range(len(found))):
        raise FormatError(CODE, path, "the ranks are not 0, 1, 2 and so on")
    return [found[rank] for rank in range(len(found))]


class Ranked:
    """Words to ids; the pair whose union has the lowest rank is merged first."""

    def __init__(self, vocabulary: Vocabulary, count: int, splitting: Splitting) -> None:
        self._ranks = {text: token for token, text in enumerate(vocabulary.texts[:count])}
        self._splitting = splitting

    def encode(self, text: str) -> list[int]:
        """The ids of a text without special tokens."""
        ranks = self._ranks
        found: list[int] = []
        for word in map(byte_level, self._splitting.words(text)):
            parts = [word] if word in ranks else merged(list(word), lambda one, other: ranks.get(one + other))
            found += [ranks[part] for part in parts if part in ranks]
        return found
