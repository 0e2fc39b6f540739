"""MelWeightMatrix: triangular filters from spectrum bins to mel bands, 2595 * log10(1 + hertz / 700)."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.graph import Dim
from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import BY_ONNX
from ..cast.cast import element_type
from ..rules.output_limit import allowed
from ..rules.shape_rules import model_error


def infer_mel_weight_matrix(node: Inference) -> None:
    """(dft_length // 2 + 1, num_mel_bins)."""
    bands, length = node.data(0), node.data(1)
    rows: Dim = length[0] // 2 + 1 if length and isinstance(length[0], int) else None
    node.set(0, BY_ONNX.get(node.attributes["output_datatype"]), (rows, bands[0] if bands else None))


@op(
    "MelWeightMatrix",
    since=17,
    types="T=index T T U=float U",
    traits=(Trait.KEEPS_F32,),
    infer=infer_mel_weight_matrix,
    examples=[
        case(np.int64(8), np.int64(16), np.int64(8192), np.float32(0), np.float32(8192 / 2)),
        case(np.int32(5), np.int32(64), np.int32(16000), np.float32(20), np.float32(7600), output_datatype=11),
    ],
)
def mel_weight_matrix(
    num_mel_bins: np.ndarray,
    dft_length: np.ndarray,
    sample_rate: np.ndarray,
    lower_edge_hertz: np.ndarray,
    upper_edge_hertz: np.ndarray,
    *,
    output_datatype: int = 1,
) -> np.ndarray:
    """Shape (dft_length // 2 + 1, num_mel_bins): each column rises from one band edge to the next and falls to the one
    after it."""
    bands, length, rate = (int(value.reshape(())) for value in (num_mel_bins, dft_length, sample_rate))
    low, high = (2595 * np.log10(1 + float(edge.reshape(())) / 700) for edge in (lower_edge_hertz, upper_edge_hertz))
    if bands < 0 or length < 1 or rate < 1 or not 0 <= low < high:
        raise model_error(
            "MelWeightMatrix needs bands between two frequencies",
            expected="0 <= lower < upper",
            found=f"{float(lower_edge_hertz.reshape(()))} to {float(upper_edge_hertz.reshape(()))} hertz",
        )
    rows, columns = allowed((length // 2 + 1, bands), 8, "MelWeightMatrix")
    mels = low + np.arange(columns + 2) * ((high - low) / (columns + 2))
    edges = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(np.int64)
    if edges[-1] > rows:
        raise model_error("MelWeightMatrix ends above half the sample rate", found=f"{rate} hertz")
    left, center, right = edges[:-2], edges[1:-1], edges[2:]
    bins = np.arange(rows)[:, None]
    with np.errstate(all="ignore"):
        rising = np.where(center == left, bins == center, (bins - left) / (center - left))
        falling = (right - bins) / (right - center)
    found = np.where((bins >= left) & (bins <= center), rising, 0) * (bins < center) + np.where(
        (bins >= center) & (bins < right), falling, 0
    )
    found = np.where((bins == center) & (right == center), 1.0, found)
    return found.astype(element_type(output_datatype).as_numpy())
