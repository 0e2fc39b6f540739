"""Matmul microkernels by ISA and weight type, packing, one epilogue."""
