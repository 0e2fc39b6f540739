"""A kind of page: which tasks it is for, which npm package runs its models, and what the page has to know of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.plugin.discovery import below
from .npm_packages import Runtime

KINDS = below(f"{__package__}.kinds", "KIND")
"""Kinds by the name of their module, which is that of their script too."""


@dataclass(frozen=True)
class Kind:
    """A kind of page.

    Attributes:
        tasks: names of the tasks whose models it runs.
        title: what the page does, in words.
        runtime: what runs the model in the browser.
        needs: names of files next to the graphs that the runtime reads.
        facts: what the page has to know of a loaded model, as JSON.
    """

    tasks: tuple[str, ...]
    title: str
    runtime: Runtime
    needs: tuple[str, ...] = ()
    facts: Callable[[Any], Mapping[str, Any]] = lambda model: {}
