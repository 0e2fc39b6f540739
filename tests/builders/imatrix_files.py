"""Importance matrices of both formats, written by the gguf library and byte by byte."""

import struct

import gguf
import numpy as np


def write_gguf(path, tensors, datasets=("a.txt", "b.txt"), chunks=7):
    writer = gguf.GGUFWriter(path, "")
    writer.add_string("general.type", "imatrix")
    writer.add_array("imatrix.datasets", list(datasets))
    writer.add_uint32("imatrix.chunk_count", chunks)
    writer.add_uint32("imatrix.chunk_size", 512)
    for name, array in tensors.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def old_bytes(entries, tail=b""):
    data = struct.pack("<i", len(entries))
    for name, (calls, values) in entries.items():
        data += (
            struct.pack("<i", len(name))
            + name.encode()
            + struct.pack("<ii", calls, len(values))
            + np.asarray(values, "<f4").tobytes()
        )
    return data + tail
