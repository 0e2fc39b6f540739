"""The pickle machine: Python's own pickler as the oracle for what it reads, and hostile streams for what it refuses."""

import argparse
import collections
import datetime
import pathlib
import pickle
import pickletools
import struct
import uuid

import pytest
from candle_convert.formats.containers.pickle.cursor import SPAN, Carrier, Span
from candle_convert.formats.containers.pickle.machine import Global, Machine, Persistent, Record
from candle_convert.formats.containers.pickle.opcodes import OPCODES
from candle_convert.formats.containers.torch.allowed_names import accepted, executing, load, refusal, unknown
from candle_convert.runtime.base.errors import Error, LimitError, UnsafeFileError
from candle_convert.runtime.base.limits import Budget, Limits
from candle_convert.runtime.tensor.storage import Held
from hypothesis import given, settings
from hypothesis import strategies as st

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def carrier(data):
    return Carrier(Held(data), "x.pkl", Budget("x.pkl", Limits()))


def run(data):
    return Machine(carrier(data)).run()


def fault(data):
    """The error that reading gives, None without one."""
    try:
        run(data)
    except Error as error:
        return error
    return None


def test_the_opcode_table_is_pythons():
    assert {code: opcode.name for code, opcode in OPCODES.items()} == {
        ord(opcode.code): opcode.name for opcode in pickletools.opcodes
    }


PLAIN = [
    0,
    -1,
    255,
    65536,
    -(2**31),
    2**70,
    -(2**200),
    1.5,
    float("inf"),
    "",
    "é\n\\",
    "\ud800",
    b"",
    b"\x00\xff'\n",
    None,
    True,
    (),
    (1,),
    (1, 2),
    (1, 2, 3),
    (1, (2, (3, (4,)))),
    [1, [2, []]],
    {"a": {1: 2}, (1, "b"): None},
    {1, 2},
    frozenset({3, "x"}),
    1 + 2j,
    collections.OrderedDict(b=1, a=2),
    collections.defaultdict(list, {"a": [1]}),
    collections.Counter("aab"),
    bytearray(b"a\xff"),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_plain_values_are_read_as_python_reads_them(protocol):
    for value in PLAIN:
        assert run(pickle.dumps(value, protocol)) == value
    assert run(pickle.dumps(PLAIN, protocol)) == PLAIN


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_values_that_stand_for_others(protocol):
    assert run(pickle.dumps(pathlib.PurePosixPath("/a/b"), protocol)) == "/a/b"
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5, 6)
    moments = [moment, moment.date(), moment.time()]
    assert run(pickle.dumps(moments, protocol)) == [part.isoformat() for part in moments]
    assert run(pickle.dumps(datetime.timedelta(hours=1), protocol)) == 3600.0
    space = run(pickle.dumps(argparse.Namespace(lr=0.5), protocol))
    assert (space.name, space.state) == ("argparse.Namespace", {"lr": 0.5})
    assert run(pickle.dumps(uuid.UUID(int=5), protocol)).state["int"] == 5


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
        max_leaves=20,
    ),
    st.sampled_from(PROTOCOLS),
)
@settings(max_examples=200)
def test_any_value_is_read_as_python_reads_it(value, protocol):
    data = pickle.dumps(value, protocol)
    assert run(data) == pickle.loads(data) == value


@given(st.binary(max_size=200))
@settings(max_examples=500)
def test_any_bytes_end_in_our_errors(data):
    for start in (b"", b"\x80\x02", b"\x80\x04("):
        error = fault(start + data)
        assert error is None or (error.file, error.offset is None) == ("x.pkl", False)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_truncation_and_many_flips_end_in_our_errors(protocol):
    data = pickle.dumps(PLAIN, protocol)
    for stop in range(len(data)):
        with pytest.raises(Error):
            run(data[:stop])
    for place in range(len(data)):
        for bit in (0, 3, 7):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            error = fault(bytes(changed))
            assert error is None or error.offset is not None


