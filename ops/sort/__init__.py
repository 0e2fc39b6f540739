"""TopK and Unique."""
