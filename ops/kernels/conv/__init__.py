"""Convolution algorithms: implicit GEMM, Winograd, depthwise, NCHW16c."""
