"""Number of tokens that a step may propose."""

MAX_PROPOSED = 64
"""Limit of the tokens that speculation proposes per step. Ring buffers keep `MAX_CHUNK` tokens beyond their window,
which is more: rejected tokens overwrite none of it."""
