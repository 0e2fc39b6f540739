"""Pickle opcodes of protocols 0 to 5: the byte, its name, and what follows it in the stream.

Source: the opcode descriptions of Python's `pickletools`, PEP 307, PEP 3154 and PEP 574.
"""

from __future__ import annotations

from ....runtime.base.dataclass import dataclass

HIGHEST_PROTOCOL = 5


@dataclass(frozen=True)
class Opcode:
    """One instruction.

    Attributes:
        name: as `pickletools` has it.
        argument: ``""`` for none; ``u1 u2 u4 u8 i4`` little-endian integers; ``f8`` a big-endian double; ``line`` text
            up to a newline, ``lines`` two of them; ``long1 long4`` a two's complement integer, ``data1 data4 data8``
            bytes, ``text1 text4 text8`` UTF-8, each after its length in that many bytes; ``string1 string4`` are byte
            strings of Python 2.
    """

    name: str
    argument: str = ""


OPCODES: dict[int, Opcode] = {
    code[0]: Opcode(name, argument)
    for code, name, argument in (
        (b"(", "MARK", ""),
        (b".", "STOP", ""),
        (b"0", "POP", ""),
        (b"1", "POP_MARK", ""),
        (b"2", "DUP", ""),
        (b"F", "FLOAT", "line"),
        (b"I", "INT", "line"),
        (b"J", "BININT", "i4"),
        (b"K", "BININT1", "u1"),
        (b"L", "LONG", "line"),
        (b"M", "BININT2", "u2"),
        (b"N", "NONE", ""),
        (b"P", "PERSID", "line"),
        (b"Q", "BINPERSID", ""),
        (b"R", "REDUCE", ""),
        (b"S", "STRING", "line"),
        (b"T", "BINSTRING", "string4"),
        (b"U", "SHORT_BINSTRING", "string1"),
        (b"V", "UNICODE", "line"),
        (b"X", "BINUNICODE", "text4"),
        (b"a", "APPEND", ""),
        (b"b", "BUILD", ""),
        (b"c", "GLOBAL", "lines"),
        (b"d", "DICT", ""),
        (b"}", "EMPTY_DICT", ""),
        (b"e", "APPENDS", ""),
        (b"g", "GET", "line"),
        (b"h", "BINGET", "u1"),
        (b"i", "INST", "lines"),
        (b"j", "LONG_BINGET", "u4"),
        (b"l", "LIST", ""),
        (b"]", "EMPTY_LIST", ""),
        (b"o", "OBJ", ""),
        (b"p", "PUT", "line"),
        (b"q", "BINPUT", "u1"),
        (b"r", "LONG_BINPUT", "u4"),
        (b"s", "SETITEM", ""),
        (b"t", "TUPLE", ""),
        (b")", "EMPTY_TUPLE", ""),
        (b"u", "SETITEMS", ""),
        (b"G", "BINFLOAT", "f8"),
        (b"\x80", "PROTO", "u1"),
        (b"\x81", "NEWOBJ", ""),
        (b"\x82", "EXT1", "u1"),
        (b"\x83", "EXT2", "u2"),
        (b"\x84", "EXT4", "i4"),
        (b"\x85", "TUPLE1", ""),
        (b"\x86", "TUPLE2", ""),
        (b"\x87", "TUPLE3", ""),
        (b"\x88", "NEWTRUE", ""),
        (b"\x89", "NEWFALSE", ""),
        (b"\x8a", "LONG1", "long1"),
        (b"\x8b", "LONG4", "long4"),
        (b"B", "BINBYTES", "data4"),
        (b"C", "SHORT_BINBYTES", "data1"),
        (b"\x8c", "SHORT_BINUNICODE", "text1"),
        (b"\x8d", "BINUNICODE8", "text8"),
        (b"\x8e", "BINBYTES8", "data8"),
        (b"\x8f", "EMPTY_SET", ""),
        (b"\x90", "ADDITEMS", ""),
        (b"\x91", "FROZENSET", ""),
        (b"\x92", "NEWOBJ_EX", ""),
        (b"\x93", "STACK_GLOBAL", ""),
        (b"\x94", "MEMOIZE", ""),
        (b"\x95", "FRAME", "u8"),
        (b"\x96", "BYTEARRAY8", "data8"),
        (b"\x97", "NEXT_BUFFER", ""),
        (b"\x98", "READONLY_BUFFER", ""),
    )
}
