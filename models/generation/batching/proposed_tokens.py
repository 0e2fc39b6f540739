"""How many tokens a step may propose."""

MAX_PROPOSED = 64
"""Ring buffers keep `MAX_CHUNK` tokens beyond their window, which is more: rejected tokens overwrite none of it."""
