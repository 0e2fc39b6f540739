"""Models by the names of transformers' classes, whose weights are trained."""
