"""What other packages need to take our tensors for those of a framework that they know."""
