"""Rules that choose tensor types: the first match decides, tensors without a match get the base type."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UsageError
from ....runtime.base.untrusted.regex import Pattern, compiled
from ....runtime.tensor.dtype import DTYPES, DType, dtype_named, plain_name
from ...translate.gguf_file_type import ALIASES, BY_NAME, COPY
from ...translate.model_facts import Model, Weight
from .rule_expression import Expression, parse

NAMES = frozenset(
    (
        "layer",
        "n",
        "index",
        "count",
        "depth",
        "experts",
        "gqa",
        "arch",
        "imatrix",
        "tied",
        "columns",
        "rows",
        "matrices",
        "block",
        "dtype",
    )
)
"""Names that conditions can use; see `facts`."""
KEEP = "keep"
"""The type of a rule whose tensors stay as they are."""


@dataclass(frozen=True)
class Rule:
    """A row of a recipe.

    Attributes:
        match: regular expression searched in the tensor's name.
        type: name of a dtype, or ``keep``.
        when: condition, "" for none.
    """

    match: str
    type: str
    when: str = ""

    @functools.cached_property
    def pattern(self) -> Pattern:
        return compiled(self.match)

    @functools.cached_property
    def condition(self) -> Expression | None:
        return parse(self.when, NAMES) if self.when else None

    @property
    def dtype(self) -> DType | None:
        """The type, None to keep the tensor's."""
        return None if self.type == KEEP else type_named(self.type)

    def check(self) -> None:
        """Raise UsageError for a pattern, a condition or a type that is none."""
        _ = self.pattern, self.condition, self.dtype


@dataclass(frozen=True)
class Recipe:
    """A base type and the exceptions from it.

    Attributes:
        name: for tables.
        base: of the tensors that no rule matches, None to keep theirs.
        on_fallback: ``warn``, or ``error`` to refuse a model with a tensor whose rows the chosen type cannot hold.
        metadata: keys to set in the output.
        file_type: llama.cpp's number for general.file_type, None to take that of the most frequent type.
    """

    name: str
    base: DType | None
    rules: tuple[Rule, ...] = ()
    on_fallback: str = "warn"
    metadata: tuple[tuple[str, Any], ...] = ()
    file_type: int | None = None


def type_named(name: str) -> DType:
    """The dtype with that name, in any case and spelling; UsageError for unknown ones."""
    mix = BY_NAME.get(plain_name(name))
    if mix is not None and mix.name != mix.base and mix.name not in DTYPES:
        hint = f"For a single type use {mix.base}; a mix is the argument TYPE of quantize, or --quantize of convert"
        raise UsageError(
            "E-QUANT-TYPE", None, f"{name} is a mix of types for a whole file, not the type of one tensor", hint=hint
        )
    return dtype_named(name, "E-QUANT-TYPE", (*BY_NAME, *ALIASES, COPY, "auto"))


class Decider:
    """Applies a recipe's rules to the tensors of a model, in order.

    Args:
        weights: all tensors, those that stay as they are included.
        importance: whether there is an importance matrix.
    """

    def __init__(self, recipe: Recipe, model: Model, weights: Sequence[Weight], *, importance: bool) -> None:
        self.recipe = recipe
        self.model = model
        self.importance = importance
        names = [weight.name for weight in weights]
        self.matches: dict[str, list[str]] = {name: [] for name in names}
        for match, pattern in {rule.match: rule.pattern for rule in recipe.rules}.items():
            for name in itertools.compress(names, pattern.among(names)):
                self.matches[name].append(match)
        self.count = Counter(itertools.chain.from_iterable(self.matches.values()))
        self.index: Counter[str] = Counter()
        self.tied = all(weight.name != "output.weight" for weight in weights)

    def rule(self, weight: Weight) -> Rule | None:
        """The rule that decides this tensor, None where the base type does; to be asked once for each tensor."""
        matches = self.matches[weight.name]
        found = next((rule for rule in self.recipe.rules if rule.match in matches and self._holds(rule, weight)), None)
        self.index.update(matches)
        return found

    def _holds(self, rule: Rule, weight: Weight) -> bool:
        return rule.condition is None or rule.condition.true(self.facts(rule, weight))

    def facts(self, rule: Rule, weight: Weight) -> Mapping[str, Any]:
        """Variables of a rule's condition, by name.

        - layer: number in the name, -1 without one.
        - n: blocks of the model.
        - index: how many tensors that match the rule's pattern came before, without those that options decide or that
          are not quantized; count: how many the model has.
        - depth: layer in models with experts, else index.
        - gqa: query heads for each key head.
        - imatrix: whether there is an importance matrix.
        - tied: whether the model lacks output.weight.
        - columns, rows, matrices: lengths from the fastest dimension on.
        - block: size of the base type's blocks.
        - dtype: the tensor's current dtype.
        """
        base = self.recipe.base
        index = self.index[rule.match]
        return {
            "layer": weight.layer,
            "n": self.model.layers,
            "index": index,
            "count": self.count[rule.match],
            "depth": weight.layer if self.model.experts > 1 else index,
            "experts": self.model.experts,
            "gqa": self.model.gqa,
            "arch": self.model.arch,
            "imatrix": self.importance,
            "tied": self.tied,
            "columns": weight.columns,
            "rows": weight.rows,
            "matrices": weight.matrices,
            "block": 1 if base is None else base.block,
            "dtype": weight.dtype.name,
        }
