"""Models that several workers compute together: stages of layers, and tensor-parallel ranks."""
