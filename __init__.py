"""candle-convert: every model format in, every model format out, one graph, and proof that the result computes the same
thing.

The names below, and the functions of tensors, load on first use; importing the package itself loads neither numpy,
numba, onnx nor torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import models as models
from . import nn as nn
from . import ops as ops
from .runtime.base.version import __version__ as __version__
from .runtime.plugin.second_names import provide_second_names as provide_second_names

if TYPE_CHECKING:
    from .convert.api import onnx as onnx
    from .convert.api.convert import convert as convert
    from .convert.api.convert import hash as hash
    from .convert.api.convert import load_file as load_file
    from .convert.api.convert import open as open
    from .convert.api.convert import plan as plan
    from .convert.api.convert import save_file as save_file
    from .convert.api.custom_op import register_op as register_op
    from .convert.api.functions import erf as erf
    from .convert.api.functions import gelu as gelu
    from .convert.api.functions import relu as relu
    from .convert.api.functions import sigmoid as sigmoid
    from .convert.api.functions import silu as silu
    from .convert.api.functions import softmax as softmax
    from .convert.api.inference_session import InferenceSession as InferenceSession
    from .convert.api.tensor_class import Tensor as Tensor
    from .convert.api.tensor_files import load as load
    from .convert.api.tensor_files import save as save
    from .convert.check.scan import scan as scan
    from .convert.compare.certificate import verify as verify
    from .convert.compare.diff import diff as diff
    from .convert.console.progress import RichProgress as RichProgress
    from .convert.quantize.api import Recipe as Recipe
    from .convert.quantize.api import quantize as quantize
    from .convert.quantize.array_api import decode as decode
    from .convert.quantize.array_api import encode as encode
    from .convert.write.conversion_options import Options as Options
    from .runtime.base.compile_progress import CompileProgress as CompileProgress
    from .runtime.base.compile_progress import on_compile as on_compile
    from .runtime.base.errors import Error as Error
    from .runtime.base.errors import FileAccessError as FileAccessError
    from .runtime.base.errors import FormatError as FormatError
    from .runtime.base.errors import LimitError as LimitError
    from .runtime.base.errors import UnsafeFileError as UnsafeFileError
    from .runtime.base.errors import UnsupportedError as UnsupportedError
    from .runtime.base.errors import UsageError as UsageError
    from .runtime.base.limits import limits as limits
    from .runtime.ir.graph import Graph as Graph
    from .tensors.core.grad_mode import enable_grad as enable_grad
    from .tensors.core.grad_mode import no_grad as no_grad
    from .tensors.core.lazy_tensor import LazyTensor as LazyTensor
    from .tensors.operations.creation import arange as arange
    from .tensors.operations.creation import full as full
    from .tensors.operations.creation import ones as ones
    from .tensors.operations.creation import tensor as tensor
    from .tensors.operations.creation import zeros as zeros
    from .tensors.writes.shared_memory import from_dlpack as from_dlpack
    from .tensors.writes.shared_memory import from_numpy as from_numpy
    from .training import callbacks as callbacks
    from .training import data as data
    from .training import loggers as loggers
    from .training.callbacks.callback import Callback as Callback
    from .training.keras.model import Model as Model
    from .training.keras.model import Sequential as Sequential
    from .training.lightning.data_module import LightningDataModule as LightningDataModule
    from .training.lightning.lightning_module import LightningModule as LightningModule
    from .training.lightning.trainer import Trainer as Trainer
    from .training.loop.random_state import seed_everything as seed_everything

_EXPORTS = {
    "convert.api.convert": ("hash", "load_file", "open", "plan", "save_file"),
    "convert.compare.certificate": ("verify",),
    "convert.compare.diff": ("diff",),
    "convert.api.custom_op": ("register_op",),
    "convert.api.tensor_files": ("load", "save"),
    "convert.api.functions": ("erf", "gelu", "relu", "sigmoid", "silu", "softmax"),
    "convert.api.inference_session": ("InferenceSession",),
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
    "convert.api.tensor_class": ("Tensor",),
    "tensors.core.lazy_tensor": ("LazyTensor",),
    "training.callbacks.callback": ("Callback",),
    "training.keras.model": ("Model", "Sequential"),
    "training.lightning.data_module": ("LightningDataModule",),
    "training.lightning.lightning_module": ("LightningModule",),
    "training.lightning.trainer": ("Trainer",),
    "training.loop.random_state": ("seed_everything",),
}
_MODULES = {
    "accelerator": "tensors.accelerator",
    "convert": "convert",
    "onnx": "convert.api.onnx",
    "optim": "optim",
    "amp": "tensors.amp",
    "autograd": "tensors.autograd.public",
    "backends": "tensors.backends",
    "random": "tensors.random",
    "version": "tensors.version",
    "cuda": "tensors.cuda",
    "distributions": "tensors.distributions",
    "func": "nn.func",
    "linalg": "tensors.linalg",
    "utils": "training.torch_utils",
    "callbacks": "training.callbacks",
    "data": "training.data",
    "loggers": "training.loggers",
}
"""Modules under the names that they have here; `convert` can be called too."""
_FAMILIES = (
    "bernoulli", "beta", "binomial", "categorical", "dirichlet", "distribution", "exponential", "gamma", "independent",
    "laplace", "multivariate_normal", "normal", "one_hot_categorical", "poisson", "uniform",
)  # fmt: skip
"""Files of PyTorch's distributions."""
_DEEPER = {
    "autograd.function": "tensors.autograd.function_class",
    "autograd.functional": "tensors.autograd.jacobians",
    "autograd.gradcheck": "tensors.autograd.checks",
    "autograd.variable": "tensors.autograd.public",
    "backends.cuda": "tensors.absent_backend",
    "backends.cudnn": "tensors.absent_backend",
    "backends.mps": "tensors.absent_backend",
    "cuda.amp": "tensors.amp",
    **{f"distributions.{name}": "tensors.distributions" for name in _FAMILIES},
    "distributions.kl": "tensors.distributions.divergences",
    "distributions.transforms": "tensors.distributions.transforms",
    "nn.modules": "nn.torch_files",
    "nn.modules.batchnorm": "nn.layers.norm",
    "nn.modules.module": "nn.core.module",
    "nn.modules.normalization": "nn.layers.norm",
    "nn.modules.rnn": "nn.layers.recurrent",
    "nn.modules.utils": "nn.functional.sizes",
    **{
        f"nn.modules.{name}": f"nn.layers.{name}" for name in ("activation", "container", "conv", "distance", "dropout")
    },
    **{f"nn.modules.{name}": f"nn.layers.{name}" for name in ("linear", "loss", "pooling", "sparse", "transformer")},
    "nn.parallel": "nn.layers.parallel",
    "nn.parameter": "nn.core.parameter",
    "optim.optimizer": "optim.core.optimizer",
    "optim.swa_utils": "training.averaging",
    "utils.checkpoint": "tensors.autograd.checkpoint",
    "utils.data": "training.data",
    "utils.data.dataloader": "training.data",
    "utils.data.dataset": "training.data",
    "utils.data.sampler": "training.data",
    "utils.tensorboard": "training.loggers.summary_writer",
}
"""Modules under the dotted names that they have in PyTorch."""
provide_second_names(
    {
        f"{__name__}.{name}": f"{__name__}.{module}"
        for name, module in {**_MODULES, **_DEEPER}.items()
        if name not in ("convert", "optim")
    }
)
_OF_NETWORKS = frozenset(
    (
        "adaptive_avg_pool1d", "adaptive_max_pool1d", "alpha_dropout", "avg_pool1d", "bilinear",
        "binary_cross_entropy_with_logits", "channel_shuffle", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
        "conv_transpose2d", "conv_transpose3d", "cosine_embedding_loss", "cosine_similarity", "ctc_loss", "dropout",
        "group_norm", "hinge_embedding_loss", "kl_div", "layer_norm",
        "margin_ranking_loss", "max_pool1d", "max_pool2d", "max_pool3d", "pairwise_distance", "pixel_shuffle",
        "pixel_unshuffle", "poisson_nll_loss", "rms_norm", "rrelu", "threshold", "triplet_margin_loss",
    )
)  # fmt: skip
"""Functions of `nn.functional` that PyTorch has under this name, too, with arguments in this order."""
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names}
__all__ = ["__version__", *sorted(("models", "nn", "ops", *_MODULES)), *sorted(_MODULE_OF)]
models.PROVIDED.provide("load", lambda: importlib.import_module(".convert.load.load_model", __name__).load)
nn.PROVIDED.provide("read_weights", lambda: importlib.import_module(".convert.api.tensor_files", __name__).read_weights)
nn.PROVIDED.provide("write_tensors", lambda: importlib.import_module(".convert.api.tensor_files", __name__).save)
nn.PROVIDED.provide("write_graph", lambda: importlib.import_module(".convert.api.onnx", __name__).write)
models.PROVIDED.provide_classes(
    lambda name: importlib.import_module(".convert.trainable.front", __name__).model_class(name)
)
ops.PROVIDED.provide("missing", lambda: importlib.import_module(".convert.run.operator_coverage", __name__).missing_of)


if not TYPE_CHECKING:  # for mypy a module with __getattr__ has every name, misspelled ones too

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return importlib.import_module(f".{_MODULES[name]}", __name__)
        if name not in _MODULE_OF:
            from .runtime.base.nearest_name import nearest
            from .tensors.namespace import PUBLIC

            if name in PUBLIC:
                return PUBLIC[name]
            if name in _OF_NETWORKS:
                return getattr(nn.functional, name)
            meant = None if name.startswith("_") else nearest(name, (*__all__, *PUBLIC))
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}{f'. Did you mean {meant!r}?' if meant else ''}"
            )
        return getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    from .tensors.namespace import PUBLIC

    return sorted({*__all__, *PUBLIC})
