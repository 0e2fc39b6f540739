"""libggml through ctypes, the oracle for block types.

CANDLE_LIBGGML names the directory of libggml-base.so and libggml-cpu.so, or the first; without it the library is the
wheel's (`llama_cpp`).
"""

import ctypes
import os
import tempfile
from pathlib import Path

import numpy as np

from .llama_cpp import fits, located

INTERMEDIATE = {"q8_1": "quantize_row_q8_1_ref", "q8_k": "quantize_row_q8_K_ref"}
NAME = located("CANDLE_LIBGGML")
Q4_K = 12
EMPTY = b"GGUF" + (3).to_bytes(4, "little") + bytes(16)
"""A file of version 3 without keys and tensors."""


class Traits(ctypes.Structure):
    """ggml_type_traits."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("block", ctypes.c_int64),
        ("interleave", ctypes.c_int64),
        ("size", ctypes.c_size_t),
        ("quantized", ctypes.c_bool),
        ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)),
    ]


class GgufParams(ctypes.Structure):
    """gguf_init_params."""

    _fields_ = [("no_alloc", ctypes.c_bool), ("context", ctypes.POINTER(ctypes.c_void_p))]


class Libggml:
    """The functions that the tests call."""

    def __init__(self, path):
        path = Path(path)
        self._base = ctypes.CDLL(str(path / "libggml-base.so" if path.is_dir() else path))
        self._base.ggml_quantize_chunk.restype = ctypes.c_size_t
        self._base.ggml_quantize_chunk.argtypes = [
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_void_p,
            *[ctypes.c_int64] * 3,
            ctypes.c_void_p,
        ]
        self._base.ggml_validate_row_data.restype = ctypes.c_bool
        self._base.ggml_validate_row_data.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
        self._base.ggml_get_type_traits.restype = ctypes.POINTER(Traits)
        self._check_traits(path)
        self._check_params(path)

    def _check_traits(self, path):
        base = self._base
        base.ggml_type_name.restype, base.ggml_type_size.restype = ctypes.c_char_p, ctypes.c_size_t
        base.ggml_blck_size.restype, base.ggml_is_quantized.restype = ctypes.c_int64, ctypes.c_bool
        said = (
            base.ggml_type_name(Q4_K),
            base.ggml_blck_size(Q4_K),
            base.ggml_type_size(Q4_K),
            base.ggml_is_quantized(Q4_K),
        )
        traits = base.ggml_get_type_traits(Q4_K).contents
        decoder = ctypes.cast(base.dequantize_row_q4_K, ctypes.c_void_p).value
        numbers = traits.block, traits.size, traits.quantized, ctypes.cast(traits.to_float, ctypes.c_void_p).value
        fits(path, "ggml_type_traits", numbers, (*said[1:], decoder))
        fits(path, "ggml_type_traits", traits.name, said[0])

    def _check_params(self, path):
        self._base.ggml_get_no_alloc.restype = ctypes.c_bool
        with tempfile.NamedTemporaryFile() as file:
            file.write(EMPTY)
            file.flush()
            for no_alloc in (True, False):
                context = ctypes.c_void_p()
                held = self._gguf("init_from_file", ctypes.c_void_p)(
                    os.fsencode(file.name), GgufParams(no_alloc, ctypes.pointer(context))
                )
                found = bool(context) and self._base.ggml_get_no_alloc(context)
                fits(path, "gguf_init_params", (bool(held), bool(context), found), (True, True, no_alloc))
                self._base.ggml_free(context)
                self._gguf("free", None)(ctypes.c_void_p(held))

    def traits(self, dtype):
        """The type's traits; what it cannot do is None."""
        return self._base.ggml_get_type_traits(dtype.ggml).contents

    def decode(self, dtype, blocks):
        return self.floats(dtype.ggml, blocks)

    def floats(self, number, blocks):
        """f32 [elements] of blocks, uint8, by the number of their type."""
        traits = self._base.ggml_get_type_traits(number).contents
        values = np.empty(blocks.size // traits.size * traits.block, np.float32)
        traits.to_float(blocks.ctypes.data, values.ctypes.data, values.size)
        return values

    def encode(self, dtype, rows, importance=None):
        """Bytes ``[rows, bytes of a row]``."""
        rows = np.ascontiguousarray(rows, np.float32)
        out = np.zeros((len(rows), dtype.nbytes(rows.shape[1])), np.uint8)
        if dtype.name in INTERMEDIATE:
            reference = self._base[INTERMEDIATE[dtype.name]]
            reference(*(ctypes.c_void_p(each.ctypes.data) for each in (rows, out)), ctypes.c_int64(rows.size))
            return out
        weights = None if importance is None else np.ascontiguousarray(importance, np.float32)
        self._base.ggml_quantize_chunk(
            dtype.ggml,
            rows.ctypes.data,
            out.ctypes.data,
            0,
            *rows.shape,
            None if weights is None else weights.ctypes.data,
        )
        return out

    def validate(self, dtype, blocks):
        """Whether the blocks hold no scale that is NaN or infinite."""
        return self._base.ggml_validate_row_data(dtype.ggml, blocks.ctypes.data, blocks.nbytes)

    def tensors(self, path):
        """(name, type, offset from the start of the file, bytes) of a GGUF file's tensors; None where libggml refuses
        it."""
        file = self._gguf("init_from_file", ctypes.c_void_p)(os.fsencode(path), GgufParams(True, None))
        if not file:
            return None
        handle, start = ctypes.c_void_p(file), self._gguf("get_data_offset", ctypes.c_size_t)(ctypes.c_void_p(file))
        name, kind = self._gguf("get_tensor_name", ctypes.c_char_p), self._gguf("get_tensor_type", ctypes.c_int)
        offset, size = self._gguf("get_tensor_offset", ctypes.c_size_t), self._gguf("get_tensor_size", ctypes.c_size_t)
        count = self._gguf("get_n_tensors", ctypes.c_int64)(handle)
        numbers = [ctypes.c_int64(number) for number in range(count)]
        found = [
            (name(handle, each).decode(), kind(handle, each), start + offset(handle, each), size(handle, each))
            for each in numbers
        ]
        self._gguf("free", None)(handle)
        return found

    def _gguf(self, name, result):
        function = getattr(self._base, f"gguf_{name}")
        function.restype = result
        return function


def load():
    """The library, None if the environment names none and the wheel is not installed."""
    return Libggml(NAME) if NAME else None
