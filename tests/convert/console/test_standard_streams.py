"""Every command with unusable standard streams ends with exit 7 and one line, or as silently as other tools do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from candle_convert.tests.builders import hostile_names, unusable_streams
from candle_convert.tests.builders.command_lines import commands, line
from candle_convert.tests.builders.sampling import every
from candle_convert.tests.builders.unusable_streams import STREAMS

UNWRITABLE = ("full", "closed", "read-only")
CODES = {0, 1, 2, 3, 4, 5, 6, 7}
PROGRAM = "from candle_convert.convert.__main__ import main; main()"


SLOW = {"bench", "calibrate", "eval", "finetune", "generate", "imatrix", "profile", "quantize", "run", "verify"}
"""Commands that run a model: all streams are tried on their help, one kind of each in their runs."""


@pytest.fixture(scope="module")
def ended(tmp_path_factory, full):
    """What commands ended with, for arrangements of streams: the help of each, and a run of every second one,
    whose turn it is; a third of the runs print JSON."""
    folder = tmp_path_factory.mktemp("streams")
    files = hostile_names.made(folder)
    streams, numbered = list(STREAMS), [*enumerate(commands())]
    jobs = [([words], streams) for words in ("--version", "nothing")]
    jobs.append((["inspect", str(folder / "missing"), "--json"], streams))
    for number, (words, _) in numbered:
        jobs.append(([*words, "--help"], streams if full or number == 0 else [streams[1 + number % 9]]))
    for number, (words, command) in every(2, numbered):
        turn = streams[1 + number % 9]
        names = streams if full else ["usable", turn][number % 2 :] if words[0] in SLOW else ["usable", turn]
        out = str(folder / f"{number}.out")
        kind = "gguf" if number % 2 else "runnable"
        jobs.append(([*line(words, command, files, kind, out), *["--json"] * (number % 3 == 0)], names))
    (folder / "jobs.json").write_text(json.dumps(jobs))
    command = [sys.executable, "-P", unusable_streams.__file__, folder / "jobs.json", folder]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=900, check=True)
    results = json.loads(done.stdout.splitlines()[-1])
    return [(words, result) for (words, _), result in zip(jobs, results, strict=True)]


def test_every_command_ends_with_a_code_of_ours(ended):
    wrong = [
        (words, name, code, err[-300:])
        for words, results in ended
        for name, (code, _, err) in results.items()
        if (code not in CODES and not (name == "no reader" and code == 141)) or "Traceback" in err or "E-BUG" in err
    ]
    assert not wrong, "\n".join(map(ascii, wrong))


def test_lost_output_is_exit_7(ended):
    """Unless another run has changed the file, so that it ends otherwise."""
    wrong = []
    for words, results in ended:
        usable, text, _ = results.get("usable", (0, "help", ""))
        for name, (code, _, err) in results.items():
            lost = text and name in (*UNWRITABLE, "no reader", "all closed")
            said = err.count("E-IO-STREAM")
            if lost and code == usable and "E-IO" not in err and name != "all closed":
                wrong.append((words, name, code, err[-300:]))
            if name in UNWRITABLE and code == 7 and said + err.count("E-IO-") < 1:
                wrong.append((words, name, code, err[-300:]))
            if name == "all closed" and lost and code == 0:
                wrong.append((words, name, code))
            if said > 1 or (name == "no reader" and said):
                wrong.append((words, name, code, err[-300:]))
    assert not wrong, "\n".join(map(ascii, wrong))


def test_lost_messages_change_nothing(ended):
    wrong = [
        (words, name, results[name][0])
        for words, results in ended
        for name in ("errors closed", "errors full")
        if name in results and results[name][0] not in (results.get("usable", (0,))[0], 2, 5)
    ]
    assert not wrong, "\n".join(map(ascii, wrong))


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("redirection", "code", "says"),
    [
        (">/dev/full", 7, "no space left on device"),
        (">&-", 7, "bad file descriptor"),
        ("| true", 141, ""),
        ("2>&-", 0, ""),
        ("2>/dev/full", 0, ""),
    ],
)
def test_a_shell(redirection, code, says, unbuffered, tmp_path):
    script = f"set -o pipefail; '{sys.executable}' -c '{PROGRAM}' types --json {redirection}"
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == code
    assert done.stderr.count("\n") == bool(says)
    assert says in done.stderr


@pytest.mark.parametrize("command", ["tokenizer encode", "template render", "generate", "speak", "transcribe"])
def test_closed_input_is_told_where_it_is_read(command, tmp_path):
    from candle_convert.tests.builders.tiny_llama import written

    written(tmp_path / "m.gguf")
    extra = {"generate": "-p -", "speak": "-p - -o x.wav", "tokenizer encode": "--file -"}.get(command, "-")
    script = f"'{sys.executable}' -c '{PROGRAM}' {command} m.gguf {extra} <&-"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode in (2, 4, 7), done.stderr
    assert "E-BUG" not in done.stderr
    assert "Traceback" not in done.stderr


def test_an_output_file_is_not_mixed_with_messages(tmp_path):
    """The first file that is opened would have the descriptor of a closed stream."""
    from candle_convert.tests.builders.tiny_llama import written

    written(tmp_path / "m.gguf")
    for name, closed in (("a", ""), ("b", "<&- >&- 2>&-")):
        script = f"'{sys.executable}' -c '{PROGRAM}' convert m.gguf {name}.safetensors {closed}"
        subprocess.run(["bash", "-c", script], timeout=120, cwd=tmp_path)
    assert Path(tmp_path, "a.safetensors").read_bytes() == Path(tmp_path, "b.safetensors").read_bytes()
