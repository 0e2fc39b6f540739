"""ChatGLM 2 and 3: a SentencePiece model, behind whose pieces come tokens that no file names, and which begins every text with two of them.

Source: the tokenizer class that the models were published with, which is not run.
"""

from __future__ import annotations

from collections.abc import Mapping

from .sentencepiece import Model, from_model
from .tokenizer import Tokenizer

CLASSES = ("ChatGLMTokenizer",)
"""Values of tokenizer_config.json's `tokenizer_class`."""
SPECIAL = ("[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
OPENING = ("[gMASK]", "sop")
TURNS = ("<|user|>", "<|observation|>")
"""What a model says when it is somebody else's turn."""
TEXTS = ("<unk>", "<bos>", "<eos>")
"""What GGUF files call the first three tokens."""


def own_tokens(model: Model) -> dict[int, tuple[str, bool]]:
    """The tokens behind the pieces, as `from_model` wants them."""
    return {len(model.pieces) + place: (text, True) for place, text in enumerate(SPECIAL)}


def from_chatglm(model: Model, added: Mapping[int, tuple[str, bool]], templates: Mapping[str, str], path: str | None = None) -> Tokenizer:
    """The tokenizer of a model.

    Args:
        added: tokens that other files name.
    """
    own = own_tokens(model)
    opening = [token for token, (text, _) in own.items() if text in OPENING]
    turns = [token for token, (text, _) in own.items() if text in TURNS]
    return from_model(model, {**added, **own}, templates, path=path, add_bos=False, add_eos=False, opening=opening, ends=turns)
