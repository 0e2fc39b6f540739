"""candle-convert: every model format in, every model format out, one graph, and proof that the result computes the same
thing.

The names below, and the functions of tensors, load on first use; importing the package itself loads neither numpy,
numba, onnx nor torch.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from . import models as models
from . import nn as nn
from . import ops as ops
from .runtime.base import __version__ as __version__
from .runtime.plugin import cluster_handle as _cluster_handle
from .runtime.plugin.after_import import after_import as _after_import
from .runtime.plugin.second_names import provide_second_names as _provide_second_names
from .torch_compat import names as _second_names

_EXPORTS = {
    "convert.api.convert": ("hash", "load_file", "open", "plan", "save_file"),
    "convert.compare.certificate": ("verify",),
    "convert.compare.diff": ("diff",),
    "convert.api.custom_op": ("register_op",),
    "convert.api.tensor_files": ("load", "save"),
    "convert.cluster.handle": ("cluster",),
    "convert.api.inference_session": ("InferenceSession",),
    "convert.api.onnx_model": ("OnnxModel",),
    "convert.write.conversion_options": ("Options",),
    "convert.console.progress": ("RichProgress",),
    "convert.quantize.array_api": ("decode", "encode"),
    "convert.quantize.api": ("Recipe", "quantize"),
    "convert.check.scan": ("scan",),
    "runtime.base.compile_progress": ("CompileProgress", "on_compile"),
    "runtime.base.errors": (
        "Error",
        "FileAccessError",
        "FormatError",
        "LimitError",
        "UnsafeFileError",
        "UnsupportedError",
        "UsageError",
    ),
    "runtime.ir.graph": ("Graph",),
    "runtime.base.limits": ("limits",),
    "runtime.tensor.stored_tensor": ("StoredTensor",),
    "training.callbacks.callback": ("Callback",),
    "training.keras.fit.model": ("Model", "Sequential"),
    "training.lightning.cli.lightning_cli": ("LightningCLI",),
    "training.lightning.data_module": ("LightningDataModule",),
    "training.lightning.lightning_module": ("LightningModule",),
    "training.lightning.trainer": ("Trainer",),
    "training.loop.random_state": ("seed_everything",),
}
_MODULES = {
    "convert": "convert",
    "onnx": "convert.api.onnx",
    "optim": "optim",
    "autograd": "tensors.autograd.public",
    "random": "tensors.random",
    "distributions": "tensors.distributions",
    "fft": "tensors.complex.fourier",
    "func": "nn.func",
    "keras": "training.keras",
    "linalg": "tensors.linalg",
    "callbacks": "training.callbacks",
    "data": "training.data",
    "loggers": "training.loggers",
}
"""Modules under the names that they have here; `convert` can be called too."""
_provide_second_names(
    {
        f"{__name__}.{name}": f"{__name__}.{module}"
        for name, module in {**_MODULES, **_second_names.MODULES, **_second_names.SUBMODULES}.items()
        if name not in ("convert", "optim")
    }
)
for _neighbour, _adapter in {"einops._backends": "einops_backend", "einops.layers": "einops_layers"}.items():
    _after_import(
        _neighbour,
        lambda module, name=_adapter: importlib.import_module(f".torch_compat.neighbours.{name}", __name__).register(
            module
        ),
    )
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names}
_FORMER = {"LazyTensor": "Tensor"}
"""Names of earlier versions, and the names that replace them."""
_MISSING = object()
_OWN = ("__version__", "models", "nn", "ops", *_MODULES, *_MODULE_OF)
"""Names besides functions of tensors and dtypes."""
models.PROVIDED.provide("load", lambda: importlib.import_module(".convert.load.load_model", __name__).load)
nn.PROVIDED.provide("read_weights", lambda: importlib.import_module(".convert.api.tensor_files", __name__).read_weights)
nn.PROVIDED.provide("write_tensors", lambda: importlib.import_module(".convert.api.tensor_files", __name__).save)
nn.PROVIDED.provide("write_graph", lambda: importlib.import_module(".convert.api.onnx", __name__).write)
models.PROVIDED.provide_classes(
    lambda name: importlib.import_module(".convert.trainable.front", __name__).model_class(name),
    lambda: importlib.import_module(".convert.trainable.class_names", __name__).class_names(),
)
models.PROVIDED.provide_classes(
    lambda name: importlib.import_module(".convert.trainable.pretrained_tokenizer", __name__).tokenizer_class(name),
    lambda: importlib.import_module(".convert.trainable.tokenizer_names", __name__).tokenizer_names(),
)
_cluster_handle.PROVIDED.provide("handle", lambda: importlib.import_module(".convert.cluster.handle", __name__).cluster)
ops.PROVIDED.provide("missing", lambda: importlib.import_module(".convert.run.operator_coverage", __name__).missing_of)


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name) or _second_names.MODULES.get(name)
    if module is not None:
        return importlib.import_module(f".{module}", __name__)
    module = _MODULE_OF.get(name)
    if module is not None:
        return getattr(importlib.import_module(f".{module}", __name__), name)
    from .tensors.namespace import public

    found = public(name, _MISSING)
    if found is not _MISSING:
        return found
    module = _second_names.OBJECTS.get(name)
    if module is not None:
        return getattr(importlib.import_module(f".{module}", __name__), name)
    if name == "__all__":
        return __dir__()
    if name in _FORMER:
        warnings.warn(f"cc.{name} is cc.{_FORMER[name]} now", DeprecationWarning, stacklevel=2)
        return __getattr__(_FORMER[name])
    from .runtime.base.nearest_name import nearest

    meant = None if name.startswith("_") else nearest(name, (*__dir__(), *_second_names.OBJECTS))
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}{f'. Did you mean {meant!r}?' if meant else ''}"
    )


def __dir__() -> list[str]:
    """Names to use. Those of PyTorch in `torch_compat`, and functions that change their argument, can be used too."""
    from .tensors.namespace import PUBLIC

    return sorted({*_OWN, *(name for name in PUBLIC if not name.endswith("_"))})
