"""GGUF: broken and hostile files, each rejected with its code, in little time and memory."""

import re
import struct

import candle_convert as cc
import jinja2
import pytest
from candle_convert.formats.containers.gguf import template_scan
from candle_convert.formats.gguf import FORMAT
from candle_convert.runtime.contract.format import ReadOptions
from candle_convert.runtime.tensor.file import Source
from candle_convert.tests.builders.gguf_files import Maker

M, V1, BIG = Maker(), Maker(1), Maker(3, big=True)
F32 = bytes(range(1, 9))


def one(infos, data=bytes(64), **options):
    return M.file(infos=infos, data=data, **options)


def nested(depth):
    return M.raw_pair("a", "array", (M.pack("I", 9) + M.count(1)) * depth + M.content("u8", [1]))


def align(pair, **options):
    return M.file([pair], [M.info("x", [2])], bytes(8), **options)


def tokenizer(*pairs):
    return M.file([M.array("tokenizer.ggml.tokens", "string", ["a", "b", "c"]), *pairs])


HUGE = 1 << 63
ALIGNMENTS = (0, 3, 48, 1 << 21, (1 << 32) - 1)
UNKNOWN_TYPES = (4, 5, 31, 32, 33, 36, 37, 38, 43, 97, 137, 1 << 31, (1 << 32) - 1)
HOSTILE = [
    (21, "magic", b"GGUX" + bytes(60), "E-GGUF-MAGIC"),
    (21, "lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:0123456789\nsize 5\n", "E-LFS-POINTER"),
    (21, "html", b"<!DOCTYPE html><html>", "E-FILE-HTML"),
    (22, "version-0", b"GGUF" + bytes(60), "E-GGUF-VERSION"),
    (22, "version-4", Maker(4).file(), "E-GGUF-VERSION"),
    (22, "version-4-big", Maker(4, big=True).file(), "E-GGUF-VERSION"),
    (22, "version-2^24+1", b"GGUF" + struct.pack("<I", (1 << 24) + 1) + bytes(32), "E-GGUF-VERSION"),
    (22, "no-version", b"GGUF\x03", "E-GGUF-TRUNCATED"),
    (22, "no-counts", b"GGUF\x03\0\0\0\0", "E-GGUF-TRUNCATED"),
    (23, "n-tensors", M.file(n_infos=HUGE), "E-GGUF-COUNT"),
    (23, "n-pairs", M.file(n_pairs=HUGE), "E-GGUF-COUNT"),
    (23, "n-pairs-v1", V1.file(n_pairs=(1 << 32) - 1), "E-GGUF-COUNT"),
    (23, "n-tensors-big", BIG.file(n_infos=HUGE), "E-GGUF-COUNT"),
    (24, "key-2^63", M.file([M.string("k", HUGE) + bytes(16)]), "E-GGUF-STRING"),
    (24, "key-past-end", M.file([M.string("k", 100) + bytes(16)]), "E-GGUF-STRING"),
    (24, "value-2^63", M.file([M.raw_pair("k", "string", M.string("v", HUGE))]), "E-GGUF-STRING"),
    (24, "value-2^64-1", M.file([M.raw_pair("k", "string", M.string("v", (1 << 64) - 1))]), "E-GGUF-STRING"),
    (
        24,
        "in-array",
        M.file([M.raw_pair("k", "array", M.pack("I", 8) + M.count(2) + M.string("a") + M.string("b", HUGE))]),
        "E-GGUF-STRING",
    ),
    (24, "tensor-name", one([M.string("x", HUGE) + bytes(24)]), "E-GGUF-STRING"),
    (25, "array-2^63", M.file([M.array("k", "u8", [1], HUGE)]), "E-GGUF-ARRAY"),
    (25, "array-wraps", M.file([M.array("k", "f64", [1], (1 << 61) + 1)]), "E-GGUF-ARRAY"),
    (25, "strings-2^61", M.file([M.array("k", "string", ["a"], 1 << 61)]), "E-GGUF-ARRAY"),
    (25, "arrays-2^60", M.file([M.raw_pair("k", "array", M.pack("I", 9) + M.count(1 << 60))]), "E-GGUF-ARRAY"),
    (26, "depth-65", M.file([nested(65)]), "E-LIMIT-DEPTH"),
    (26, "depth-100000", M.file([nested(100_000)]), "E-LIMIT-DEPTH"),
    (27, "type-13", M.file([M.raw_pair("k", 13, bytes(8))]), "E-GGUF-VALUE-TYPE"),
    (27, "type-2^32-1", M.file([M.raw_pair("k", (1 << 32) - 1, bytes(8))]), "E-GGUF-VALUE-TYPE"),
    (27, "element-type-99", M.file([M.raw_pair("k", "array", M.pack("IQ", 99, 1) + bytes(8))]), "E-GGUF-VALUE-TYPE"),
    (27, "bool-2", M.file([M.pair("k", "bool", 2)]), "E-GGUF-BOOL"),
    (27, "bools-255", M.file([M.array("k", "bool", [0, 1, 255])]), "E-GGUF-BOOL"),
    (28, "key-not-utf8", M.file([M.pair(b"\xff\xfe", "u8", 1)]), "E-GGUF-KEY"),
    (29, "empty-key", M.file([M.pair("", "u64", 1)]), "E-GGUF-KEY"),
    (29, "long-key", M.file([M.pair("k" * 65536, "u64", 1)]), "E-GGUF-KEY"),
    (29, "key-twice", M.file([M.pair("k", "u8", 1), M.pair("k", "u8", 1)]), "E-GGUF-DUPLICATE"),
    (
        29,
        "file-twice",
        M.file([M.pair("candle_convert.file.a", "string", "1"), M.pair("candle_convert.file.a", "string", "1")]),
        "E-GGUF-DUPLICATE",
    ),
    *(
        (30, f"alignment-{value}", align(M.pair("general.alignment", "u32", value)), "E-GGUF-ALIGNMENT")
        for value in ALIGNMENTS
    ),
    (30, "alignment-u64", align(M.pair("general.alignment", "u64", 32)), "E-GGUF-ALIGNMENT"),
    (30, "alignment-text", align(M.pair("general.alignment", "string", "32")), "E-GGUF-ALIGNMENT"),
    (31, "dims-5", one([M.info("x", [1] * 5)]), "E-GGUF-DIMS"),
    (31, "dims-2^32-1", one([M.info("x", [1], n_dims=(1 << 32) - 1)]), "E-GGUF-DIMS"),
    (32, "product-wraps", one([M.info("x", [1 << 32, 1 << 32])]), "E-GGUF-SHAPE"),
    (32, "hidden-by-zero", one([M.info("x", [0, 1 << 40, 1 << 40])]), "E-GGUF-SHAPE"),
    (32, "rows-2^42+1", one([M.info("x", [32, (1 << 42) + 1])]), "E-GGUF-TRUNCATED"),
    (33, "row-of-33", one([M.info("x", [33, 2], 8)]), "E-GGUF-BLOCK"),
    (33, "scalar-block", one([M.info("x", [], 8)]), "E-GGUF-BLOCK"),
    *((34, f"type-{kind}", one([M.info("x", [32], kind)]), "E-GGUF-TYPE") for kind in UNKNOWN_TYPES),
    (35, "misaligned", one([M.info("x", [2]), M.info("y", [2], 0, 8)]), "E-GGUF-ALIGN"),
    (35, "past-end", one([M.info("x", [2]), M.info("y", [2], 0, 1 << 40)]), "E-GGUF-GAP"),
    (35, "past-2^64", one([M.info("x", [2], 0, (1 << 64) - 32)]), "E-GGUF-GAP"),
    (35, "overlap", one([M.info("x", [16]), M.info("y", [2], 0, 32)]), "E-GGUF-OVERLAP"),
    (35, "same-place", one([M.info("x", [2]), M.info("y", [2])]), "E-GGUF-OVERLAP"),
    (35, "gap", one([M.info("x", [2]), M.info("y", [2], 0, 64)], bytes(128)), "E-GGUF-GAP"),
    (35, "gap-before", one([M.info("x", [2], 0, 32)]), "E-GGUF-GAP"),
    (36, "stored-short", one([M.info("x", [256], 14), M.info("y", [2], 0, 192)], bytes(256)), "E-GGUF-OVERLAP"),
    (37, "tensor-twice", one([M.info("x", [2]), M.info("x", [2], 0, 32)]), "E-GGUF-DUPLICATE"),
    (37, "name-not-utf8", one([M.info(b"\xff", [2])]), "E-GGUF-NAME"),
    (38, "last-cut", one([M.info("x", [2]), M.info("y", [8], 0, 32)], bytes(63)), "E-GGUF-TRUNCATED"),
    (41, "tokens-numbers", M.file([M.array("tokenizer.ggml.tokens", "u32", [1])]), "E-GGUF-TOKENIZER"),
    (41, "scores-short", tokenizer(M.array("tokenizer.ggml.scores", "f32", [0.0, 1.0])), "E-GGUF-TOKENIZER"),
    (41, "types-long", tokenizer(M.array("tokenizer.ggml.token_type", "i32", [1] * 4)), "E-GGUF-TOKENIZER"),
    (41, "scores-text", tokenizer(M.array("tokenizer.ggml.scores", "string", ["a"] * 3)), "E-GGUF-TOKENIZER"),
    (41, "types-scalar", tokenizer(M.pair("tokenizer.ggml.token_type", "i32", 1)), "E-GGUF-TOKENIZER"),
    (41, "merges-number", tokenizer(M.pair("tokenizer.ggml.merges", "u32", 1)), "E-GGUF-TOKENIZER"),
    (
        42,
        "blocks",
        M.file([M.pair("general.architecture", "string", "a"), M.pair("a.block_count", "u64", 1 << 32)]),
        "E-GGUF-HPARAM",
    ),
    (40, "count-text", M.file([M.pair("split.count", "string", "2")]), "E-GGUF-SPLIT"),
    (40, "no-number", M.file([M.pair("split.count", "u16", 2)]), "E-GGUF-SPLIT"),
    (40, "not-named-so", M.file([M.pair("split.no", "u16", 0), M.pair("split.count", "u16", 2)]), "E-GGUF-SPLIT-NAME"),
    (
        1,
        "file-of-arrays",
        M.file([M.raw_pair("candle_convert.file.a", "array", M.pack("IQ", 9, 1) + bytes(16))]),
        "E-GGUF-VALUE-TYPE",
    ),
    (1, "file-past-end", M.file([M.raw_pair("candle_convert.file.a", "string", M.string("v", HUGE))]), "E-GGUF-STRING"),
]


