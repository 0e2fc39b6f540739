"""Comparing models: tensor differences, error bounds, certificates and manifests."""
