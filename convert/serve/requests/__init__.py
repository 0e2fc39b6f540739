"""Request parsing: bodies, fields, pictures and sounds, and the errors of refused requests."""
