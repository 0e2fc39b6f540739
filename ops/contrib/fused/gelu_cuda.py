"""onnxruntime's Gelu operators on the device, decomposed into standard operators."""

from __future__ import annotations

from ....runtime.cuda.plan.kernel_api import decomposed
from ...rules.expression import lowered
from .gelu import bias_gelu, fast_gelu, gelu, quick_gelu

decomposed(gelu)(lowered(lambda x: x.call("Gelu")))
decomposed(bias_gelu)(lowered(lambda a, b: (a + b).call("Gelu")))
decomposed(fast_gelu)(lowered(lambda x, bias=None: (x if bias is None else x + bias).call("Gelu", approximate="tanh")))
decomposed(quick_gelu)(lowered(lambda x, alpha: x.call("Swish", alpha=alpha)))
