"""Values of decoding options, which commands check without NumPy."""

MAX_PROPOSED = 64
"""Limit of the tokens that speculation proposes per step. Ring buffers keep `MAX_CHUNK` tokens beyond their window,
which is more: rejected tokens overwrite none of it."""
KV_TYPES = ("f32", "f16", "q8_0")
"""How keys and values can be stored."""
