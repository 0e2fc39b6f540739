"""Workers of Dask, the description of the work that they do, and how they open models."""
