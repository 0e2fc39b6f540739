"""Language model families, one module each."""
