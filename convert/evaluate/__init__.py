"""Evaluation: datasets, metrics, perplexity and KL divergence."""
