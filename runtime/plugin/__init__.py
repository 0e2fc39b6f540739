"""Plug-in discovery: what the modules of a package declare, read from their syntax trees without importing them."""
