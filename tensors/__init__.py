"""The compute tensor: lazy expressions over the operators, gradients, plans cached by structure."""
