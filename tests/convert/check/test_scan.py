"""Scanning: every way that code gets into a file is found whatever the file is called, and nothing unread passes as
clean."""

import gzip
import io
import json
import os
import pickle
import random
import struct
import tarfile
import zipfile
from pathlib import Path

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.convert.cli.main import run
from candle_convert.convert.open.detect_format import formats

WRITABLE = {format.name: format for format in formats() if format.layout is not None and not format.graphs}
ATTACKS = [
    "posix.system",
    "os.popen",
    "builtins.eval",
    "builtins.exec",
    "subprocess.Popen",
    "runpy.run_path",
    "operator.attrgetter",
    "pip.main",
    "functools.partial",
    "torch.hub.load",
    "numpy.f2py.crackfortran.getlincoef",
    "importlib.import_module",
    "ctypes.CDLL",
    "evil.module.f",
]


class Call:
    """Pickles as a call of `name` with a text."""

    def __init__(self, name, argument="echo"):
        self.name, self.argument = name, argument

    def __reduce__(self):
        module, _, attribute = self.name.rpartition(".")
        return Name(module, attribute), (self.argument,)


class Name:
    """Pickles as a global of any module, which need not exist."""

    def __init__(self, module, name):
        self.__module__, self.__qualname__ = module, name

    def __call__(self):
        raise AssertionError


class Pickler(pickle._Pickler):
    """Writes `Name`s without importing them."""

    def save(self, value, save_persistent_id=True):
        if not isinstance(value, Name):
            return super().save(value, save_persistent_id)
        if self.proto >= 4:
            super().save(value.__module__)
            super().save(value.__qualname__)
            return self.write(pickle.STACK_GLOBAL)
        return self.write(f"c{value.__module__}\n{value.__qualname__}\n".encode())


def dumped(value, protocol):
    file = io.BytesIO()
    Pickler(file, protocol).dump(value)
    return file.getvalue()


