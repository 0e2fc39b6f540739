"""File formats, one module each: bytes <-> Graph. A module's `FORMAT` is all that the rest of the package sees.

`containers/` holds what several formats are packed in (zip archives, pickles). To add a format, write `formats/NAME.py` with a
`FORMAT = Format(name="NAME", ...)`; the command line, the tables and the tests over all formats find it by its existence.
"""
