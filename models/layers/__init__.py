"""What families share: attention, rotary embedding, norms, feed-forward networks, caches, and how formats lay out their weights."""
