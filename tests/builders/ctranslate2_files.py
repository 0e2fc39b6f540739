"""CTranslate2's ``model.bin``, by hand."""

import struct

import numpy as np

TYPES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}


def ctranslate2_file(variables, aliases, spec="WhisperSpec", version=6):
    """The bytes of a ``model.bin``."""

    def text(value):
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    parts = [struct.pack("<I", version), text(spec), struct.pack("<II", 3, len(variables))]
    for name, array in variables.items():
        array = np.asarray(array)
        shape = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        parts += [text(name), shape, struct.pack("<BI", TYPES[array.dtype.name], array.nbytes), array.tobytes()]
    parts += [struct.pack("<I", len(aliases)), *(text(one) + text(other) for one, other in aliases.items())]
    return b"".join(parts)
