"""Model architectures, one file per family: hyper-parameters, weight bindings and graph builders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime.plugin.provided import Provided

PROVIDED = Provided(__name__)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    load: Callable[..., Any]
else:
    __getattr__ = PROVIDED.get
