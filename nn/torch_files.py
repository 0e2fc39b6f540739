"""`cc.nn.modules`: layers under the names of PyTorch's files, as ``nn.modules.batchnorm._BatchNorm``."""

from __future__ import annotations

from .core import module as module
from .functional import sizes as utils
from .layers import activation as activation
from .layers import container as container
from .layers import conv as conv
from .layers import distance as distance
from .layers import dropout as dropout
from .layers import linear as linear
from .layers import loss as loss
from .layers import norm as batchnorm
from .layers import norm as instancenorm
from .layers import norm as normalization
from .layers import pooling as padding
from .layers import pooling as pooling
from .layers import recurrent as rnn
from .layers import shape as flatten
from .layers import shape as upsampling
from .layers import sparse as sparse
from .layers import transformer as transformer
from .namespace import PUBLIC

__all__ = [
    "activation", "batchnorm", "container", "conv", "distance", "dropout", "flatten", "instancenorm", "linear", "loss",
    "module", "normalization", "padding", "pooling", "rnn", "sparse", "transformer", "upsampling", "utils",
]  # fmt: skip
globals().update(PUBLIC)
