"""Plug-ins, found in the syntax trees of modules without importing them, and optional packages."""
