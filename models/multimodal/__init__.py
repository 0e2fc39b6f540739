"""Multimodal families, one module each: parts that are text, image or audio families, and how they are joined."""
