"""Loading: weights from any format become a runnable model."""
