"""Audio models, one module per family."""