@pytest.mark.parametrize(("number", "name", "data", "code"), HOSTILE, ids=[f"{row[0]}-{row[1]}" for row in HOSTILE])
def test_hostile(number, name, data, code, tmp_path, sandbox):
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    outcome = sandbox.outcome(path)
    assert (outcome.code, outcome.quick) == (code, True), outcome


def test_large_claims_within_real_bytes_hit_the_budget(tmp_path, sandbox):
    path = tmp_path / "x.gguf"
    payload = M.pack("I", 9) + M.count(900_000) + M.content("string", []) * 900_000
    path.write_bytes(M.file([M.raw_pair("k", "array", payload)]))
    assert sandbox.outcome(path).code == "E-LIMIT-HEADER"


def opened(tmp_path, data):
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    return cc.open(path)


def test_values_that_are_odd_but_held(tmp_path):
    pairs = [M.pair("broken", "string", b"\xff\x00"), M.array("mixed", "string", ["a", b"\xfe"]), nested(64)]
    graph = opened(
        tmp_path, M.file(pairs, [M.info("scalar", [], 0), M.info("n" * 64, [0, 3], 0, 32)], F32[:4] + bytes(28))
    )
    assert graph.metadata["broken"] == b"\xff\x00"
    assert graph.metadata["mixed"] == ["a", b"\xfe"]
    assert graph["scalar"].shape == ()
    assert graph["scalar"].raw() == F32[:4]
    assert graph["n" * 64].shape == (3, 0)
    assert [note.code for note in graph.notes] == ["W-GGUF-NAME"]


