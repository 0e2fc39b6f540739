"""Layers by the other names that Keras has for them."""

from __future__ import annotations

from . import conv, pooling

AvgPool1D, AvgPool2D, AvgPool3D = pooling.AveragePooling1D, pooling.AveragePooling2D, pooling.AveragePooling3D
MaxPool1D, MaxPool2D, MaxPool3D = pooling.MaxPooling1D, pooling.MaxPooling2D, pooling.MaxPooling3D
GlobalAvgPool1D, GlobalMaxPool1D = pooling.GlobalAveragePooling1D, pooling.GlobalMaxPooling1D
GlobalAvgPool2D, GlobalMaxPool2D = pooling.GlobalAveragePooling2D, pooling.GlobalMaxPooling2D
GlobalAvgPool3D, GlobalMaxPool3D = pooling.GlobalAveragePooling3D, pooling.GlobalMaxPooling3D
Convolution1D, Convolution1DTranspose = conv.Conv1D, conv.Conv1DTranspose
Convolution2D, Convolution2DTranspose = conv.Conv2D, conv.Conv2DTranspose
Convolution3D, Convolution3DTranspose = conv.Conv3D, conv.Conv3DTranspose
SeparableConvolution1D, SeparableConvolution2D = conv.SeparableConv1D, conv.SeparableConv2D
__all__ = [
    "AvgPool1D", "AvgPool2D", "AvgPool3D", "Convolution1D", "Convolution1DTranspose", "Convolution2D",
    "Convolution2DTranspose", "Convolution3D", "Convolution3DTranspose", "GlobalAvgPool1D", "GlobalAvgPool2D",
    "GlobalAvgPool3D", "GlobalMaxPool1D", "GlobalMaxPool2D", "GlobalMaxPool3D", "MaxPool1D", "MaxPool2D", "MaxPool3D",
    "SeparableConvolution1D", "SeparableConvolution2D",
]  # fmt: skip
