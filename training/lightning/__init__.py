"""Modules and trainers with Lightning's interface."""
