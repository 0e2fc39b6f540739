"""Zip archives: members read in place, and archives laid out for writing.

Source: PKWARE's APPNOTE 6.3 (records 4.3.7 to 4.3.16, zip64 extra field 4.5.3).
"""

from .archive import Archive, looks_like
from .records import DEFLATED, STORED, Member
from .writer import Entry, layout

__all__ = ["DEFLATED", "STORED", "Archive", "Entry", "Member", "layout", "looks_like"]
