"""Writes into tensors: operations in place, and views, through which the tensors of which they were taken change."""
