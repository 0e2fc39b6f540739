"""Facts for quantization rules: architecture, depth, heads and experts; layer and shape of each tensor.

Source: llama.cpp's loading of hyper-parameters (llama-model.cpp) and its choice of tensors to quantize
(llama-quant.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.ir.graph import Graph
from ...runtime.tensor.dtype import DType
from ...runtime.tensor.stored_tensor import StoredTensor

_BLOCK = re.compile(r"blk\.(\d{1,9})\.")
_LAYER = re.compile(r"(?:^|\.)(?:blk|layers?|h|blocks?)\.(\d{1,9})\.")

LEFT_ALONE = re.compile(
    r"""(?<!weight)(?<!weight_[ih]h_l\d)(?<!weight_[ih]h_l\d_reverse)\Z | (?:position|token_type)_embeddings\.weight\Z
    | _norm\.weight | ffn_gate_inp\.weight | ffn_gate_tid2eid\.weight | altup | laurel | per_layer_model_proj
    | ^position_embd\.weight\Z | ^token_types\.weight\Z | ssm_conv1d
    | shortconv\.conv\.weight | indexer\.[kq]_proj\.weight
    | time_mix_(?:first|[wva][012]|g[12]|decay_w[12]|lerp_fused)\.weight | attn_rel_b\.weight
    | \.position_embd | sam\.(?:pos_embd|neck\.|net_) | \.rel_pos | \.patch_(?:embd|merger)
    | a\.rvq\.codebook | mm\.a\.code_embd""",
    re.VERBOSE,
)
"""Names of tensors that are not quantized: norms, routers, positions, convolutions and other small or delicate ones;
llama.cpp's, and the first line for PyTorch's recurrent layers and the embeddings of BERT."""
LEFT_ALONE_IN = {
    "glm5-next": re.compile(
        r"""hc_ | indexer\.(?:attn_q_b|attn_k|proj) | indexer_compressor_(?:gate|ape)
        | ssm_(?:f_a|f_b|g_a|g_b|beta)\.weight
        | attn_kv_a_mqa\.weight | attn_[kv]_b\.weight""",
        re.VERBOSE,
    )
}
"""The same for single architectures."""
EXTRA_LAYERS = {"granite-switch": 1}
"""Blocks that llama.cpp counts beyond block_count."""


@dataclass(frozen=True)
class Model:
    """Hyper-parameters.

    Attributes:
        arch: as in general.architecture, "" when the file does not say.
        layers: blocks.
        experts: of a layer, 0 in dense models.
        heads, kv_heads: of the first layer, 0 when the file does not say.
    """

    arch: str = ""
    layers: int = 0
    experts: int = 0
    heads: int = 0
    kv_heads: int = 0

    @property
    def gqa(self) -> int:
        """Query heads for each key and value head, 0 if unknown."""
        return self.heads // self.kv_heads if self.kv_heads else 0


@dataclass(frozen=True)
class Weight:
    """A tensor as the rules see it; lengths are counted from the fastest dimension on."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def layer(self) -> int:
        match = _BLOCK.match(self.name)
        return int(match[1]) if match else -1

    @property
    def columns(self) -> int:
        return self.shape[-1] if self.shape else 1

    @property
    def rows(self) -> int:
        return self.shape[-2] if len(self.shape) > 1 else 1

    @property
    def matrices(self) -> int:
        return self.shape[-3] if len(self.shape) > 2 else 1

    def quantizable(self, arch: str) -> bool:
        """Whether the tensor is quantized unless the user says otherwise: at least a matrix, and not left alone by its
        name."""
        if all(length == 1 for length in self.shape[:-1]) or not self.dtype.is_float:
            return False
        special = LEFT_ALONE_IN.get(arch)
        return not LEFT_ALONE.search(self.name) and not (special is not None and special.search(self.name))


def weight_of(name: str, tensor: StoredTensor) -> Weight:
    """The properties of a tensor that the rules use."""
    return Weight(name, tensor.dtype, tensor.shape)


def model_of(graph: Graph) -> Model:
    """The hyper-parameters in a graph's metadata; without them the number of layers is counted from the names."""
    metadata = graph.metadata
    arch = metadata.get("general.architecture")
    if not isinstance(arch, str):
        numbers = [int(match[1]) for name in graph.weights if (match := _LAYER.search(name))]
        return Model(layers=max(numbers, default=-1) + 1)
    heads = _integer(metadata, f"{arch}.attention.head_count")
    kv_heads = _integer(metadata, f"{arch}.attention.head_count_kv", heads)
    layers = _integer(metadata, f"{arch}.block_count") + EXTRA_LAYERS.get(arch, 0)
    return Model(arch, layers, _integer(metadata, f"{arch}.expert_count"), heads, kv_heads)


def order(name: str) -> tuple[int, bytes]:
    """The order of tensors in files that llama-quantize writes: those outside the blocks, then block after block, by
    name."""
    match = _BLOCK.match(name)
    return (int(match[1]) if match else -1, name.encode(errors="surrogatepass"))


def _integer(metadata: Mapping[str, Any], key: str, absent: int = 0) -> int:
    """A number, or the first of a list with one for each layer."""
    import numpy

    value = metadata.get(key, absent)
    if isinstance(value, list | numpy.ndarray) and len(value):
        value = value[0]
    return int(value) if isinstance(value, int | numpy.integer) else absent