def zipped(compression, *members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


def tarred(data):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        info = tarfile.TarInfo("weights")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def npy_of_objects(data):
    header = "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header.encode() + b"\n" + data


RANDOM = random.Random(4).randbytes(300_000)
EVIL = dumped(Call("posix.system"), 2)
HIDING = {
    "behind random bytes": RANDOM + EVIL,
    "behind random bytes, protocol 0": RANDOM + dumped(Call("posix.system"), 0),
    "behind random bytes, protocol 4": RANDOM + dumped(Call("posix.system"), 4),
    "behind random bytes, without its header": RANDOM + dumped(Call("posix.system"), 4)[11:],
    "across a window": bytes(2**20 - 7) + EVIL + RANDOM,
    "behind a harmless pickle": pickle.dumps({"a": 1}) + EVIL,
    "inside a list": dumped([1, {"x": (Call("posix.system"),)}], 2),
    "called by INST": b"(S'echo'\niposix\nsystem\n.",
    "called by OBJ": b"(cposix\nsystem\nS'echo'\no.",
    "broken behind the call": EVIL[:-1] + b"\xff\xff",
    "without STOP": EVIL[:-1],
    "as an extension": b"\x80\x02\x82\x01.",
    "in a zip": zipped(zipfile.ZIP_STORED, ("readme.txt", b"hello"), ("anything", EVIL)),
    "in a deflated zip": zipped(zipfile.ZIP_DEFLATED, ("readme.txt", b"hello"), ("data.pkl", EVIL + bytes(999))),
    "in a zip without suffixes": zipped(zipfile.ZIP_DEFLATED, ("a", EVIL)),
    "in a zip in a zip": zipped(zipfile.ZIP_DEFLATED, ("a", zipped(zipfile.ZIP_STORED, ("b", EVIL)))),
    "in a tar": tarred(EVIL),
    "in an npy of objects": npy_of_objects(EVIL),
    "in an npz": zipped(zipfile.ZIP_STORED, ("a.npy", npy_of_objects(EVIL))),
    "in torch's zip": zipped(
        zipfile.ZIP_STORED, ("m/data.pkl", EVIL), ("m/version", b"3\n"), ("m/byteorder", b"little")
    ),
    "in a second member of torch's zip": zipped(
        zipfile.ZIP_STORED, ("m/data.pkl", pickle.dumps({}, 2)), ("m/version", b"3\n"), ("m/extra", EVIL)
    ),
}


@pytest.fixture
def clean(tmp_path):
    """A folder as it comes from the hub."""
    folder = tmp_path / "clean"
    folder.mkdir()
    torch.save({"w": torch.ones(3, 4), "b": torch.ones(4, dtype=torch.bfloat16)}, folder / "pytorch_model.bin")
    cc.save_file({"w": np.ones((3, 4), np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "llama", "time_step_limit": [0.0, Infinity]}')
    template = "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message.content | trim }}{% endfor %}"
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": [{"name": "default", "template": template}]})
    )
    (folder / "chat_template.jinja").write_text("{% generation %}{{ bos_token }}{% endgeneration %}")
    (folder / "vocab.txt").write_text(
        "\n".join(["cast", "doctor", "(", "[", "cos", "system", "N", "}", ".", "(", "iio", "open", "t"])
    )
    (folder / "README.md").write_text("# A model\n")
    (folder / "picture.dat").write_bytes(RANDOM)
    (folder / "__init__").write_bytes(b"")
    return folder


def codes(path, **options):
    return {(finding.code, finding.severity) for finding in cc.scan(path, **options).findings}


def test_a_clean_folder_is_clean(clean, capsys):
    found = cc.scan(clean)
    assert [finding for finding in found.findings if finding.severity != "info"] == []
    assert len(found.files) == len(list(clean.iterdir()))
    assert found.exit_code == run(["scan", str(clean), "--strict"]) == 0
    assert f"{len(found.files)} file" in found.table()


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", ATTACKS)
def test_every_protocol_and_name(tmp_path, protocol, name):
    (tmp_path / "weights").write_bytes(dumped({"w": 1, "x": Call(name)}, protocol))
    found = cc.scan(tmp_path / "weights")
    assert found.exit_code == 5
    assert any(name in finding.message for finding in found.findings)


@pytest.mark.parametrize(
    "file", ["model.bin", "model.safetensors", "notes.txt", "picture.png", "model.gguf", "x.json", "noext"]
)
@pytest.mark.parametrize("way", HIDING)
def test_every_way_to_hide_and_every_name(tmp_path, clean, way, file):
    (clean / "deep" / "down").mkdir(parents=True)
    (clean / "deep" / "down" / file).write_bytes(HIDING[way])
    assert run(["scan", str(clean), "--quiet"]) == 5, cc.scan(clean).table()


def test_allowed_names_are_no_finding(tmp_path):
    (tmp_path / "m.pkl").write_bytes(dumped({"x": Call("omegaconf.dictconfig.DictConfig")}, 2))
    assert cc.scan(tmp_path).exit_code == 5
    assert cc.scan(tmp_path, allow_globals=["omegaconf.*"]).exit_code == 0
    (tmp_path / "m.pkl").write_bytes(EVIL)
    assert run(["scan", str(tmp_path), "--allow-global", "posix.system"]) == 5


def test_no_part_of_a_file_passes_as_the_whole(clean, tmp_path):
    for name in ("pytorch_model.bin", "model.safetensors"):
        data = (clean / name).read_bytes()
        part = tmp_path / name
        for length in (*range(1, 64), *range(64, len(data), 97), len(data) - 1):
            part.write_bytes(data[:length])
            assert cc.scan(part).exit_code != 0, length
        part.write_bytes(data)
        assert cc.scan(part).exit_code == 0


def unreadable(folder):
    """Name, expected exit code, of files that cannot be read whole."""
    (folder / "short.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-1])
    yield "short.safetensors", 3
    (folder / "packed.7z").write_bytes(b"7z\xbc\xaf\x27\x1c" + RANDOM[:999])
    yield "packed.7z", 4
    (folder / "packed.gz").write_bytes(gzip.compress(EVIL)[:-1])
    yield "packed.gz", 3
    os.mkfifo(folder / "pipe")
    yield "pipe", 7
    (folder / "dangling").symlink_to(folder / "nothing")
    yield "dangling", 7
    (folder / "broken.json").write_text('{"auto_map": ')
    yield "broken.json", 3
    (folder / "mixed").write_bytes(RANDOM[:999] + zipped(zipfile.ZIP_DEFLATED, ("a", EVIL)) + RANDOM)
    yield "mixed", 3


def test_what_cannot_be_read_whole_is_never_clean(clean):
    for name, code in unreadable(clean):
        assert cc.scan(clean).exit_code == code, name
        (clean / name).unlink()
        assert cc.scan(clean).exit_code == 0


def test_links_are_followed_inside_only(clean, tmp_path):
    (clean / "again.bin").symlink_to("pytorch_model.bin")
    (clean / "loop").symlink_to(".")
    assert cc.scan(clean).exit_code == 0
    (tmp_path / "outside").write_bytes(b"secret")
    (clean / "out.txt").symlink_to(tmp_path / "outside")
    assert ("E-PATH-ESCAPE", "danger") in codes(clean)
    (clean / "out.txt").unlink()
    cache = tmp_path / "models--x"
    (cache / "blobs").mkdir(parents=True)
    (cache / "snapshots" / "rev").mkdir(parents=True)
    (cache / "blobs" / "hash").write_bytes(EVIL)
    (cache / "snapshots" / "rev" / "model.bin").symlink_to("../../blobs/hash")
    assert ("E-PKL-GLOBAL", "danger") in codes(cache / "snapshots" / "rev")


def test_an_archive_behind_another_format_is_a_danger(clean):
    path = clean / "model.safetensors"
    entries = {
        "a": {
            "dtype": "U8",
            "shape": [len(data := zipped(zipfile.ZIP_DEFLATED, ("data.pkl", EVIL)))],
            "data_offsets": [0, len(data)],
        }
    }
    text = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    assert len(cc.open(path)) == 1
    assert codes(path) == {("E-SCAN-POLYGLOT", "danger")}


DANGEROUS = [
    "{{ ''.__class__.__mro__ }}",
    "{{ x['__globals__'] }}",
    "{{ x|attr('_' ~ '_class__') }}",
    "{% include 'other' %}",
    "{{ self._TemplateReference__context }}",
]
ENDLESS = [
    "{% for i in range(1000000000) %}x{% endfor %}",
    "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}",
    "{{ 'x' * 10**9 }}",
]


EXHAUSTING = [
    "{% set s = 'a' * 1000000 %}{% set l = [s] * 10000 %}{{ l }}",
    "{{ ([[1] * 100000] * 100000) | sum(start=[]) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{% if tools %}{{ f() }}{% endif %}",
    "{% if messages[0].role == 'system' %}{{ 'a' * 999999 * 999999 }}{% endif %}",
]
"""Templates that look harmless, and that the chats of a trial show to exhaust a renderer."""


@pytest.mark.parametrize("template", EXHAUSTING)
def test_templates_are_tried_wherever_they_stand(clean, template):
    places = {
        "chat_template.jinja": template,
        "chat_template.json": json.dumps({"chat_template": template}),
        "tokenizer_config.json": json.dumps(
            {"chat_template": [{"name": "default", "template": "x"}, {"name": "tool_use", "template": template}]}
        ),
        "additional_chat_templates/rag.jinja": template,
        "other.jinja2": template,
    }
    for name, text in places.items():
        before = (clean / name).read_text() if (clean / name).exists() else None
        (clean / name).parent.mkdir(exist_ok=True)
        (clean / name).write_text(text)
        (found,) = [
            finding
            for finding in cc.scan(clean).findings
            if "renderer" in finding.message and "rendered with" in finding.message
        ]
        assert (found.code, found.severity, Path(found.path).name) == ("E-SCAN-TEMPLATE", "warning", Path(name).name)
        (clean / name).unlink() if before is None else (clean / name).write_text(before)
    (clean / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    (clean / "config.json").unlink()
    cc.convert(clean / "model.safetensors", clean / "m.gguf", metadata={"tokenizer.chat_template": template})
    (clean / "tokenizer_config.json").unlink()
    assert "rendered with" in cc.scan(clean / "m.gguf").table()
    assert run(["scan", str(clean), "--strict"]) == 1


def test_templates_that_only_a_trial_shows_to_leave_the_sandbox(clean):
    (clean / "chat_template.jinja").write_text("{% set n = '_' ~ '_class_' ~ '_' %}{{ messages[n].x }}")
    assert ("E-SCAN-TEMPLATE", "danger") in codes(clean)


def test_templates_may_refuse_the_chats_of_a_trial(clean):
    (clean / "chat_template.jinja").write_text("{{ raise_exception('no') }}")
    (clean / "other.jinja").write_text("{{ messages[0].content.parts.first.text }}{{ today.year }}")
    assert {severity for _, severity in codes(clean)} <= {"info"}


@pytest.mark.parametrize(
    ("template", "severity"), [*((text, "danger") for text in DANGEROUS), *((text, "warning") for text in ENDLESS)]
)
def test_templates_are_judged_wherever_they_stand(clean, template, severity):
    places = {
        "chat_template.jinja": template,
        "tokenizer_config.json": json.dumps({"chat_template": template}),
        "processor_config.json": json.dumps({"chat_template": {"default": template}}),
        "list.json": json.dumps({"chat_template": [{"name": "tool", "template": template}]}),
        "twice.json": '{"chat_template": ' + json.dumps(template) + ', "chat_template": "x"}',
        "escaped.json": '{"chat\\u005ftemplate": ' + json.dumps(template) + "}",
    }
    for name, text in places.items():
        before = (clean / name).read_text() if (clean / name).exists() else None
        (clean / name).write_text(text)
        found = cc.scan(clean)
        assert severity in {finding.severity for finding in found.findings}, name
        assert found.exit_code == (5 if severity == "danger" else 0)
        (clean / name).unlink() if before is None else (clean / name).write_text(before)


@pytest.mark.parametrize("name", [name for name in ("safetensors", "gguf") if name in WRITABLE])
def test_templates_in_metadata_are_judged(clean, tmp_path, name):
    (clean / "tokenizer_config.json").write_text(json.dumps({"chat_template": DANGEROUS[0]}))
    (clean / "config.json").unlink()  # these weights are no Llama's
    cc.convert(clean / "model.safetensors", tmp_path / f"m.{name}", tokenizer=str(clean))
    assert cc.scan(tmp_path / f"m.{name}").exit_code == 5
    cc.convert(clean / "model.safetensors", tmp_path / f"n.{name}", metadata={"tokenizer.chat_template": DANGEROUS[1]})
    assert cc.scan(tmp_path / f"n.{name}").exit_code == 5


def test_code_beside_the_weights_is_a_warning(clean):
    (clean / "modeling_x.py").write_text("print('hello')\n")
    (clean / "config.json").write_text('{"auto_map": {"AutoModel": "modeling_x.X"}}')
    (clean / "run.sh").write_text("#!/bin/sh\n")
    (clean / "lib.so").write_bytes(b"\x7fELF" + bytes(100))
    told = {code for code, severity in codes(clean) if severity == "warning"}
    assert told == {"W-SCAN-PYTHON", "W-SCAN-AUTO-MAP", "W-SCAN-SCRIPT", "W-SCAN-NATIVE"}
    assert run(["scan", str(clean)]) == 0
    assert run(["scan", str(clean), "--strict"]) == 1


def test_what_is_too_long_to_be_judged_is_not_clean(clean):
    (clean / "tokenizer.json").write_text(json.dumps({"vocab": ["x" * 99] * 60_000}))
    assert cc.scan(clean).exit_code == 0
    (clean / "tokenizer.json").write_text(json.dumps({"vocab": ["x" * 99] * 60_000, "chat_template": ""}))
    assert cc.scan(clean).exit_code == 3
    (clean / "tokenizer.json").unlink()
    (clean / "chat_template.jinja").write_text("x" * (2**20 + 1))
    assert cc.scan(clean).exit_code == 3


def test_json_and_the_list_of_names(clean, capsys):
    (clean / "evil\x1b[31m.pkl").write_bytes(EVIL)
    assert run(["scan", str(clean), "--json"]) == 5
    answer = json.loads(capsys.readouterr().out)
    (finding,) = [finding for finding in answer["findings"] if finding["severity"] == "danger"]
    assert finding["code"] == "E-PKL-GLOBAL"
    assert finding["offset"] == 2
    assert not answer["ok"]
    assert run(["scan", str(clean)]) == 5
    assert "\x1b" not in capsys.readouterr().out
    assert run(["scan", "--names"]) == 0
    assert "torch._utils._rebuild_tensor_v2" in capsys.readouterr().out.split()


def test_missing_paths(tmp_path):
    assert run(["scan", str(tmp_path / "none")]) == 7
    assert run(["scan"]) == 2


@pytest.mark.parametrize("hidden", HIDING)
def test_one_problem_is_told_once(hidden, tmp_path):
    path = tmp_path / "weights.bin"
    path.write_bytes(HIDING[hidden])
    places = [
        (finding.code, finding.offset, finding.message if finding.offset is None else None)
        for finding in cc.scan(path).findings
    ]
    assert len(places) == len(set(places))