SAMPLE = M.file(
    [
        M.pair("general.architecture", "string", "llama"),
        M.pair("general.alignment", "u32", 32),
        M.array("tokenizer.ggml.tokens", "string", ["a", "bc"]),
        M.array("tokenizer.ggml.scores", "f32", [1.0, 2.0]),
        M.pair("b", "bool", 1),
        M.raw_pair("n", "array", M.pack("IQ", 9, 2) + M.content("u8", [1, 2]) + M.content("string", ["x"])),
        M.pair("candle_convert.file.config.json", "string", "{}"),
    ],
    [M.info("x", [2]), M.info("q", [32, 2], 8, 32)],
    F32 + bytes(24) + bytes(68),
)


def attempt(path):
    """Open and read; the code of our error, "" when there was none. Anything else fails the test."""
    try:
        for tensor in cc.open(path).weights.values():
            tensor.raw()
    except cc.Error as error:
        return (
            error.code if error.hint and error.offset is not None else f"{error.code} says neither where nor what to do"
        )
    return ""


def test_truncation_at_every_byte_is_an_error(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(SAMPLE)
    assert attempt(path) == ""
    for length in range(1, len(SAMPLE)):
        path.write_bytes(SAMPLE[:length])
        assert re.fullmatch(r"E-[A-Z-]+", attempt(path)), length


def test_changed_bytes_give_errors_of_ours_or_other_values(tmp_path):
    path = tmp_path / "x.gguf"
    for position in range(len(SAMPLE)):
        for change in (0x01, 0x80, 0xFF):
            changed = bytearray(SAMPLE)
            changed[position] ^= change
            path.write_bytes(changed)
            assert re.fullmatch(r"(E-[A-Z-]+)?", attempt(path)), (position, change)


def shard(number, count, total, name):
    pairs = [
        M.pair("split.no", "u16", number),
        M.pair("split.count", "u16", count),
        M.pair("split.tensors.count", "i32", total),
    ]
    return M.file(pairs, [M.info(name, [2])], F32)


SETS = [
    ("missing", [shard(0, 3, 3, "a"), shard(1, 3, 3, "b"), None], "E-SHARD-MISSING"),
    ("same-shard-twice", [shard(0, 2, 2, "a"), shard(0, 2, 2, "a")], "E-GGUF-SPLIT"),
    ("wrong-number", [shard(0, 2, 2, "a"), shard(2, 2, 2, "b")], "E-GGUF-SPLIT"),
    ("other-count", [shard(0, 2, 2, "a"), shard(1, 3, 2, "b")], "E-GGUF-SPLIT"),
    ("wrong-total", [shard(0, 2, 3, "a"), shard(1, 2, 3, "b")], "E-GGUF-SPLIT"),
    ("tensor-twice", [shard(0, 2, 2, "a"), shard(1, 2, 2, "a")], "E-GGUF-DUPLICATE"),
    ("no-marks", [shard(0, 2, 2, "a"), M.file([], [M.info("b", [2])], F32)], "E-GGUF-SPLIT"),
    ("named-otherwise", [shard(1, 2, 2, "a"), shard(1, 2, 2, "b")], "E-GGUF-SPLIT"),
]


@pytest.mark.parametrize(("name", "files", "code"), SETS, ids=[row[0] for row in SETS])
def test_hostile_sets(name, files, code, tmp_path, sandbox):
    paths = [tmp_path / f"m-{number:05d}-of-{len(files):05d}.gguf" for number in range(1, len(files) + 1)]
    for path, data in zip(paths, files, strict=True):
        if data is not None:
            path.write_bytes(data)
    assert sandbox.outcome(paths[0]).code == code


def test_a_shard_that_links_elsewhere_is_refused(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "b").write_bytes(shard(1, 2, 2, "b"))
    (folder / "m-00001-of-00002.gguf").write_bytes(shard(0, 2, 2, "a"))
    (folder / "m-00002-of-00002.gguf").symlink_to(tmp_path / "b")
    with pytest.raises(cc.UnsafeFileError, match="E-PATH-ESCAPE"):
        cc.open(folder / "m-00001-of-00002.gguf")


def findings(tmp_path, data, what=FORMAT.check):
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    return [(finding.code, finding.severity) for finding in what(Source(path), ReadOptions())]


CHECKED = [
    ("id-out-of-vocabulary", [M.pair("tokenizer.ggml.bos_token_id", "u32", 3)], ("E-GGUF-TOKENIZER", "error")),
    ("id-absent", [M.pair("tokenizer.ggml.padding_token_id", "u32", (1 << 32) - 1)], ("E-GGUF-TOKENIZER", "warning")),
    ("id-text", [M.pair("tokenizer.ggml.eos_token_id", "string", "2")], ("E-GGUF-TOKENIZER", "error")),
    ("byte-token", [M.array("tokenizer.ggml.token_type", "i32", [1, 6, 1])], ("E-GGUF-TOKENIZER", "error")),
    ("type-of-types", [M.array("tokenizer.ggml.token_type", "u8", [1, 1, 1])], ("E-GGUF-TOKENIZER", "error")),
]


@pytest.mark.parametrize(("name", "pairs", "finding"), CHECKED, ids=[row[0] for row in CHECKED])
def test_what_check_finds_in_vocabularies(name, pairs, finding, tmp_path):
    tokens = M.array("tokenizer.ggml.tokens", "string", ["a", "<0x-1>", "c"])
    assert findings(tmp_path, M.file([tokens, *pairs])) == [finding]


def test_no_attention_heads_and_dirty_padding(tmp_path):
    pairs = [M.pair("general.architecture", "string", "llama"), M.pair("llama.attention.head_count", "u32", 0)]
    data = M.file(pairs, [M.info("blk.0.attn_q.weight", [2])], F32 + b"\1" * 24)
    assert findings(tmp_path, data) == [("E-GGUF-HPARAM", "error"), ("W-GGUF-PADDING", "warning")]
    assert findings(tmp_path, M.file(pairs, [M.info("blk.0.ssm_in.weight", [2])], F32 + bytes(24))) == []


TEMPLATES = [
    (
        "plain",
        "{% for m in messages %}{{ m['role'] ~ m.content | trim }}{% if loop.last %}!{% endif %}{% endfor %}",
        [],
    ),
    (
        "training-marks",
        "{% generation %}{{ x }}{% endgeneration %}{%- for i in range(10) %}{% break %}{% endfor %}",
        [],
    ),
    ("attribute", "{{ x.__class__ }}", ["danger"]),
    ("private", "{{ x._secret }}", ["danger"]),
    ("item", "{{ x['__class__'] }}", ["danger"]),
    ("filter", "{{ x | attr('na' ~ 'me') }}", ["danger"]),
    ("include", "{% include '/etc/passwd' %}", ["danger"]),
    ("loop", "{% for i in range(1000000000) %}x{% endfor %}", ["warning"]),
    ("computed-loop", "{% for i in range(10 ** 9) %}x{% endfor %}", ["warning"]),
    ("product", "{{ 'x' * (100000 * 100000) }}", ["warning"]),
    ("power-tower", "{{ 9 ** 9 ** 9 ** 9 ** 9 }}", ["warning"]),
    ("nested-loops", "".join("{% for i in range(1000) %}" for _ in range(4)) + "x" + "{% endfor %}" * 4, ["warning"]),
    ("syntax", "{% if %}", ["warning", "info"]),
    ("deep", "{{ " + "(" * 5000 + "x" + ")" * 5000 + " }}", ["danger"]),
    ("long-sum", "{{ " + "+".join("1" * 20000) + " }}", []),
    ("long", "x" * (1 << 21), ["error"]),
]


@pytest.mark.parametrize(("name", "text", "severities"), TEMPLATES, ids=[row[0] for row in TEMPLATES])
def test_templates(name, text, severities, tmp_path):
    data = M.file([M.pair("tokenizer.chat_template", "string", text)])
    assert findings(tmp_path, data, FORMAT.scan) == [("E-GGUF-TEMPLATE", severity) for severity in severities]


@pytest.mark.parametrize("name", ["deep", "power-tower", "nested-loops", "long-sum", "long"])
def test_templates_are_looked_at_in_little_time_and_memory(name, tmp_path, sandbox):
    path = tmp_path / "x.gguf"
    path.write_bytes(
        M.file(
            [M.pair("tokenizer.chat_template", "string", next(text for known, text, _ in TEMPLATES if known == name))]
        )
    )
    outcome = sandbox.outcome(path, "scan")
    assert (outcome.code, outcome.quick) == ("", True), outcome


def test_what_the_sandbox_of_jinja_refuses_is_found():
    from jinja2.sandbox import SandboxedEnvironment

    for expression in ("''.__class__.__mro__", "x.__init__.__globals__", "(x|attr('__class__')).__bases__"):
        with pytest.raises((jinja2.exceptions.SecurityError, jinja2.exceptions.UndefinedError)):
            SandboxedEnvironment().from_string("{{ " + expression + " ~ 1 }}").render(x=len)
        assert "danger" in [found.severity for found in template_scan.suspicions("{{ " + expression + " }}")]


def test_attached_templates_and_lists_of_templates_are_looked_at(tmp_path):
    bad = "{{ x.__class__ }}"
    pairs = [
        M.pair("candle_convert.file.other.jinja", "string", bad),
        M.array("tokenizer.chat_templates", "string", ["a", bad]),
    ]
    assert findings(tmp_path, M.file(pairs), FORMAT.scan) == [("E-GGUF-TEMPLATE", "danger")] * 2
