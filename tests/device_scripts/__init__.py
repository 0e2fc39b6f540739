"""Scripts that tests run on a GPU or in the CUDA simulator, each in its own process."""
