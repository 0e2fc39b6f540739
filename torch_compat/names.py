"""The table of PyTorch's second names: the module that each stands for. Nothing is imported before a name is used."""

from __future__ import annotations

MODULES = {
    "accelerator": "torch_compat.accelerator",
    "amp": "torch_compat.amp",
    "backends": "torch_compat.backends",
    "cuda": "torch_compat.cuda",
    "distributed": "torch_compat.distributed",
    "signal": "torch_compat.signal",
    "special": "torch_compat.special",
    "utils": "torch_compat.utils",
    "version": "torch_compat.version",
}
"""Modules by their names in PyTorch."""
_DISTRIBUTIONS = (
    "bernoulli", "beta", "binomial", "categorical", "dirichlet", "distribution", "exponential", "gamma", "independent",
    "laplace", "multivariate_normal", "normal", "one_hot_categorical", "poisson", "uniform",
)  # fmt: skip
_SAME_FILES = ("activation", "container", "conv", "distance", "dropout", "linear", "loss", "pooling", "sparse")
"""Files of layers that have the same name there."""
SUBMODULES = {
    "autograd.function": "tensors.autograd.function_class",
    "autograd.functional": "tensors.autograd.jacobians",
    "autograd.gradcheck": "tensors.autograd.checks",
    "autograd.variable": "tensors.autograd.public",
    "backends.cuda": "torch_compat.absent_backend",
    "backends.cudnn": "torch_compat.absent_backend",
    "backends.mps": "torch_compat.absent_backend",
    "cuda.amp": "torch_compat.amp",
    **{f"distributions.{name}": "tensors.distributions" for name in _DISTRIBUTIONS},
    "distributions.kl": "tensors.distributions.divergences",
    "distributions.transforms": "tensors.distributions.transforms",
    "nn.modules": "torch_compat.layer_files",
    "nn.modules.batchnorm": "nn.layers.norm",
    "nn.modules.module": "nn.core.module",
    "nn.modules.normalization": "nn.layers.norm",
    "nn.modules.rnn": "nn.layers.recurrent",
    "nn.modules.transformer": "nn.layers.transformer",
    "nn.modules.utils": "nn.functional.sizes",
    **{f"nn.modules.{name}": f"nn.layers.{name}" for name in _SAME_FILES},
    "nn.parallel": "nn.layers.parallel",
    "nn.parameter": "nn.core.parameter",
    "optim.optimizer": "optim.core.optimizer",
    "optim.swa_utils": "training.averaging",
    "signal.windows": "tensors.operations.numeric.windows",
    "utils.checkpoint": "tensors.autograd.checkpoint",
    "utils.data": "training.data",
    "utils.data.dataloader": "training.data",
    "utils.data.dataset": "training.data",
    "utils.data.sampler": "training.data",
    "utils.dlpack": "torch_compat.neighbours.dlpack",
    "utils.tensorboard": "training.loggers.summary_writer",
}
"""Modules by their dotted names in PyTorch."""
_SETTINGS = (
    "are_deterministic_algorithms_enabled", "channels_last", "channels_last_3d", "compile", "contiguous_format",
    "get_default_device", "get_float32_matmul_precision", "get_num_interop_threads", "is_inference", "preserve_format",
    "set_default_device", "set_default_tensor_type", "set_float32_matmul_precision", "set_num_interop_threads",
    "strided", "use_deterministic_algorithms",
)  # fmt: skip
_TYPED_TENSORS = (
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor",
    "IntTensor", "LongTensor", "ShortTensor",
)  # fmt: skip
_FUNCTIONS_OF_NETWORKS = (
    "adaptive_avg_pool1d", "adaptive_max_pool1d", "alpha_dropout", "avg_pool1d", "bilinear",
    "binary_cross_entropy_with_logits", "channel_shuffle", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "cosine_embedding_loss", "cosine_similarity", "ctc_loss", "dropout",
    "embedding_bag", "group_norm", "hinge_embedding_loss", "kl_div", "layer_norm", "margin_ranking_loss",
    "max_pool1d", "max_pool2d", "max_pool3d", "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle",
    "poisson_nll_loss", "rms_norm", "rrelu", "threshold", "triplet_margin_loss",
)  # fmt: skip
"""Functions of `nn.functional` that PyTorch has in its root, too, with arguments in this order."""
_IN_ANOTHER_ORDER = (
    "batch_norm", "constant_pad_nd", "embedding", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d",
    "instance_norm",
)  # fmt: skip
"""Functions of layers whose arguments have another order in PyTorch's root."""
OBJECTS = {
    **dict.fromkeys(_SETTINGS, "torch_compat.settings"),
    **dict.fromkeys(_TYPED_TENSORS, "torch_compat.typed_tensors"),
    **dict.fromkeys(_FUNCTIONS_OF_NETWORKS, "nn.functional"),
    **dict.fromkeys(_IN_ANOTHER_ORDER, "torch_compat.layer_functions"),
}
"""Functions, classes and constants: the module that has each under the same name."""
