"""Regions: the nodes that one plan computes, their weights, and values known before planning."""
