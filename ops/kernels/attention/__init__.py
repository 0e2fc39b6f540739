"""Flash attention building blocks."""
