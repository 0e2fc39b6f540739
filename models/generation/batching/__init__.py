"""Continuous batching: an engine that decodes the requests of many callers together."""
