"""Attention, rotary embedding, linear attention and their states."""