def test_python_2_strings():
    assert run(b"(lp0\nS'a\\x41'\np1\naU\x02\xff\xfeaT\x03\x00\x00\x00abca.") == ["aA", b"\xff\xfe", "abc"]


def test_long_byte_strings_stay_where_they_are():
    data = pickle.dumps([b"x" * SPAN, bytearray(b"y" * SPAN), "z" * 70_000], 5)
    first, second, text = run(data)
    assert isinstance(first, Span)
    assert bytes(first.storage.read(0, 3)) == b"xxx"
    assert bytes(second.storage.read(SPAN - 1, SPAN)) == b"y"
    assert text == "z" * 70_000


RECORDS = [
    (61, "reduce", b"\x80\x02cm\nf\nK\x01\x85R."),
    (61, "newobj", b"\x80\x02cm\nf\nK\x01\x85\x81."),
    (61, "newobj-ex", b"\x80\x04\x8c\x01m\x8c\x01f\x93K\x01\x85}\x92."),
    (61, "inst", b"(K\x01im\nf\n."),
    (61, "obj", b"(cm\nf\nK\x01o."),
    (61, "protocol-0", b"ccopy_reg\n_reconstructor\n(cm\nf\nc__builtin__\nobject\nK\x01tR."),
]


@pytest.mark.parametrize(("number", "name", "data"), RECORDS, ids=[row[1] for row in RECORDS])
def test_calls_are_kept_as_records(number, name, data):
    record = run(data)
    assert isinstance(record, Record)
    assert (record.name, record.arguments) == ("m.f", (1,))


def test_a_record_keeps_state_items_pairs_and_calls_of_its_own():
    record = run(b"\x80\x02cm\nf\n)R}X\x01\x00\x00\x00aK\x01sbK\x05aK\x06K\x07s.")
    assert (record.state, record.items, record.pairs) == ({"a": 1}, [5], [(6, 7)])
    called = run(b"\x80\x02cm\nf\n)RK\x01\x85R.")
    assert (called.name, called.target.name, called.arguments) == ("", "m.f", (1,))


def test_persistent_ids_are_kept():
    reference = run(b"\x80\x02X\x01\x00\x00\x00aK\x01\x86Q.")
    assert isinstance(reference, Persistent)
    assert reference.id == ("a", 1)
    assert run(b"Pabc\n.").id == "abc"


def test_names_carry_their_place_and_todays_module():
    machine = Machine(carrier(b"\x80\x02c__builtin__\neval\n."))
    assert machine.run() == Global("__builtin__", "eval", 2)
    assert [name.name for name in machine.globals] == ["builtins.eval"]


def test_a_dictionary_may_hold_itself():
    value = {}
    value["me"] = value
    read = run(pickle.dumps(value))
    assert read["me"] is read


