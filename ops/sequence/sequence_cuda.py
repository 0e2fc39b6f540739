"""Sequences and optionals on the device: a host list of device tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.cuda.execute.control_flow import DeviceCall
from ...runtime.cuda.memory.device_array import DeviceArray
from ...runtime.cuda.plan.kernel_api import control_flow
from ..rules.axes import axis_in
from . import sequence as of
from .optional import optional, optional_get_element, optional_has_element
from .split_to_sequence import split_to_sequence

control_flow(
    optional,
    optional_get_element,
    optional_has_element,
    of.sequence_construct,
    of.sequence_empty,
    of.sequence_length,
    of.sequence_map,
)
control_flow(of.sequence_at, of.sequence_erase, host_inputs=(1,))
control_flow(of.sequence_insert, host_inputs=(2,))


def _joined(sequence: list[Any], *, axis: int, new_axis: int = 0, call: DeviceCall) -> Any:
    assert of.concat_from_sequence.compute is not None
    if not any(isinstance(item, DeviceArray) for item in sequence):
        return of.concat_from_sequence.compute(sequence, axis=axis, new_axis=new_axis)
    rank = sequence[0].ndim + bool(new_axis)
    along = axis_in("ConcatFromSequence", axis, rank)
    if new_axis and len({item.shape for item in sequence}) == 1:
        return call.stacked(sequence, along)
    (made,) = call.applied("Concat", sequence, axis=along)
    return made


def _parted(
    x: Any, lengths: np.ndarray | None = None, *, axis: int = 0, keepdims: int = 1, call: DeviceCall
) -> list[Any]:
    assert split_to_sequence.compute is not None
    if not isinstance(x, DeviceArray):
        return split_to_sequence.compute(x, lengths, axis=axis, keepdims=keepdims)
    along = axis_in("SplitToSequence", axis, x.ndim)
    if lengths is None and not keepdims:
        return list(call.entries(x, along))
    ends = split_to_sequence.compute(np.arange(x.shape[along]), lengths)
    return call.applied("Split", [x, np.array([part.size for part in ends])], len(ends), axis=along)


control_flow(of.concat_from_sequence, compute=_joined)
control_flow(split_to_sequence, host_inputs=(1,), compute=_parted)
