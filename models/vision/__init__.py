"""Families of image models, one module each: a table of modules with their names in each library, and the graph."""