DEEP = 200_000
HOSTILE = [
    (62, "stack-global-of-ints", b"\x80\x04K\x01K\x02\x93.", "E-PKL-NAME"),
    (62, "stack-global-of-bytes", b"\x80\x04C\x02osC\x06system\x93.", "E-PKL-NAME"),
    (62, "stack-global-of-a-name", b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x01x\x93.", "E-PKL-NAME"),
    (62, "stack-global-of-a-memo-number", b"\x80\x04K\x07\x94\x8c\x01x\x93h\x00\x8c\x01x\x93.", "E-PKL-NAME"),
    (63, "put-and-memoize", b"\x80\x04]q\x05]\x94a.", "E-PKL-MEMO"),
    (63, "memoize-and-put", b"\x80\x04]\x94]q\x05a.", "E-PKL-MEMO"),
    (63, "get-of-nothing", b"\x80\x02h\x00.", "E-PKL-MEMO"),
    (63, "long-get-of-nothing", b"\x80\x02j\xff\xff\xff\xff.", "E-PKL-MEMO"),
    (63, "get-of-text", b"gx\n.", "E-PKL-MEMO"),
    (63, "put-below-zero", b"]p-1\n.", "E-PKL-MEMO"),
    (63, "put-of-nothing", b"\x80\x02q\x00.", "E-PKL-STACK"),
    (65, "marks", b"\x80\x02" + b"(" * DEEP + b".", "E-PKL-DEPTH"),
    (66, "long4", b"\x80\x02\x8b\xff\xff\xff\x7fx.", "E-PKL-TRUNCATED"),
    (66, "long4-of-its-size", b"\x80\x02\x8b\x00\x10\x00\x00" + b"x" * 4096 + b".", "E-PKL-LONG"),
    (66, "binbytes8", b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b"x.", "E-PKL-TRUNCATED"),
    (66, "bytearray8", b"\x80\x05\x96" + struct.pack("<Q", 1 << 62) + b"x.", "E-PKL-TRUNCATED"),
    (66, "binunicode8", b"\x80\x04\x8d" + struct.pack("<Q", (1 << 64) - 1) + b"x.", "E-PKL-TRUNCATED"),
    (66, "binbytes", b"\x80\x03B\xff\xff\xff\xffx.", "E-PKL-TRUNCATED"),
    (66, "binstring-below-zero", b"\x80\x02T\xff\xff\xff\xffx.", "E-PKL-TRUNCATED"),
    (66, "frame", b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"N.", "E-PKL-TRUNCATED"),
    (67, "empty", b"", "E-PKL-TRUNCATED"),
    (67, "no-stop", b"\x80\x02]", "E-PKL-TRUNCATED"),
    (67, "stop-of-nothing", b"\x80\x02.", "E-PKL-STACK"),
    (67, "stop-of-two", b"\x80\x02NN.", "E-PKL-STACK"),
    (67, "stop-in-a-mark", b"\x80\x02(N.", "E-PKL-STACK"),
    (67, "pop", b"\x80\x020.", "E-PKL-STACK"),
    (67, "pop-mark", b"\x80\x02N1.", "E-PKL-STACK"),
    (67, "dup", b"\x80\x022.", "E-PKL-STACK"),
    (67, "tuple3", b"\x80\x02NN\x87.", "E-PKL-STACK"),
    (67, "pop-over-a-mark", b"\x80\x02N(\x85.", "E-PKL-STACK"),
    (67, "reduce", b"\x80\x02NR.", "E-PKL-STACK"),
    (67, "odd-items", b"\x80\x02}(Nu.", "E-PKL-STACK"),
    (0, "opcode", b"\x80\x02\xff.", "E-PKL-OPCODE"),
    (0, "protocol", b"\x80\x06N.", "E-PKL-PROTOCOL"),
    (0, "list-key", b"\x80\x02}]Ns.", "E-PKL-KEY"),
    (0, "call-of-text", b"\x80\x02X\x01\x00\x00\x00a)R.", "E-PKL-TARGET"),
    (0, "arguments-no-tuple", b"\x80\x02cm\nf\n]R.", "E-PKL-TARGET"),
    (0, "append-to-dict", b"\x80\x02}Na.", "E-PKL-TARGET"),
    (0, "state-of-a-name", b"\x80\x02cm\nf\n}b.", "E-PKL-TARGET"),
    (0, "set-from-number", b"\x80\x02cbuiltins\nset\nK\x01\x85R.", "E-PKL-ARGUMENTS"),
    (0, "bytes-of-length", b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.", "E-PKL-ARGUMENTS"),
    (0, "codec", b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86R.", "E-PKL-ARGUMENTS"),
    (0, "buffer", b"\x80\x05\x97.", "E-PKL-BUFFER"),
    (0, "endless-line", b"V" + b"x" * 100_000, "E-PKL-LINE"),
    (0, "digits", b"I" + b"9" * 5000 + b"\n.", "E-PKL-NUMBER"),
    (0, "not-utf-8", b"\x80\x02X\x01\x00\x00\x00\xff.", "E-PKL-TEXT"),
    *(
        (60, f"ext{size}", b"\x80\x02" + code + b"\x01" * size + b".", "E-PKL-EXT")
        for code, size in ((b"\x82", 1), (b"\x83", 2), (b"\x84", 4))
    ),
]


@pytest.mark.parametrize(("number", "name", "data", "code"), HOSTILE, ids=[f"{row[0]}-{row[1]}" for row in HOSTILE])
def test_hostile(number, name, data, code):
    with pytest.raises(Error) as caught:
        run(data)
    assert caught.value.code == code
    assert caught.value.file == "x.pkl"
    assert caught.value.offset is not None


def test_keys_that_share_a_hash_are_few():
    numbers = [((1 << 61) - 1) * number for number in range(1, 6000)]
    data = b"\x80\x02}(" + b"".join(b"\x8a\x0a" + number.to_bytes(10, "little") + b"N" for number in numbers) + b"u."
    with pytest.raises(LimitError, match="E-PKL-KEYS"):
        run(data)


def test_a_tuple_of_doublings_is_no_key():
    data = b"\x80\x02)q\x00" + b"".join(b"h%ch%c\x86q%c0" % (n, n, n + 1) for n in range(30)) + b"}h\x1eNs."
    with pytest.raises(Error, match="E-PKL"):
        run(data)


def test_repeated_growth_is_charged():
    pairs = b"](" + b"NN\x86" * 1000 + b"e"
    data = b"\x80\x02ccollections\ndeque\nq\x00" + pairs + b"\x85q\x01" + b"h\x00h\x01R0" * 10_000 + b"."
    with pytest.raises(LimitError, match="E-LIMIT"):
        run(data)


def test_unknown_names_are_told_all_at_once_and_where():
    data = b"\x80\x02cmylib\nModel\n)Rccollections\nOrderedDict\n)Rcposix\nsystem\n\x87."
    with pytest.raises(UnsafeFileError) as caught:
        load(carrier(data), 0, frozenset())
    error = caught.value
    assert (error.code, error.offset, error.exit_code) == ("E-PKL-GLOBAL", data.index(b"cposix"), 5)
    assert "`posix.system`" in error.message
    assert "`mylib.Model`" in error.message
    assert "Nothing was executed" in error.message


def test_allowed_names_are_inert_and_those_that_run_code_stay_refused():
    data = b"\x80\x02cmylib\nModel\n)R."
    assert load(carrier(data), 0, frozenset({"mylib.Model"})).value.name == "mylib.Model"
    assert load(carrier(data), 0, frozenset({"mylib.*"})).value.name == "mylib.Model"
    with pytest.raises(UnsafeFileError) as caught:
        load(carrier(data), 0, frozenset({"mylib.Other"}))
    assert "--allow-global mylib.Model" in caught.value.hint
    for name in (
        "posix.system",
        "os.path.os.system",
        "builtins.eval",
        "numpy.f2py.crackfortran.getlincoef",
        "torch.hub.load",
    ):
        module, _, qualname = name.rpartition(".")
        with pytest.raises(UnsafeFileError):
            load(carrier(f"\x80\x02c{module}\n{qualname}\n.".encode("latin-1")), 0, frozenset({"*", name}))
        assert executing(name)


def test_names_are_refused_even_where_the_pickle_breaks_later():
    with pytest.raises(UnsafeFileError):
        load(carrier(b"cposix\nsystem\n(Vid\ntR\xff"), 0, frozenset())


LOOKALIKES = (
    "collections.\u041erderedDict",
    "collections.OrderedDict.",
    "collections.OrderedDict.fromkeys",
    ".collections.OrderedDict",
    "Collections.OrderedDict",
)


@pytest.mark.parametrize("name", LOOKALIKES, ids=ascii)
def test_lookalikes_are_not_the_names_they_look_like(name):
    module, _, qualname = name.rpartition(".")
    assert accepted("collections.OrderedDict")
    assert not accepted(name)
    assert unknown([Global(module, qualname, 0)], frozenset())


def test_a_long_list_of_names_is_cut():
    assert "300 more" in refusal("x", [Global("m", f"n{number}", 0) for number in range(501)]).message
