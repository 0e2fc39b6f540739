"""Special-token roles inferred from token strings: vocabularies rarely state which tokens end a turn or pad.

Source: llama.cpp's llama_vocab::impl::load.
"""

from __future__ import annotations

from .vocabulary import CONTROL, NORMAL, USER_DEFINED, Vocabulary

NAMES = {
    "eot": (
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "<｜end▁of▁sentence｜>",
        "<end_of_utterance>",
    ),
    "eom": ("<|eom_id|>",),
    "fim_pre": (
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
"""Token strings by role, the more likely first."""
ENDS = frozenset(
    (
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|flush|>",
        "<|calls|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "</s>",
        "<|eom_id|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<|end_of_text|>",
        "<end_of_utterance>",
        "<eos>",
        "<turn|>",
        "<|tool_response>",
        "<｜end▁of▁sentence｜>",
        "[e~[",
    )
)
"""Strings of tokens that end a generation."""
END_ROLES = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
SHOWN = frozenset(("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"))
"""Markers of gpt-oss that are kept in the text."""


def found_by_text(vocabulary: Vocabulary) -> dict[str, int]:
    """Ids of roles that the vocabulary does not state."""
    find = vocabulary.finder.get
    found = {}
    for role, names in NAMES.items():
        if role not in vocabulary.roles:
            token = next((token for token in map(find, names) if token is not None), None)
            if token is not None:
                found[role] = token
    return found


def end_tokens(vocabulary: Vocabulary) -> frozenset[int]:
    """Ids that end a generation."""
    named = {vocabulary.texts[token]: token for token in vocabulary.finder.every(ENDS)}
    ends = set(named.values()) | {vocabulary.roles[role] for role in END_ROLES if role in vocabulary.roles}
    texts = {vocabulary.texts[token] for token in ends}
    calls = texts & {"<|call|>", "<|calls|>"}
    if "<|end|>" in named and calls and texts & {"<|return|>", "<|flush|>"}:
        ends.discard(named["<|end|>"])
    if "</s>" in named and texts & {"<|tool_response>", "<|plamo:eos|>"}:
        ends.discard(named["</s>"])
    return frozenset(ends)


def corrected(vocabulary: Vocabulary, ends: frozenset[int]) -> bytes:
    """Token types; tokens that end a turn or pad become control tokens whatever the file states."""
    kinds = bytearray(vocabulary.kinds)
    for role in NAMES:
        if role in vocabulary.roles and vocabulary.texts[vocabulary.roles[role]] in NAMES[role]:
            kinds[vocabulary.roles[role]] = CONTROL
    for token in vocabulary.finder.every(ENDS):
        kinds[token] = CONTROL if token in ends else NORMAL if vocabulary.texts[token] == "</s>" else USER_DEFINED
    for token in vocabulary.finder.every(SHOWN):
        kinds[token] = USER_DEFINED
    return bytes(kinds)
