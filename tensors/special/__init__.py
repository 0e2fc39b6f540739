"""Functions of one number that are no operators: gamma functions and inverse functions, with gradients."""
