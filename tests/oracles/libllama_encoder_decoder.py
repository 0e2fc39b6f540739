"""Encoder-decoders in libllama through ctypes: logits of the decoder's tokens."""

import ctypes

import numpy as np

from .libllama_encoder import NONE, EncoderInLibllama


class EncoderDecoderInLibllama(EncoderInLibllama):
    """A GGUF file of an encoder-decoder."""

    def __init__(self, path):
        super().__init__(path, NONE)
        address, number = ctypes.c_void_p, ctypes.c_int
        self._library.llama_vocab_n_tokens.restype = number
        self._library.llama_vocab_n_tokens.argtypes = [address]
        self._library.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
        self._library.llama_get_logits_ith.argtypes = [address, number]
        self._library.llama_decode.restype = number
        self._library.llama_decode.argtypes = [address, type(self._library.llama_batch_init(1, 0, 1))]

    def logits(self, ids, decoder_ids):
        """Logits [target, vocabulary]."""
        assert self._library.llama_encode(self._context, self._batch(ids)) == 0
        self._library.llama_set_embeddings(self._context, False)
        assert self._library.llama_decode(self._context, self._batch(decoder_ids)) == 0
        width = self._library.llama_vocab_n_tokens(self._library.llama_model_get_vocab(self._model))
        rows = (self._library.llama_get_logits_ith(self._context, i) for i in range(len(decoder_ids)))
        return np.stack([np.ctypeslib.as_array(row, (width,)).copy() for row in rows])
