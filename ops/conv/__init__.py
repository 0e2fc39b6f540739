"""Conv, ConvTranspose, DeformConv."""
