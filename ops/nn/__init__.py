"""Neural-network layers: convolution, pooling, normalization, attention, recurrence."""
