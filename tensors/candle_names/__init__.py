"""Candle's names of operations: constructors of the class, `to_device`, `to_dtype` and the broadcasting operators."""
