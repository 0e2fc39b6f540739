"""Layers that model families share: attention, rotary embedding, norms, feed-forward networks, KV caches."""
