"""Quantized tensors of torch: their parameters are freed with them."""

import gc
import weakref

import numpy as np
import torch
from candle_convert.formats.containers.torch.quantized import QUANTIZED, dequantized
from candle_convert.runtime.tensor.stored_tensor import StoredTensor


def test_scales_are_freed_with_the_tensor():
    scales, zeros = np.array([0.5, 0.25]), np.array([1, 2])
    whole = torch.quantize_per_channel(
        torch.arange(6.0).reshape(2, 3), torch.from_numpy(scales), torch.from_numpy(zeros), 0, torch.qint8
    )
    parameters = (StoredTensor.of(scales), StoredTensor.of(zeros), 0)
    codes = StoredTensor.of(whole.int_repr().numpy())
    tensor, _ = dequantized(codes.storage, QUANTIZED["qint8"], (2, 3), parameters, ValueError)
    np.testing.assert_array_equal(tensor.numpy(), whole.dequantize().numpy())
    storages = [weakref.ref(value.storage) for value in parameters[:2]]
    del tensor, parameters
    gc.collect()
    assert [storage() for storage in storages] == [None, None]
