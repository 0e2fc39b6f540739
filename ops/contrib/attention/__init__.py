"""Attention of com.microsoft, KV caches."""
