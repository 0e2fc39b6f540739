"""Bounded handling of untrusted input: JSON, regular expressions, and calls in a child process with limits."""
