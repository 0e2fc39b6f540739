"""No command lets a name or a text from a file, or from its own command line, order a terminal about or forge a
line."""

import ast
import json
import os
import pty
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import candle_convert as cc
import click
import pytest
from candle_convert.runtime.base.printable import printable, printable_json, printable_lines
from candle_convert.runtime.plugin.discovery import COMMANDS
from candle_convert.tests.builders import hostile_names
from candle_convert.tests.builders.command_lines import commands, line
from candle_convert.tests.builders.hostile_names import HOSTILE, dangerous, named
from candle_convert.tests.builders.sampling import every

WALKER = Path(hostile_names.__file__)
OWN = re.compile(r"\x1b\[[0-9;]*[mA]|\x1b\[2?K|\x1b\[\?25[lh]|\r(?=\n|$|\x1b)|\r")
"""What our own progress bars tell a terminal, and the carriage returns that it adds itself."""
WHOLE = {"completion", "doctor", "formats", "types", "cache info", "recipes list"}
"""Commands that take no file."""
CONTENT = {"generate", "metadata get", "template render", "tokenizer decode", "tokenizer show"}
"""Commands that give a text of the file as it is where it goes into a pipe."""
KINDS = (
    "network",
    "runnable",
    "safetensors",
    "gguf",
    "arch",
    "pth",
    "global",
    "npz",
    "directory",
    "text",
    "odd",
    "missing",
    "folder",
)


def usage(words, command):
    """Command lines that are wrong: each option with a hostile value, and a hostile option."""
    yield [*words, f"--{HOSTILE}"]
    for option in command.params:
        if isinstance(option, click.Option) and not option.is_flag and option.name not in ("limit",):
            yield [
                *words,
                *["plain"] * sum(isinstance(each, click.Argument) for each in command.params),
                option.opts[-1],
                HOSTILE,
            ]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return hostile_names.made(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def jobs(files, full, tmp_path_factory):
    """Every command with every file, plain and as JSON; and command lines that are wrong. Unless the sweep is
    exhaustive, every other file, plain or as JSON by turns."""
    folder = tmp_path_factory.mktemp("out") / hostile_names.FILE
    folder.mkdir()
    found = []
    for words, command in commands():
        name = " ".join(words)
        kinds = KINDS[:1] if name in WHOLE else KINDS if full else KINDS[len(name) % 2 :: 2]
        for place, kind in enumerate(kinds):
            forms = (), ("--json",)
            for form in forms if full or name in WHOLE else forms[(place + len(name) // 2) % 2 :][:1]:
                suffix = (
                    ".gguf"
                    if name in ("imatrix", "quantize")
                    else ".onnx"
                    if kind in ("network", "runnable")
                    else ".safetensors"
                )
                out = str(folder / f"{len(found)}{suffix}")
                found.append([*line(words, command, files, kind, out), *form])
        found += usage(words, command) if full else every(5, usage(words, command))
    return [
        *found,
        [files["odd"]],
        [HOSTILE],
        [HOSTILE, HOSTILE],
        ["inspect", files["gguf"], "--html", str(folder / "page.html")],
    ]


def walked(jobs, folder, terminal):
    """What each command wrote to standard output and error: of one process, into pipes or a terminal."""
    path = folder / "jobs.json"
    path.write_text(json.dumps(jobs))
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONIOENCODING": "utf-8", "COLUMNS": "200"}
    command = [sys.executable, "-P", str(WALKER), str(path)]
    if not terminal:
        done = subprocess.run(command, capture_output=True, env=environment, cwd=folder, timeout=800, check=True)
        return [cut(stream.decode("utf-8", "surrogateescape"), len(jobs)) for stream in (done.stdout, done.stderr)]
    master, slave = pty.openpty()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env=environment, cwd=folder
    ) as process:
        os.close(slave)
        data = bytearray()
        while True:
            try:
                part = os.read(master, 1 << 16)
            except OSError:
                break
            if not part:
                break
            data += part
    os.close(master)
    assert process.returncode == 0
    return [cut(OWN.sub("", data.decode("utf-8", "surrogateescape")), len(jobs))]


def cut(text, count):
    """The output of each job."""
    parts = re.split(r"@@@ (\d+)\n", text)[1:]
    found = dict(zip(map(int, parts[::2]), parts[1::2], strict=True))
    assert len(found) == count
    return [found[number].rpartition("\n@@@ exit")[0] for number in range(count)]


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
def test_every_command(terminal, jobs, full, tmp_path):
    assert {words[0] for words, _ in commands()} == set(COMMANDS.names())
    wrong = []
    jobs = jobs if full or not terminal else jobs[1::3]
    for stream in walked(jobs, tmp_path, terminal):
        for words, text in zip(jobs, stream, strict=True):
            content = {words[0], " ".join(words[:2])} & CONTENT
            if content and not terminal:
                continue
            kept = "\n\t\u200d\u200c" if content else "\n"
            if dangerous(text, kept) or "Traceback" in text or "E-BUG" in text:
                wrong.append((words, sorted(set(dangerous(text, kept))), text[:600]))
            forged = [line for line in text.split("\n") if line.startswith("✗ E-FAKE")]
            if forged and not content:
                wrong.append((words, forged))
            if "--json" in words and not terminal and text.strip().startswith("{"):
                json.loads(text)
    assert not wrong, "\n".join(map(ascii, wrong[:40])) + f"\n{len(wrong)} of {len(jobs)}"


PRINTING = {"output.py", "progress.py", "compile_bar.py", "chat.py", "__main__.py", "bundled_program.py"}
"""The modules that write to standard output and error: three of them only their own words, and errors, which are
escaped."""


def test_only_one_module_prints():
    folder = Path(cc.__file__).parent / "convert"
    calls = {
        path.name
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write")
    }
    assert calls <= PRINTING


def test_json_decodes_to_the_same_names(files, tmp_path):
    found = walked([["inspect", files[kind], "--json"] for kind in ("safetensors", "npz", "network")], tmp_path, False)[
        0
    ]
    for kind, text in zip(("safetensors", "npz", "network"), found, strict=True):
        names = [row["name"] for row in json.loads(text)["tensors"]]
        assert names == ([named("w")] if kind == "network" else [named("a"), named("b")])


def test_a_page_shows_names_escaped(files, tmp_path):
    walked([["inspect", files["runnable"], "--html", "page.html"]], tmp_path, False)
    text = (tmp_path / "page.html").read_text()
    assert not dangerous(text)
    assert not dangerous(
        json.dumps(json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1]), ensure_ascii=False)
    )


@pytest.mark.parametrize("form", [printable, printable_json, printable_lines])
def test_no_character_gets_through(form, full):
    """Past U+3000, every 61st character that is visible, private or not assigned, unless the sweep is exhaustive."""
    unseen = {"Cc", "Cf", "Cs", "Zl", "Zp", "Zs", "Mn", "Me"}
    for code in range(0x110000):
        if not (full or code < 0x3000 or code % 61 == 0 or unicodedata.category(chr(code)) in unseen):
            continue
        shown = form(f"a{chr(code)}b")
        assert not dangerous(shown, "\n\t\u200c\u200d" if form is printable_lines else ""), hex(code)
        if form is printable_json:
            assert json.loads(shown) == f"a{chr(code)}b"


def test_what_can_be_read_stays():
    text = "中文 ελληνικά עברית العربية हिन्दी ไทย Tiếng Việt naïve [bold] <b> {0} %s \\n"
    assert printable(text) == text
    assert printable_lines("👩‍👧 ❤️\n\tmi\u0301a") == "👩‍👧 ❤️\n\tmi\u0301a"
