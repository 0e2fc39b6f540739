"""Text encoders and their tokenizers in libllama through ctypes: hidden states, pooled vectors and ranks."""

import ctypes

import numpy as np

from .libllama import Batch, context_params, opened

NONE, MEAN, CLS, LAST, RANK = 0, 1, 2, 3, 4
"""llama_pooling_type."""


class EncoderInLibllama:
    """A GGUF file of an encoder, or of a decoder; `pooling` is one of the module's constants."""

    def __init__(self, path, pooling, *, decoder=False):
        address, number = ctypes.c_void_p, ctypes.c_int
        kinds = {
            "llama_set_embeddings": (None, [address, ctypes.c_bool]),
            "llama_model_n_embd": (number, [address]),
            "llama_model_chat_template": (ctypes.c_char_p, [address, ctypes.c_char_p]),
            "llama_model_n_cls_out": (number, [address]),
            "llama_batch_init": (Batch, [number, number, number]),
            "llama_encode": (number, [address, Batch]),
            "llama_get_embeddings_ith": (ctypes.POINTER(ctypes.c_float), [address, number]),
            "llama_get_embeddings_seq": (ctypes.POINTER(ctypes.c_float), [address, number]),
            "llama_tokenize": (
                number, [address, ctypes.c_char_p, number, address, number, ctypes.c_bool, ctypes.c_bool]
            ),
        }  # fmt: skip
        self._library, self._model = opened(path, kinds)
        params = context_params(self._library)
        params.pooling = pooling
        self._context = self._library.llama_init_from_model(self._model, params)
        self._library.llama_set_embeddings(self._context, True)
        self._pooling, self._decoder = pooling, decoder or pooling == LAST

    def close(self):
        """Release the model's memory."""
        self._library.llama_free(self._context)
        self._library.llama_model_free(self._model)

    def _batch(self, ids):
        """A batch of one sequence from the first position on."""
        batch = self._library.llama_batch_init(len(ids), 0, 1)
        batch.count = len(ids)
        for i, token in enumerate(ids):
            ctypes.cast(batch.tokens, ctypes.POINTER(ctypes.c_int32))[i] = int(token)
            ctypes.cast(batch.places, ctypes.POINTER(ctypes.c_int32))[i] = i
            ctypes.cast(batch.counts, ctypes.POINTER(ctypes.c_int32))[i] = 1
            ctypes.cast(batch.sequences, ctypes.POINTER(ctypes.POINTER(ctypes.c_int32)))[i][0] = 0
            ctypes.cast(batch.logits, ctypes.POINTER(ctypes.c_int8))[i] = 1
        return batch

    def __call__(self, ids):
        """Hidden states [tokens, hidden] without pooling, else the vector of the text: hidden or labels long."""
        run = self._library.llama_decode if self._decoder else self._library.llama_encode
        if self._decoder:
            self._library.llama_memory_clear(self._library.llama_get_memory(self._context), True)
        assert run(self._context, self._batch(ids)) == 0
        width = self._library.llama_model_n_embd(self._model)
        if self._pooling == NONE:
            rows = (self._library.llama_get_embeddings_ith(self._context, i) for i in range(len(ids)))
            return np.stack([np.ctypeslib.as_array(row, (width,)).copy() for row in rows])
        if self._pooling == RANK:
            width = self._library.llama_model_n_cls_out(self._model)
        return np.ctypeslib.as_array(self._library.llama_get_embeddings_seq(self._context, 0), (width,)).copy()

    def template(self, name):
        """A chat template of the file by its name."""
        return self._library.llama_model_chat_template(self._model, name.encode()).decode()

    def tokenize(self, text, *, special=True):
        """The ids of a text; `special`: with the tokens around it."""
        data, ids = text.encode(), (ctypes.c_int32 * 512)()
        vocabulary = self._library.llama_model_get_vocab(self._model)
        count = self._library.llama_tokenize(vocabulary, data, len(data), ids, 512, special, True)
        return list(ids[:count])
