"""Type selection for every tensor of a model: user options, then recipe rules, then fallbacks for row lengths."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UnsupportedError
from ....runtime.base.units import counted
from ....runtime.base.untrusted.regex import compiled
from ....runtime.tensor.dtype import BlockType, DType
from ...translate.model_facts import Model, Weight
from .mix import EMBEDDING, FALLBACKS, OUTPUT
from .rule import Decider, Recipe, type_named

SECOND_EMBEDDING = "per_layer_token_embd.weight"
FALLBACK_BLOCK = 32
"""Elements of a block of every fallback type."""
KEPT = "kept by a rule"
"""The reason for tensors whose type no option names and no rule changes."""
NEEDS_IMPORTANCE = frozenset({"iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs"})
"""Types that are not worth having without an importance matrix, embedding and output excepted, as llama-quantize sees
it."""
NEEDS_IMPORTANCE_IN = {"q2_k_s": frozenset({"q2_k"})}


@dataclass(frozen=True)
class Wishes:
    """The user's options besides the recipe.

    Attributes:
        tensor_types: pairs of pattern and type name; the first match wins over the recipe.
        output, embedding: types of output.weight and of the token embedding.
        leave_output: output.weight is not quantized.
        pure: the recipe's rules are left out.
        copy: nothing is quantized.
    """

    tensor_types: tuple[tuple[str, str], ...] = ()
    output: str | None = None
    embedding: str | None = None
    leave_output: bool = False
    pure: bool = False
    copy: bool = False


@dataclass(frozen=True)
class Choice:
    """The type chosen for one tensor, with the reason.

    Attributes:
        wanted: the type that was chosen.
        dtype: the type it gets, a fallback if its rows are not a multiple of the block size.
        reason: the rule that decided, for tables.
        chosen: False for tensors that are left alone.
        packing: name of the way in which it is stored as several tensors, "" for one tensor; packed_nbytes: of these.
    """

    weight: Weight
    wanted: DType
    dtype: DType
    reason: str
    chosen: bool = True
    packing: str = ""
    packed_nbytes: int = 0

    @property
    def type_name(self) -> str:
        """The name of what it is stored as."""
        return self.packing or self.dtype.name

    @property
    def fallback(self) -> bool:
        return self.wanted != self.dtype

    @property
    def changes(self) -> bool:
        return self.dtype != self.weight.dtype


class Chooser:
    """Decides one tensor after the other, in the order of the output."""

    def __init__(
        self, recipe: Recipe, model: Model, weights: Sequence[Weight], wishes: Wishes, *, importance: bool
    ) -> None:
        self.recipe = recipe
        self.model = model
        self.wishes = wishes
        self.overrides = [(compiled(pattern), pattern, type_named(name)) for pattern, name in wishes.tensor_types]
        self.used: set[str] = set()
        self.decider = Decider(recipe, model, weights, importance=importance)

    def choose(self, weight: Weight) -> Choice:
        """The type of a tensor; to be asked once for each."""
        kept = self._kept(weight)
        if kept is not None:
            return Choice(weight, weight.dtype, weight.dtype, kept, chosen=False)
        wanted, reason = self._option(weight) or self._ruled(weight)
        return Choice(weight, wanted, fitting(weight, wanted), reason)

    def _kept(self, weight: Weight) -> str | None:
        if self.wishes.copy:
            return "copied"
        if not weight.quantizable(self.model.arch):
            return "left alone"
        if self.wishes.leave_output and weight.name == "output.weight":
            return "--leave-output-tensor"
        return None

    def _option(self, weight: Weight) -> tuple[DType, str] | None:
        """The type that an option sets for this tensor."""
        wishes = self.wishes
        override = next(
            ((pattern, dtype) for regex, pattern, dtype in self.overrides if regex.search(weight.name)), None
        )
        embedding = re.search(EMBEDDING, weight.name) is not None
        if embedding and wishes.embedding is not None and (override is None or weight.name != SECOND_EMBEDDING):
            return type_named(wishes.embedding), "--token-embedding-type"
        if wishes.output is not None and re.search(OUTPUT, weight.name):
            return type_named(wishes.output), "--output-tensor-type"
        if override is not None:
            self.used.add(override[0])
            return override[1], f"--tensor-type {override[0]}"
        if (
            wishes.output is not None
            and embedding
            and self.decider.tied
            and not wishes.pure
            and isinstance(self.recipe.base, BlockType)
        ):
            return type_named(wishes.output), "--output-tensor-type"
        return None

    def _ruled(self, weight: Weight) -> tuple[DType, str]:
        """The type that the recipe sets."""
        rule = None if self.wishes.pure else self.decider.rule(weight)
        if rule is None:
            base = self.recipe.base
            return (weight.dtype, KEPT) if base is None else (base, "base")
        dtype = rule.dtype
        return (
            (weight.dtype, KEPT)
            if dtype is None
            else (dtype, rule.match if not rule.when else f"{rule.match} if {rule.when}")
        )

    @property
    def unused(self) -> list[str]:
        """Patterns of --tensor-type that decided nothing."""
        return [pattern for _, pattern, _ in self.overrides if pattern not in self.used]


def fitting(weight: Weight, wanted: DType) -> DType:
    """The requested type, or its fallback if the rows are not a multiple of its block size; f16 if that does not fit
    either.

    Raises UnsupportedError for matrices where the type is without a fallback, as llama-quantize does. Kernels of
    convolutions, which it does not know, become f16.
    """
    if not isinstance(wanted, BlockType) or weight.columns % wanted.block == 0:
        return wanted
    name = FALLBACKS.get(wanted.name)
    refused = name is None and wanted.block > FALLBACK_BLOCK
    if weight.columns % FALLBACK_BLOCK and not (refused and len(weight.shape) < 3):
        return type_named("f16")
    if name is None:
        why = (
            f"rows of {weight.name!r} have {counted(weight.columns, 'element')}, not a multiple of {wanted.block}, "
            f"and {wanted.name} has no fallback type"
        )
        raise UnsupportedError(
            "E-QUANT-FALLBACK",
            None,
            why,
            hint=f"Use --tensor-type '{re.escape(weight.name)}=q8_0', or another base type",
        )
    return type_named(name)


def needs_importance(choice: Choice, recipe: Recipe) -> bool:
    """Whether a tensor may only be encoded with an importance matrix."""
    name = choice.weight.name
    if re.search(EMBEDDING, name) or re.search(OUTPUT, name):
        return False
    return choice.dtype.name in NEEDS_IMPORTANCE | NEEDS_IMPORTANCE_IN.get(recipe.name, frozenset())
