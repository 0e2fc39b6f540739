"""Weight selection and renaming, by regular expressions and by a name map."""

from __future__ import annotations

from collections.abc import Iterable

from ...base.dataclass import dataclass
from ...base.errors import UsageError
from ...base.units import counted
from ...base.untrusted.regex import compiled
from ...ir.graph import Graph


@dataclass(frozen=True)
class Select:
    """A selection of weights, and their new names.

    Attributes:
        include, exclude: patterns searched in the original names; without `include` all stay.
        rename: pairs of pattern and replacement (``\\1`` is a group), applied in order to every name.
        names: exact new names by original name, taken before `rename`.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    names: tuple[tuple[str, str], ...] = ()

    def run(self, graph: Graph) -> bool:
        """Change `graph.weights`; return whether anything changed."""
        include, exclude = ([compiled(pattern) for pattern in patterns] for patterns in (self.include, self.exclude))
        before = list(graph.weights)
        kept = [
            name
            for name in before
            if (not include or any(pattern.search(name) for pattern in include))
            and not any(pattern.search(name) for pattern in exclude)
        ]
        if before and not kept:
            hint = "Check --include and --exclude against inspect"
            raise UsageError("E-SELECT-NONE", None, f"none of {counted(len(before), 'tensor')} is selected", hint=hint)
        exact = dict(self.names)
        for name in exact.keys() - graph.weights.keys():
            raise UsageError("E-SELECT-MAP", None, f"the map renames {name!r}, which is not in the file")
        renamed = [exact.get(name, name) for name in kept]
        for pattern, replacement in self.rename:
            renamed = compiled(pattern).replaced(replacement, renamed)
        weights = {}
        for name, new in zip(kept, renamed, strict=True):
            if new in weights:
                why = f"two tensors would get the name {new!r}"
                raise UsageError("E-SELECT-TWICE", None, why, hint="Make the --rename pattern stricter")
            weights[new] = graph.weights[name]
        graph.weights = weights
        return list(weights) != before

    def split(self, names: Iterable[str]) -> tuple[Select, Select]:
        """A selection that renames some of these names, and one for the rest, which keeps or drops weights by their
        output names."""
        exact = dict(self.names)
        current = list(names)
        own = {name: new for name, new in exact.items() if name in set(current)}
        current = [own.get(name, name) for name in current]
        early: list[tuple[str, str]] = []
        late: list[tuple[str, str]] = []
        for pattern, replacement in self.rename:
            renamed = compiled(pattern).replaced(replacement, current)
            (late if renamed == current else early).append((pattern, replacement))
            current = renamed
        rest = tuple((name, new) for name, new in self.names if name not in own)
        return (
            Select(rename=tuple(early), names=tuple(own.items())),
            Select(self.include, self.exclude, tuple(late), rest),
        )
