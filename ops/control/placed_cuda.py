"""Control flow on the device: the host reads what decides, and nothing else; states, entries and what is collected stay there."""

from __future__ import annotations

from ...runtime.cuda.place import controlled
from .branch import if_
from .loop import loop
from .scan import scan

controlled(if_, looks=(0,))
controlled(loop, looks=(0, 1))
controlled(scan)
