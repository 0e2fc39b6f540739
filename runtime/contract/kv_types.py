"""Types of KV caches, which commands check without NumPy."""

KV_TYPES = ("f32", "f16", "q8_0")
"""Storage types of keys and values."""
