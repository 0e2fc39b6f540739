"""Model architectures, one file per family: hyper-parameters, weight bindings and graph builders."""

from __future__ import annotations

from ..runtime.plugin.provided import Provided

PROVIDED = Provided(__name__)
__getattr__ = PROVIDED.get
__dir__ = PROVIDED.names
