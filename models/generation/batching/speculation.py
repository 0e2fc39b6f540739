"""Speculative decoding: proposed tokens are verified by one run of the model, and those that it would not have chosen
are dropped (Leviathan et al. 2023, arXiv:2211.17192)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UsageError
from ....runtime.base.units import counted
from .draft_model import DraftModel
from .drafter import Drafter, Speculator
from .model_rows import BatchModel, MakesRows, RowModel, decoding_rows
from .prompt_lookup import PromptLookup
from .proposed_tokens import MAX_PROPOSED
from .rows import Rows

if TYPE_CHECKING:
    from ...tokenizer import Tokenizer

LOOKUP_TOKENS, DRAFT_TOKENS = 8, 4
"""Default limits of proposed tokens: by prompt lookup, and by a draft model."""


@dataclass(frozen=True)
class Speculation:
    """Settings of speculative decoding: proposals of tokens.

    Attributes:
        draft: a smaller model with the same vocabulary; None for prompt lookup.
        tokens: limit of proposed tokens of a step, 1 to `MAX_PROPOSED`; None for the default.

    Raises UsageError for another limit.
    """

    draft: RowModel | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        found: Any = self.tokens
        whole = isinstance(found, int) and not isinstance(found, bool)
        if found is not None and not (whole and 1 <= found <= MAX_PROPOSED):
            why, expected = "speculate is out of range", f"an integer from 1 to {MAX_PROPOSED}"
            raise UsageError("E-SPECULATE-RANGE", None, why, expected=expected, found=repr(found))

    @property
    def limit(self) -> int:
        """Most proposed tokens of a step."""
        return self.tokens or (LOOKUP_TOKENS if self.draft is None else DRAFT_TOKENS)


def speculation_of(draft: RowModel | None, tokens: int | None) -> Speculation | None:
    """The speculation of two options; None without either, or for no tokens."""
    none = tokens == 0 and tokens is not False
    return None if none or (draft is None and tokens is None) else Speculation(draft, tokens)


def speculator_of(model: BatchModel, rows: Rows, count: int, speculation: Speculation) -> Speculator:
    """Draft model or lookup that proposes tokens for the rows of a model.

    Raises UsageError for an encoder-decoder, rotary frequencies that depend on the length of a run, states that cannot
    be cut back, and a draft that is not a language model or has another vocabulary.
    """
    if isinstance(model, MakesRows) or rows.reads_source:
        raise UsageError("E-SPECULATE-MODEL", None, "speculation needs a language model, found an encoder-decoder")
    if model.rotary_by_length is not None:
        why = (
            f"speculation would change the text: the rotary scaling {model.rotary_by_length} depends on a run's length"
        )
        raise UsageError("E-SPECULATE-MODEL", None, why, hint="Generate without --speculate and --draft")
    rows.check_truncates()
    drafter: Drafter = PromptLookup()
    if speculation.draft is not None:
        check_draft(model, speculation.draft)
        limits = [limit for limit in (rows.context, speculation.draft.context) if limit is not None]
        drafts = decoding_rows(speculation.draft, count, min(limits, default=None), None)
        drafts.check_truncates()
        drafter = DraftModel(drafts, len(model.tokenizer))
    return Speculator(drafter, speculation.limit)


def check_draft(model: BatchModel, draft: RowModel) -> None:
    """UsageError for a draft that is not a language model, or whose tokens are not those of the model."""
    if not hasattr(draft, "can_batch") or isinstance(draft, MakesRows):
        expected, found = "a language model", type(draft).__name__
        why = "the draft does not continue texts"
        raise UsageError("E-SPECULATE-MODEL", None, why, expected=expected, found=found)
    _check_vocabulary(model.tokenizer, draft.tokenizer)


def _check_vocabulary(ours: Tokenizer, theirs: Tokenizer) -> None:
    """UsageError for a draft's tokenizer whose tokens are not those of the model's."""
    if ours is theirs:
        return
    expected, found = counted(len(ours), "token"), counted(len(theirs), "token")
    if len(ours) == len(theirs):
        texts = ours.vocabulary.texts, theirs.vocabulary.texts
        token = next((token for token, (one, other) in enumerate(zip(*texts, strict=True)) if one != other), None)
        if token is None:
            return
        expected, found = f"{texts[0][token]!r} as token {token}", repr(texts[1][token])
    raise UsageError(
        "E-SPECULATE-VOCABULARY",
        None,
        "the draft has another vocabulary than the model",
        expected=expected,
        found=found,
        hint="Pass a smaller model of the same family",
    )
