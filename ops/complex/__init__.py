"""Complex numbers: the operators of complex tensors, their gradients, and Fourier transforms."""
