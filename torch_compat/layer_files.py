"""`cc.nn.modules`: layers under the names of PyTorch's files, as ``nn.modules.batchnorm._BatchNorm``."""

from __future__ import annotations

from ..nn.core import module as module
from ..nn.functional import sizes as utils
from ..nn.layers import activation as activation
from ..nn.layers import container as container
from ..nn.layers import conv as conv
from ..nn.layers import distance as distance
from ..nn.layers import dropout as dropout
from ..nn.layers import linear as linear
from ..nn.layers import loss as loss
from ..nn.layers import norm as batchnorm
from ..nn.layers import norm as instancenorm
from ..nn.layers import norm as normalization
from ..nn.layers import pooling as padding
from ..nn.layers import pooling as pooling
from ..nn.layers import recurrent as rnn
from ..nn.layers import shape as flatten
from ..nn.layers import shape as upsampling
from ..nn.layers import sparse as sparse
from ..nn.layers import transformer as transformer
from ..nn.namespace import PUBLIC

__all__ = [
    "activation", "batchnorm", "container", "conv", "distance", "dropout", "flatten", "instancenorm", "linear", "loss",
    "module", "normalization", "padding", "pooling", "rnn", "sparse", "transformer", "upsampling", "utils",
]  # fmt: skip
globals().update(PUBLIC)
