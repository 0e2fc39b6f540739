"""Further functions of PyTorch, written with other operations."""
