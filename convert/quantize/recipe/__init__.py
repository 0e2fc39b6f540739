"""Recipes: the rules, mixes and size targets that choose each tensor's type."""
