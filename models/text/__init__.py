"""Text encoder families, one module each."""
