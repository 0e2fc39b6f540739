"""ONNX value types: TypeProto messages to dtype, shape and container, and back."""

from __future__ import annotations

from typing import Any

from ....runtime.ir.graph import Dim, Value
from ....runtime.tensor.dtype import BY_ONNX
from .schema import Message

WRAPPERS = {"sequence_type": "sequence", "optional_type": "optional"}
TENSORS = {"tensor_type": (), "sparse_tensor_type": ("sparse",)}
CARRIED = ("doc_string", "metadata_props")


def value_of(info: Message) -> Value:
    """The value of a ValueInfoProto; what the graph's types do not express is kept aside."""
    carried: dict[str, Any] = {key: info[key] for key in CARRIED if key in info}
    value = Value(info.name(), carried=carried)
    if "type" in info:
        fill(value, info["type"])
        carried["type"] = info["type"]
        if not known(value, info["type"]):
            carried["opaque"] = True
    return value


def fill(value: Value, kind: Message) -> None:
    """Set dtype, shape and container of a value from a TypeProto."""
    container: list[str] = []
    while True:
        wrapper = next((name for name in (*WRAPPERS, "map_type") if name in kind), None)
        if wrapper is None:
            break
        inner = kind[wrapper]
        if wrapper == "map_type":
            key = BY_ONNX.get(inner.get("key_type", 0))
            container.append(f"map:{key.name if key else 'unknown'}")
        else:
            container.append(WRAPPERS[wrapper])
        kind = inner.get("value_type" if wrapper == "map_type" else "elem_type", Message("Type"))
    for name, wrapped in TENSORS.items():
        if name in kind:
            container += wrapped
            value.dtype = BY_ONNX.get(kind[name].get("elem_type", 0))
            if "shape" in kind[name]:
                value.shape = tuple(dim_of(dim) for dim in kind[name]["shape"].get("dim", []))
    value.container = tuple(container)


def dim_of(dim: Message) -> Dim:
    """A dimension; negative ones, which some exporters write, are unknown."""
    if "dim_value" in dim:
        return int(dim["dim_value"]) if dim["dim_value"] >= 0 else None
    return dim.get("dim_param") or None


def known(value: Value, kind: Message) -> bool:
    """Whether a value's fields express all of a TypeProto."""
    return not kind or type_of(value) is not None


def type_of(value: Value) -> Message | None:
    """The TypeProto of a value; None if too little is known."""
    if value.dtype is None or value.dtype.onnx is None:
        return None
    container = list(value.container)
    sparse = bool(container) and container[-1] == "sparse"
    tensor = Message("TensorType", elem_type=value.dtype.onnx)
    if value.shape is not None:
        tensor["shape"] = Message("Shape", dim=[_dim(dim) for dim in value.shape])
    kind = Message("Type", **{"sparse_tensor_type" if sparse else "tensor_type": tensor})
    for wrapper in reversed(container[:-1] if sparse else container):
        if wrapper.startswith("map:"):
            from ....runtime.tensor.dtype import DTYPES, STRING

            key = {**DTYPES, "string": STRING}.get(wrapper.removeprefix("map:"))
            kind = Message(
                "Type", map_type=Message("MapType", key_type=key.onnx if key and key.onnx else 0, value_type=kind)
            )
        else:
            kind = Message("Type", **{f"{wrapper}_type": Message("Wrapped", elem_type=kind)})
    return kind


def _dim(dim: Dim) -> Message:
    if dim is None:
        return Message("Dim")
    return Message("Dim", **({"dim_value": dim} if isinstance(dim, int) else {"dim_param": dim}))


def info_of(value: Value) -> Message:
    """The ValueInfoProto of a value, the file's own if it still holds."""
    carried = value.carried or {}
    info = Message("Info", name=value.name, **{key: carried[key] for key in CARRIED if key in carried})
    kept = carried.get("type")
    if kept is not None:
        before = Value(value.name)
        fill(before, kept)
        if _agrees(before, value) or (carried.get("opaque") and value.dtype is None):
            info["type"] = kept
            return info
    made = type_of(value)
    if made is not None:
        info["type"] = made
    return info


def _agrees(said: Value, value: Value) -> bool:
    """Whether the file's type of a value still holds, even if more is known now."""
    if (said.dtype, said.container) != (value.dtype, value.container) or said.shape is None or value.shape is None:
        return (said.dtype, said.container) == (value.dtype, value.container)
    known = zip(said.shape, value.shape, strict=False)
    return len(said.shape) == len(value.shape) and all(
        one == other or not isinstance(one, int) or not isinstance(other, int) for one, other in known
    )
