"""onnxruntime on an exported encoder-decoder of pictures and texts."""

import numpy as np
import onnxruntime


def encoder_decoder_logits(folder, given):
    """The logits of the graphs in a folder.

    Args:
        given: pixel_values, input_ids, attention_mask and decoder_input_ids of two prompts.
    """
    encoder = onnxruntime.InferenceSession(folder / "encoder_model.onnx")
    (hidden,) = encoder.run(None, {name: given[name] for name in ("pixel_values", "input_ids", "attention_mask")})
    decoder = onnxruntime.InferenceSession(folder / "decoder_model_merged.onnx")
    feeds = {
        "input_ids": given["decoder_input_ids"],
        "encoder_hidden_states": hidden,
        "encoder_attention_mask": given["attention_mask"],
        "use_cache_branch": np.array([False]),
    }
    for value in decoder.get_inputs():
        if value.name.startswith("past"):
            feeds[value.name] = np.zeros([2, *(dim if isinstance(dim, int) else 1 for dim in value.shape[1:])], "f4")
    return decoder.run(["logits"], feeds)[0]
