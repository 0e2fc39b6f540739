"""libllama through ctypes, the oracle for whole models. CANDLE_LIBLLAMA names libllama.so; without it the library is
the wheel's (`llama_cpp`).

Parameters grow from version to version: they come and go as memory that is large enough, of which the first fields are
known. Keys and values are f32 and attention is computed without the flash kernel, which rounds them to f16.
"""

import ctypes
import functools
import os
import platform

import numpy as np

from .llama_cpp import fits, located

NAME = located("CANDLE_LIBLLAMA")
_LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_SILENT = _LOG(lambda level, text, data: None)


class Memory(ctypes.Structure):
    """Parameters: more bytes than any version has."""

    _fields_ = [("bytes", ctypes.c_char * 512)]


class ContextParams(ctypes.Structure):
    """llama_context_params up to the types of keys and values, and more bytes than any version has."""

    _fields_ = [
        ("context", ctypes.c_uint32), ("numbers", ctypes.c_uint32 * 9), ("rope_scaling", ctypes.c_int32),
        ("pooling", ctypes.c_int32), ("attention", ctypes.c_int32), ("flash_attention", ctypes.c_int32),
        ("scaling", ctypes.c_uint32 * 12), ("keys", ctypes.c_int32), ("values", ctypes.c_int32),
        ("bytes", ctypes.c_char * 400),
    ]  # fmt: skip


F32, F16 = 0, 1
"""ggml_type."""


class Batch(ctypes.Structure):
    """llama_batch."""

    _fields_ = [
        ("count", ctypes.c_int32),
        *[(name, ctypes.c_void_p) for name in ("tokens", "embeddings", "places", "counts", "sequences", "logits")],
    ]


@functools.cache
def loaded():
    """The library, whose structures have the declared sizes; those are known where a function gets the result's address
    as its first argument."""
    library = ctypes.CDLL(str(NAME))
    if platform.machine() == "x86_64":
        for name, kind in (("llama_model_default_params", Memory), ("llama_context_default_params", ContextParams)):
            fits(NAME, f"the result of {name}", _written(library, name) <= ctypes.sizeof(kind), True)
        fits(NAME, "llama_batch", _written(library, "llama_batch_get_one"), ctypes.sizeof(Batch))
    library.llama_context_default_params.restype = ContextParams
    given = library.llama_context_default_params()
    found = (given.context, given.pooling, given.flash_attention, given.keys, given.values)
    fits(NAME, "llama_context_params", found, (512, -1, -1, F16, F16))
    return library


def context_params(library):
    """Parameters of a context whose attention is computed in f32."""
    params = library.llama_context_default_params()
    params.flash_attention, params.keys, params.values = 0, F32, F32
    return params


def _written(library, name):
    """The bytes of the structure that a function returns. A batch is asked for two tokens at an address, which is not
    read."""
    unwritten = 0xA5
    memory = (ctypes.c_ubyte * 4096)(*[unwritten] * 4096)
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)((name, library))
    function(ctypes.addressof(memory), ctypes.addressof(memory), 2)
    return len(bytes(memory).rstrip(bytes([unwritten])))


def opened(path, kinds):
    """The library, whose functions have the declared `kinds` (result and arguments), and a model of a GGUF file."""
    library, address, number = loaded(), ctypes.c_void_p, ctypes.c_int
    shared = {
        "llama_model_default_params": (Memory, []),
        "llama_context_default_params": (ContextParams, []),
        "llama_log_set": (None, [_LOG, address]),
        "llama_model_load_from_file": (address, [ctypes.c_char_p, Memory]),
        "llama_init_from_model": (address, [address, ContextParams]),
        "llama_free": (None, [address]),
        "llama_model_free": (None, [address]),
        "llama_get_memory": (address, [address]),
        "llama_memory_clear": (None, [address, ctypes.c_bool]),
        "llama_model_get_vocab": (address, [address]),
        "llama_decode": (number, [address, Batch]),
    }
    for name, (result, arguments) in {**shared, **kinds}.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.llama_log_set(_SILENT, None)
    model = library.llama_model_load_from_file(os.fsencode(path), library.llama_model_default_params())
    assert model, "libllama does not load it"
    return library, model


class Libllama:
    """A model of a GGUF file and one sequence of tokens, at most `context` of them."""

    def __init__(self, path, threads=1, context=512):
        address, number = ctypes.c_void_p, ctypes.c_int
        kinds = {
            "llama_set_n_threads": (None, [address, number, number]),
            "llama_vocab_n_tokens": (number, [address]),
            "llama_batch_get_one": (Batch, [address, number]),
            "llama_get_logits_ith": (ctypes.POINTER(ctypes.c_float), [address, number]),
        }
        self._library, self._model = opened(path, kinds)
        params = context_params(self._library)
        params.context = context
        self._context = self._library.llama_init_from_model(self._model, params)
        self._library.llama_set_n_threads(self._context, threads, threads)
        self.vocabulary = self._library.llama_vocab_n_tokens(self._library.llama_model_get_vocab(self._model))

    def close(self):
        """Release the model's memory."""
        self._library.llama_free(self._context)
        self._library.llama_model_free(self._model)

    def clear(self):
        """Forget the sequence."""
        self._library.llama_memory_clear(self._library.llama_get_memory(self._context), True)

    def advance(self, tokens):
        """The logits behind some more tokens, f32 [vocabulary]."""
        held = np.array(tokens, np.int32)
        assert (
            self._library.llama_decode(self._context, self._library.llama_batch_get_one(held.ctypes.data, len(held)))
            == 0
        )
        return np.ctypeslib.as_array(self._library.llama_get_logits_ith(self._context, -1), (self.vocabulary,)).copy()
