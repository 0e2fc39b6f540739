"""ONNX protobuf schema: field numbers, names and types of the messages.

Source: onnx.proto of the ONNX standard (IR version 14). Fields of later versions are kept as bytes and written back.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Field(NamedTuple):
    """A field of a message.

    Attributes:
        kind: int, float, bytes, text, data (bytes that stay in the file), or the name of a message.
        many: whether it is repeated.
    """

    name: str
    kind: str
    many: bool = False


class Message(dict[str, Any]):
    """A decoded message: values by field name, absent ones left out, lists for repeated fields.

    Attributes:
        kind: which message of `MESSAGES`.
        at: byte offset of its first field.
        unknown: fields of later versions, as stored.
    """

    __slots__ = ("at", "kind", "unknown")

    def __init__(self, kind: str, **values: Any) -> None:
        super().__init__(values)
        self.kind = kind
        self.at = 0
        self.unknown = b""

    def name(self) -> str:
        """The ``name`` field."""
        return str(self.get("name", ""))


def _table(text: str) -> dict[int, Field]:
    fields = {}
    for item in text.split():
        number, name, kind = item.split(":")
        fields[int(number)] = Field(name, kind.removesuffix("*"), kind.endswith("*"))
    return fields


MESSAGES = {
    "Model": _table(
        "1:ir_version:int 2:producer_name:text 3:producer_version:text 4:domain:text 5:model_version:int "
        "6:doc_string:doc 7:graph:Graph"
        " 8:opset_import:Opset* 14:metadata_props:Entry* 20:training_info:Training* 25:functions:Function* "
        "26:configuration:Device*"
    ),
    "Opset": _table("1:domain:text 2:version:int"),
    "Entry": _table("1:key:text 2:value:doc"),
    "Graph": _table(
        "1:node:Node* 2:name:text 5:initializer:Tensor* 10:doc_string:doc 11:input:Info* 12:output:Info* "
        "13:value_info:Info*"
        " 14:quantization_annotation:Annotation* 15:sparse_initializer:Sparse* 16:metadata_props:Entry*"
    ),
    "Node": _table(
        "1:input:text* 2:output:text* 3:name:text 4:op_type:text 5:attribute:Attribute* 6:doc_string:doc 7:domain:text "
        "8:overload:text"
        " 9:metadata_props:Entry* 10:device_configurations:NodeDevice*"
    ),
    "Attribute": _table(
        "1:name:text 2:f:float 3:i:int 4:s:bytes 5:t:Tensor 6:g:Graph 7:floats:float* 8:ints:int* 9:strings:bytes* "
        "10:tensors:Tensor*"
        " 11:graphs:Graph* 13:doc_string:doc 14:tp:Type 15:type_protos:Type* 20:type:int 21:ref_attr_name:text "
        "22:sparse_tensor:Sparse"
        " 23:sparse_tensors:Sparse*"
    ),
    "Tensor": _table(
        "1:dims:int* 2:data_type:int 3:segment:Segment 4:float_data:data* 5:int32_data:data* 6:string_data:bytes* "
        "7:int64_data:data* 8:name:text"
        " 9:raw_data:data 10:double_data:data* 11:uint64_data:data* 12:doc_string:doc 13:external_data:Entry* "
        "14:data_location:int"
        " 16:metadata_props:Entry*"
    ),
    "Segment": _table("1:begin:int 2:end:int"),
    "Sparse": _table("1:values:Tensor 2:indices:Tensor 3:dims:int*"),
    "Info": _table("1:name:text 2:type:Type 3:doc_string:doc 4:metadata_props:Entry*"),
    "Type": _table(
        "1:tensor_type:TensorType 4:sequence_type:Wrapped 5:map_type:MapType 6:denotation:text 7:opaque_type:Opaque "
        "8:sparse_tensor_type:TensorType"
        " 9:optional_type:Wrapped"
    ),
    "TensorType": _table("1:elem_type:int 2:shape:Shape"),
    "Shape": _table("1:dim:Dim*"),
    "Dim": _table("1:dim_value:int 2:dim_param:text 3:denotation:text"),
    "Wrapped": _table("1:elem_type:Type"),
    "MapType": _table("1:key_type:int 2:value_type:Type"),
    "Opaque": _table("1:domain:text 2:name:text"),
    "Annotation": _table("1:tensor_name:text 2:quant_parameter_tensor_names:Entry*"),
    "Training": _table(
        "1:initialization:Graph 2:algorithm:Graph 3:initialization_binding:Entry* 4:update_binding:Entry*"
    ),
    "Function": _table(
        "1:name:text 4:input:text* 5:output:text* 6:attribute:text* 7:node:Node* 8:doc_string:doc "
        "9:opset_import:Opset* 10:domain:text"
        " 11:attribute_proto:Attribute* 12:value_info:Info* 13:overload:text 14:metadata_props:Entry*"
    ),
    "Device": _table("1:name:text 2:num_devices:int 3:device:text*"),
    "NodeDevice": _table("1:configuration_id:text 2:sharding_spec:Sharding* 3:pipeline_stage:int"),
    "Sharding": _table(
        "1:tensor_name:text 2:device:int* 3:index_to_device_group_map:IntList* 4:sharded_dim:ShardedDim*"
    ),
    "IntList": _table("1:key:int 2:value:int*"),
    "ShardedDim": _table("1:axis:int 2:simple_sharding:SimpleSharding*"),
    "SimpleSharding": _table("1:dim_value:int 2:dim_param:text 3:num_shards:int"),
}
"""``*`` marks repeated fields. ``doc`` is human-readable text without a defined encoding."""

ELEMENT_WIRE = {"float_data": 5, "double_data": 1, "int32_data": 0, "int64_data": 0, "uint64_data": 0}
"""Encoding of one unpacked element of a typed data field."""
