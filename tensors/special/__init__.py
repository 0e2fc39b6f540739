"""Functions of one number that are not operators: gamma functions and inverse functions, with gradients."""
