"""ChatGLM 2 and 3: a SentencePiece model followed by special tokens that no file lists, which prefixes every text with
two.

Source: the tokenizer class that the models were published with, which is not run.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..core.tokenizer import Tokenizer
from .sentencepiece import Model, from_model

CLASSES = ("ChatGLMTokenizer",)
"""Values of tokenizer_config.json's `tokenizer_class`."""
SPECIAL = ("[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
OPENING = ("[gMASK]", "sop")
TURNS = ("<|user|>", "<|observation|>")
"""Tokens with which a model ends its turn."""
TEXTS = ("<unk>", "<bos>", "<eos>")
"""Texts of the first three tokens in GGUF files."""


def own_tokens(model: Model) -> dict[int, tuple[str, bool]]:
    """The tokens after the pieces, as `from_model` wants them."""
    return {len(model.pieces) + index: (text, True) for index, text in enumerate(SPECIAL)}


def from_chatglm(
    model: Model, added: Mapping[int, tuple[str, bool]], templates: Mapping[str, str], path: str | None = None
) -> Tokenizer:
    """The tokenizer of a model.

    Args:
        added: tokens that other files name.
    """
    own = own_tokens(model)
    opening = [token for token, (text, _) in own.items() if text in OPENING]
    turns = [token for token, (text, _) in own.items() if text in TURNS]
    return from_model(
        model, {**added, **own}, templates, path=path, add_bos=False, add_eos=False, opening=opening, ends=turns
    )
