"""Run options: threads, deadline, taps and clock of one run on the CPU."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ..base.dataclass import dataclass
from ..base.errors import LimitError
from ..base.limits import current

if TYPE_CHECKING:
    from ..base.untrusted.regex import Searcher
    from .timing import Clock

OnTap: TypeAlias = Callable[[str, Any], None]


@dataclass(frozen=True)
class RunOptions:
    """Options of one run.

    Attributes:
        native: whether to use compiled kernels.
        taps: pattern for names of intermediate values (subgraph path first) that are passed to `on_tap`.
        deadline: latest end, in seconds of the monotonic clock.
        clock: records the duration of every launch and Python step.
    """

    threads: int
    native: bool
    taps: Searcher | None = None
    on_tap: OnTap | None = None
    deadline: float = math.inf
    clock: Clock | None = None

    def check_deadline(self) -> None:
        """Raise LimitError after the deadline."""
        if time.monotonic() > self.deadline:
            why = f"the run exceeds the time limit of {current().time:g} s"
            raise LimitError("E-RUN-TIME", None, why, hint="Raise it with --limit time=30m")
