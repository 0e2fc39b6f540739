"""Runnable models of texts with pictures or sounds, and their tasks."""
