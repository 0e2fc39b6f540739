"""How blocks are laid out: fields, packed bits and the tables that codes point into."""
