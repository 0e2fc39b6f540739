"""Small valid files of every format, one module a format."""
