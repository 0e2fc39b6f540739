"""Complex tensors: parts of complex numbers, Fourier transforms and spectra of signals."""
