"""llama.cpp's mtmd through ctypes, the oracle for files of encoders and projectors (mmproj). The library is that of
`libllama`."""

import ctypes
import os

import numpy as np

from .libllama import _LOG, _SILENT, Libllama, Memory

MARKER = "<__media__>"
TEXT_CHUNK = 0
"""What `mtmd_input_chunk_get_type` says of chunks of tokens; others are pictures and sounds."""


class Prompt(ctypes.Structure):
    """mtmd_input_text."""

    _fields_ = [
        ("text", ctypes.c_char_p), ("length", ctypes.c_size_t), ("add_special", ctypes.c_bool),
        ("parse_special", ctypes.c_bool),
    ]  # fmt: skip


class Libmtmd:
    """A multimodal model of a language model's GGUF file and its mmproj file."""

    def __init__(self, path, mmproj, context=2048):
        self.text = Libllama(path, context=context)
        self._library = library = self.text._library
        address, number = ctypes.c_void_p, ctypes.c_int
        kinds = {
            "mtmd_log_set": (None, [_LOG, address]),
            "mtmd_helper_log_set": (None, [_LOG, address]),
            "mtmd_context_params_default": (Memory, []),
            "mtmd_init_from_file": (address, [ctypes.c_char_p, address, Memory]),
            "mtmd_free": (None, [address]),
            "mtmd_bitmap_init": (address, [ctypes.c_uint32, ctypes.c_uint32, address]),
            "mtmd_bitmap_init_from_audio": (address, [ctypes.c_size_t, address]),
            "mtmd_bitmap_free": (None, [address]),
            "mtmd_input_chunks_init": (address, []),
            "mtmd_input_chunks_free": (None, [address]),
            "mtmd_input_chunks_size": (ctypes.c_size_t, [address]),
            "mtmd_input_chunks_get": (address, [address, ctypes.c_size_t]),
            "mtmd_input_chunk_get_type": (number, [address]),
            "mtmd_input_chunk_get_n_tokens": (ctypes.c_size_t, [address]),
            "mtmd_tokenize": (number, [address, address, ctypes.POINTER(Prompt), address, ctypes.c_size_t]),
            "mtmd_encode_chunk": (number, [address, address]),
            "mtmd_get_output_embd": (ctypes.POINTER(ctypes.c_float), [address]),
            "mtmd_helper_eval_chunks": (
                number, [address, address, address, number, number, number, ctypes.c_bool, address],
            ),
            "llama_model_n_embd_inp": (number, [address]),
        }  # fmt: skip
        for name, (result, arguments) in kinds.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        for name in ("mtmd_log_set", "mtmd_helper_log_set"):
            getattr(library, name)(_SILENT, None)
        self._context = library.mtmd_init_from_file(
            os.fsencode(mmproj), self.text._model, library.mtmd_context_params_default()
        )
        assert self._context, "mtmd does not load it"
        self._width = library.llama_model_n_embd_inp(self.text._model)

    def close(self):
        """Release both models' memory."""
        self._library.mtmd_free(self._context)
        self.text.close()

    def _chunks(self, text, media):
        """The chunks of a text with `MARKER` for each of `media`: pictures u8 [height, width, 3] or sounds f32."""
        held = [np.ascontiguousarray(item) for item in media]
        bitmaps = [
            self._library.mtmd_bitmap_init(item.shape[1], item.shape[0], item.ctypes.data)
            if item.ndim == 3 else self._library.mtmd_bitmap_init_from_audio(len(item), item.ctypes.data)
            for item in held
        ]  # fmt: skip
        chunks = self._library.mtmd_input_chunks_init()
        array = (ctypes.c_void_p * len(bitmaps))(*bitmaps)
        prompt = Prompt(text.encode(), len(text.encode()), True, True)
        failed = self._library.mtmd_tokenize(
            self._context, chunks, ctypes.byref(prompt), ctypes.addressof(array), len(bitmaps)
        )
        assert failed == 0, f"mtmd_tokenize: {failed}"
        for bitmap in bitmaps:
            self._library.mtmd_bitmap_free(bitmap)
        return chunks

    def features(self, item):
        """What the encoder and the projector make of a picture or a sound, f32 [tokens, width] for each piece of it."""
        chunks, found = self._chunks(MARKER, [item]), []
        for i in range(self._library.mtmd_input_chunks_size(chunks)):
            chunk = self._library.mtmd_input_chunks_get(chunks, i)
            if self._library.mtmd_input_chunk_get_type(chunk) != TEXT_CHUNK:
                assert self._library.mtmd_encode_chunk(self._context, chunk) == 0
                count = self._library.mtmd_input_chunk_get_n_tokens(chunk)
                values = self._library.mtmd_get_output_embd(self._context)
                found.append(np.ctypeslib.as_array(values, (count, self._width)).copy())
        self._library.mtmd_input_chunks_free(chunks)
        return found

    def logits(self, text, media, tokens=()):
        """The logits behind a text with media and some more tokens, f32 [vocabulary]."""
        self.text.clear()
        chunks = self._chunks(text, media)
        past = ctypes.c_int32(0)
        failed = self._library.mtmd_helper_eval_chunks(
            self._context, self.text._context, chunks, 0, 0, 512, True, ctypes.addressof(past)
        )
        assert failed == 0, f"mtmd_helper_eval_chunks: {failed}"
        self._library.mtmd_input_chunks_free(chunks)
        values = self._library.llama_get_logits_ith(self.text._context, -1)
        found = np.ctypeslib.as_array(values, (self.text.vocabulary,)).copy()
        for token in tokens:
            found = self.text.advance([token])
        return found
