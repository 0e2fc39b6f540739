"""Names that scripts of PyTorch use and that change nothing here, and second names of modules; `names` is the table."""
