"""Training utilities for parameters: gradient clipping, flattening to vectors, padded sequences."""

from ...tensors.autograd.clipping import clip_grad_norm_ as clip_grad_norm_
from ...tensors.autograd.clipping import clip_grad_value_ as clip_grad_value_
from . import parametrizations as parametrizations
from . import parametrize as parametrize
from . import prune as prune
from . import rnn as rnn
from . import stateless as stateless
from .spectral_norm import remove_spectral_norm as remove_spectral_norm
from .spectral_norm import spectral_norm as spectral_norm
from .vectors import parameters_to_vector as parameters_to_vector
from .vectors import vector_to_parameters as vector_to_parameters
from .weight_norm import remove_weight_norm as remove_weight_norm
from .weight_norm import weight_norm as weight_norm

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "parametrizations", "parametrize", "prune",
    "remove_spectral_norm", "remove_weight_norm", "rnn", "spectral_norm", "stateless", "vector_to_parameters",
    "weight_norm",
]  # fmt: skip


def __dir__() -> list[str]:
    return list(__all__)
