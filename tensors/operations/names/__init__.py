"""Names of PyTorch that are no operations: classes of tensors by dtype, memory formats, states of random numbers, and
settings."""
