"""Work that the workers of a Dask cluster share: conversions by bytes of tensors, model runs by rows of input."""
