"""Endpoints: a module declares its own in the constant ``ENDPOINTS``; no list names them."""
