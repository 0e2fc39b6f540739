"""CUDA matrix products and convolutions: tiles of our own, cuBLASLt and cuDNN."""
