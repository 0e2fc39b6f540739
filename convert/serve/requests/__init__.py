"""What requests hold: bodies, fields, pictures and sounds; and the errors of those that are refused."""
