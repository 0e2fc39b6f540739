"""Quantized operators of com.microsoft: MatMulNBits, QLinear*, DynamicQuantizeLSTM."""
