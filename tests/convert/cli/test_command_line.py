"""The command line as a whole: help, JSON, exit codes, plain output, escapes, completion, and what start-up loads."""

import json
import os
import re
import shlex
import subprocess
import sys

import candle_convert as cc
import click
import jsonschema
import numpy as np
import pytest
from candle_convert.convert.cli.main import cli, run
from candle_convert.convert.sounds.write_sound import write_sound
from candle_convert.runtime.base.errors import printable
from candle_convert.runtime.plugin import discovery
from candle_convert.tests.builders.npm_packages import npm_packages
from candle_convert.tests.builders.onnx_files import perceptron
from candle_convert.tests.builders.text_checkpoints import checkpoint
from candle_convert.tests.builders.tiny_llama import written

NASTY = "\x1b[31mred\x1b[0m\nnew\r/../x\u202e"
ARRAYS = {"a.weight": np.arange(64, dtype=np.float32).reshape(2, 32), NASTY: np.ones(32, np.float16)}
HEAVY = {"numba", "onnx", "torch"}


def commands():
    """Every command and subcommand as words."""
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        yield (name,)
        if isinstance(command, click.Group):
            yield from ((name, inner) for inner in command.commands)


COMMANDS = list(commands())


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """The directory of a text classifier."""
    pytest.importorskip("torch")
    made = tmp_path_factory.mktemp("classifier")
    checkpoint("BertForSequenceClassification", made)
    return made


@pytest.fixture(scope="module")
def vision(tmp_path_factory):
    """The directory of a model of pictures."""
    pytest.importorskip("torch")
    from candle_convert.tests.builders.image_checkpoints import image_model, saved

    sizes = {"image_size": 16, "patch_size": 8, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    made = saved(image_model("ViTModel", **sizes, intermediate_size=16), tmp_path_factory.mktemp("vision"))
    (made / "preprocessor_config.json").write_text('{"size": 16, "image_processor_type": "ViTImageProcessor"}')
    return made


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
    """The directory of a model of speech."""
    pytest.importorskip("torch")
    from candle_convert.tests.builders.speech_checkpoints import WHISPERS, whisper

    made = tmp_path_factory.mktemp("speech")
    whisper(WHISPERS[0], 0, made)
    return made


@pytest.fixture(scope="module")
def music(tmp_path_factory):
    """The directory of a model of music."""
    pytest.importorskip("torch")
    from candle_convert.tests.builders.musicgen import music_folder

    return music_folder(tmp_path_factory.mktemp("music"))


@pytest.fixture(scope="module")
def drawer(tmp_path_factory):
    """The directory of a text-to-image model."""
    pytest.importorskip("diffusers")
    from candle_convert.tests.builders.text_to_image import stable_diffusion_3

    folder = tmp_path_factory.mktemp("drawer")
    stable_diffusion_3(folder, t5=False)
    return folder


@pytest.fixture(scope="module")
def codec(tmp_path_factory):
    """The directory of an audio codec."""
    pytest.importorskip("torch")
    from candle_convert.tests.builders.audio_codecs import CASES, codec
    from candle_convert.tests.builders.image_checkpoints import saved

    kind, settings = CASES["encodec"]
    return saved(codec(kind, **settings), tmp_path_factory.mktemp("encodec"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a model, another one, a network, a manifest, shards and a model directory."""
    monkeypatch.chdir(tmp_path)
    cc.save_file(ARRAYS, "m.safetensors", metadata={"name": "x", NASTY: NASTY})
    cc.save_file({**ARRAYS, "a.weight": ARRAYS["a.weight"] + 1}, "n.safetensors", metadata={"name": "y"})
    cc.convert("m.safetensors", "parts", to="safetensors", shard_tensors=1)
    perceptron("net.onnx")
    written(tmp_path / "lm.gguf")
    npm_packages(tmp_path / "npm")
    np.savez("x.npz", x=np.ones((2, 3), np.float32), y=np.zeros((2, 2), np.float32))
    (tmp_path / "t.jinja").write_text("{{ messages[0].content }}")
    (tmp_path / "text.txt").write_text("no model\n")
    (tmp_path / "words.txt").write_text("Hello there " * 40)
    (tmp_path / "short.safetensors").write_bytes((tmp_path / "m.safetensors").read_bytes()[:-1])
    (tmp_path / "evil.txt").write_bytes(b"cposix\nsystem\n(S'echo'\ntR.")
    return tmp_path


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_fits_and_its_examples_parse(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert run([*words, "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert all(part in text for part in ("Usage: candle-convert " + " ".join(words), "--help"))
    examples = [line.strip() for line in text.partition("Examples\n")[2].splitlines() if line.strip()]
    assert len(examples) == 3
    for example in examples:
        parsed = shlex.split(re.split(r" [>|]+ | && ", example.removeprefix("cd /data && "))[0])
        assert parsed[0] == "candle-convert"
        parse(parsed[1:])


def test_no_words_show_five_jobs(capsys):
    assert run([]) == 0
    text = capsys.readouterr().out
    examples = [line.split(maxsplit=1)[1] for line in text.splitlines() if line.startswith("  ")]
    assert len(examples) == 5
    for example in examples:
        parse(shlex.split(example)[1:])


def parse(words):
    """Parse a command line without running it; an alias and the short form of convert included."""
    with click.Context(cli) as context:  # what options set, such as limits, ends with it
        command = cli
        while isinstance(command, click.Group):
            context = click.Context(command, parent=context, info_name=command.name)
            _, command, words = command.resolve_command(context, words)
        command.make_context(command.name, words, parent=context)


def test_every_command_of_the_tree_is_there():
    wanted = discovery.COMMANDS.names()
    assert {"convert", "inspect", "print", "check", "scan", "diff", "hash", "split", "merge"} < set(wanted)
    assert {"metadata", "types", "formats", "doctor", "completion"} < set(wanted)
    assert [inner for name, *inner in COMMANDS if name == "metadata" and inner] == [
        ["show"],
        ["get"],
        ["set"],
        ["unset"],
        ["copy"],
    ]
    listed = subprocess.run(
        [sys.executable, "-m", "candle_convert.convert", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert all(f"  {name} " in listed for name in wanted)
    assert all(not line.rstrip().endswith("...") for line in listed.splitlines() if line.startswith("  "))


NUMBER = {"type": "number"}
TEXT = {"type": "string"}
LIST = {"type": "array"}
OBJECT = {"type": "object"}
FINDINGS = {"type": "array", "items": {"required": ["path", "code", "severity", "message", "offset", "member"]}}
ERROR = {
    "required": ["schema", "ok", "error"],
    "properties": {
        "ok": {"const": False},
        "error": {
            "required": ["code", "message", "file", "offset", "expected", "found", "hint"],
            "properties": {"code": {"pattern": "^E-[A-Z0-9-]+$"}, "message": {"type": "string", "minLength": 5}},
        },
    },
}
SUCCESS = [
    (
        ["convert", "m.safetensors", "o.safetensors"],
        {"inputs": LIST, "outputs": LIST, "tensors": NUMBER, "content_hash": TEXT, "warnings": LIST},
    ),
    (
        ["convert", "m.safetensors", "o.safetensors", "--dry-run"],
        {"dry_run": {"const": True}, "outputs": LIST, "peak_memory": NUMBER},
    ),
    (["inspect", "m.safetensors"], {"tensors": LIST, "metadata": OBJECT, "format": TEXT}),
    (["ls", "parts"], {"tensors": LIST}),
    (
        ["print", "m.safetensors", "a.weight[0]"],
        {"tensor": TEXT, "dtype": TEXT, "shape": LIST, "statistics": OBJECT, "values": LIST},
    ),
    (
        ["diff", "m.safetensors", "m.safetensors"],
        {"same": {"const": True}, "tensors": LIST, "metadata": LIST, "files": LIST},
    ),
    (["check", "m.safetensors"], {"findings": FINDINGS, "tensors": NUMBER, "bytes": NUMBER}),
    (["scan", "m.safetensors"], {"findings": FINDINGS, "files": LIST}),
    (["hash", "m.safetensors", "n.safetensors"], {"hashes": LIST}),
    (["split", "m.safetensors", "out/", "--shard-tensors", "1"], {"outputs": LIST, "content_hash": TEXT}),
    (["merge", "parts", "o.safetensors"], {"outputs": LIST, "content_hash": TEXT}),
    (["metadata", "show", "m.safetensors"], {"metadata": OBJECT}),
    (["metadata", "get", "m.safetensors", "name"], {"key": TEXT, "type": TEXT, "value": TEXT}),
    (["metadata", "set", "m.safetensors", "name", "z"], {"changes": LIST, "outputs": LIST}),
    (["metadata", "unset", "m.safetensors", "name"], {"changes": LIST}),
    (["metadata", "copy", "n.safetensors", "m.safetensors"], {"changes": LIST}),
    (
        ["quantize", "m.safetensors", "q.gguf", "q8_0"],
        {"outputs": LIST, "types": OBJECT, "recipe": TEXT, "bits_per_weight": NUMBER},
    ),
    (["quantize", "m.safetensors", "q.gguf", "q8_0", "--dry-run"], {"dry_run": {"const": True}, "types": OBJECT}),
    (["dequantize", "m.safetensors", "q.gguf"], {"outputs": LIST, "content_hash": TEXT}),
    (["quantize", "net.onnx", "q.onnx", "int8"], {"outputs": LIST, "quantized": LIST, "kept": LIST, "loss": LIST}),
    (["calibrate", "net.onnx", "-d", "x.npz", "-o", "ranges.json"], {"samples": NUMBER, "values": OBJECT}),
    (["recipes", "list"], {"recipes": LIST}),
    (["recipes", "show", "q4_k_m"], {"rules": LIST, "base": TEXT, "toml": TEXT}),
    (["verify", "m.safetensors", "m.safetensors"], {"inputs": LIST, "faithful": {"const": True}, "tensors": LIST}),
    (["inspect", "net.onnx", "--html", "net.html"], {"graph": OBJECT, "tensors": LIST}),
    (["run", "net.onnx"], {"values": LIST, "outputs": LIST, "timings": OBJECT}),
    (
        ["generate", "lm.gguf", "-p", "Hello", "-n", "3", "--threads", "1"],
        {"text": TEXT, "tokens": LIST, "reason": TEXT, "timings": OBJECT},
    ),
    (["embed", "classes", "a", "b"], {"vectors": LIST, "count": NUMBER, "width": NUMBER, "task": TEXT}),
    (["rerank", "lm.gguf", "--query", "a", "b", "c"], {"query": TEXT, "documents": LIST, "task": TEXT}),
    (["serve", "lm.gguf", "classes", "--dry-run"], {"inputs": LIST, "models": LIST, "address": {"type": "null"}}),
    (["predict", "classes", "a", "b"], {"results": LIST, "task": TEXT}),
    (["classify", "vision", "known/a", "--against", "known"], {"results": LIST, "against": TEXT}),
    (["transcribe", "speech", "tone.wav"], {"inputs": LIST, "results": LIST}),
    (
        ["speak", "music", "-p", "a piano", "-o", "piano.wav", "--max-seconds", "0.1"],
        {"outputs": LIST, "seconds": NUMBER, "rate": NUMBER},
    ),
    (
        ["draw", "drawer", "-p", "a fox", "-o", "fox.png", "--steps", "1", "--size", "32x32"],
        {"inputs": LIST, "outputs": LIST, "recipe": TEXT, "warnings": LIST},
    ),
    (["codec", "encode", "encodec", "tone.wav", "tone.npz", "--codebooks", "2"], {"inputs": LIST, "results": LIST}),
    (["codec", "decode", "encodec", "tone.npz", "again.wav"], {"inputs": LIST, "results": LIST}),
    (["bench", "net.onnx", "--runs", "1"], {"engines": LIST}),
    (["profile", "net.onnx", "--runs", "1"], {"nodes": LIST, "operators": LIST, "seconds": NUMBER, "outside": NUMBER}),
    (
        ["eval", "net.onnx", "--data", "x.npz", "--metric", "mse", "--against", "net.onnx"],
        {"samples": NUMBER, "metrics": LIST},
    ),
    (
        ["imatrix", "lm.gguf", "-d", "words.txt", "-o", "i.gguf", "--context", "16", "--chunks", "1"],
        {"tensors": NUMBER, "outputs": LIST},
    ),
    (
        ["finetune", "vision", "-d", "known", "-o", "tuned", "--epochs", "1", "--batch-size", "2"],
        {"outputs": LIST, "losses": LIST, "before": OBJECT, "after": OBJECT, "labels": LIST, "steps": NUMBER},
    ),
    (["graph", "simplify", "net.onnx", "o.onnx"], {"outputs": LIST}),
    (["graph", "opset", "net.onnx", "o.onnx"], {"outputs": LIST}),
    (["graph", "extract", "net.onnx", "o.onnx", "--outputs", "hidden"], {"outputs": LIST}),
    (["graph", "shapes", "net.onnx", "o.onnx"], {"outputs": LIST}),
    (["graph", "rename", "net.onnx", "o.onnx", "--value", "x=image"], {"outputs": LIST}),
    (["graph", "reduce", "net.onnx", "o.onnx", "--fails", "false"], {"outputs": LIST}),
    (["ops", "net.onnx"], {"ops": LIST, "missing": LIST, "opsets": OBJECT}),
    (["tokenizer", "show", "lm.gguf"], {"kind": TEXT, "tokens": NUMBER, "roles": OBJECT, "ends": LIST}),
    (["tokenizer", "encode", "lm.gguf", "Hello"], {"ids": LIST, "tokens": LIST, "unknown_markers": LIST}),
    (["tokenizer", "decode", "lm.gguf", "1"], {"ids": LIST, "text": TEXT}),
    (["tokenizer", "roundtrip", "lm.gguf", "--against", "lm.gguf"], {"differences": LIST}),
    (["tokenizer", "export", "lm.gguf", "files"], {"outputs": LIST, "warnings": LIST}),
    (["template", "render", "t.jinja", "--user", "Hello"], {"text": TEXT, "messages": LIST, "unknown_markers": LIST}),
    (["models", "list"], {"models": LIST}),
    (["models", "show", "lm.gguf"], {"model": OBJECT, "parameters": LIST, "weights": NUMBER, "whole": {"const": True}}),
    (["types"], {"types": LIST}),
    (["formats"], {"formats": LIST}),
    (
        ["doctor"],
        {"packages": LIST, "hardware": OBJECT, "kernels": OBJECT, "disks": LIST, "caches": OBJECT, "verdicts": LIST},
    ),
    (["bundle", "net.onnx", "-o", "app"], {"outputs": LIST, "packages": LIST, "operations": LIST, "kernels": NUMBER}),
    (
        ["page", "lm.gguf", "-o", "site", "--runtime", "npm"],
        {"outputs": LIST, "kind": TEXT, "packages": LIST, "model_bytes": NUMBER, "code_bytes": NUMBER},
    ),
    (["cache", "info"], {"folder": TEXT, "folders": LIST, "bytes": NUMBER}),
    (["cache", "warm", "net.onnx"], {"models": LIST}),
    (["cache", "clear", "--unused", "100000"], {"files": NUMBER, "bytes": NUMBER}),
    (["completion", "bash"], {"shell": TEXT, "script": TEXT}),
]


GROUPS = ("codec", "metadata", "recipes", "graph", "tokenizer", "template", "models", "cache")


def schema(words, properties):
    name = "-".join(words[: 2 if words[0] in GROUPS else 1])
    head = {"schema": {"const": f"candle-convert/{name}/1"}, "ok": {"const": True}}
    return {"type": "object", "required": [*head, *properties], "properties": {**head, **properties}}


@pytest.mark.parametrize(("words", "properties"), SUCCESS, ids=[" ".join(words) for words, _ in SUCCESS])
def test_json_of_success(folder, classifier, vision, speech, music, codec, drawer, capsys, words, properties):
    (folder / "classes").symlink_to(classifier)
    (folder / "vision").symlink_to(vision)
    (folder / "speech").symlink_to(speech)
    (folder / "music").symlink_to(music)
    (folder / "encodec").symlink_to(codec)
    (folder / "drawer").symlink_to(drawer)
    if words[0] in ("transcribe", "codec"):
        write_sound("tone.wav", np.sin(np.arange(16000) / 9), 16000)
    if words[:2] == ["codec", "decode"]:
        run(["codec", "encode", "encodec", "tone.wav", "tone.npz", "--quiet"])
    for label in "ab":
        (folder / "known" / label).mkdir(parents=True)
        (folder / "known" / label / "x.ppm").write_bytes(b"P6 1 1 255\n" + label.encode() * 3)
    assert run([*words, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 1
    answer = json.loads(captured.out, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    jsonschema.validate(answer, schema(words, properties))
    assert captured.err == ""


def test_every_command_has_a_json_case():
    assert {tuple(words[: 2 if words[0] in GROUPS else 1]) for words, _ in SUCCESS} >= {
        words for words in COMMANDS if words[-1] not in GROUPS
    }


CODES = [
    (["m.safetensors", "o.safetensors"], 0),
    (["diff", "m.safetensors", "n.safetensors"], 1),
    (["check", "unsorted"], 7),
    (["hash", "n.safetensors", "-c", "sums"], 1),
    (["metadata", "get", "m.safetensors", "nothing"], 1),
    (["convert", "m.safetensors"], 2),
    (["convert", "m.safetensors", "o.safetensors", "--bogus"], 2),
    (["convert", "m.safetensors", "o.unknown"], 2),
    (["convert", "m.safetensors", "o.safetensors", "--limit", "colour=1"], 2),
    (["nothing"], 2),
    (["inspect", "m.safetensors", "--from", "nothing"], 2),
    (["print", "m.safetensors", "nothing"], 2),
    (["inspect", "text.txt"], 3),
    (["check", "short.safetensors"], 3),
    (["diff", "m.safetensors", "short.safetensors"], 3),
    (["scan", "short.safetensors"], 3),
    (["hash", "short.safetensors"], 3),
    (["convert", "m.safetensors", "o.safetensors", "--tensor-type", ".=q4_k"], 2),
    (["quantize", "m.safetensors", "q.gguf", "q4_k", "--no-fallback"], 5),
    (["quantize", "m.safetensors", "q.npz", "q8_0"], 4),
    (["quantize", "m.safetensors", "q.gguf"], 2),
    (["quantize", "m.safetensors", "q.gguf", "q4_k", "--imatrix", "text.txt"], 3),
    (["dequantize", "m.safetensors", "q.gguf", "--dtype", "i8"], 2),
    (["recipes", "show", "nothing"], 2),
    (["verify", "m.safetensors", "n.safetensors"], 1),
    (["scan", "evil.txt"], 5),
    (["scan", "."], 5),
    (["convert", "m.safetensors", "n.safetensors"], 5),
    (["inspect", "m.safetensors", "--limit", "header=10"], 6),
    (["print", "m.safetensors", "a.weight", "--full", "--limit", "memory=10"], 6),
    (["inspect", "missing.safetensors"], 7),
    (["scan", "missing"], 7),
    (["merge", "x-00001-of-00002.safetensors", "o.safetensors"], 7),
]


@pytest.mark.parametrize(("words", "code"), CODES, ids=[" ".join(words) for words, _ in CODES])
def test_exit_codes_and_json_errors(folder, capsys, words, code):
    assert run(["hash", "m.safetensors", "--write", "sums"]) == 0
    capsys.readouterr()
    assert run(words) == code
    captured = capsys.readouterr()
    shown = captured.err + captured.out
    assert "\x1b" not in shown
    assert "Traceback" not in shown
    assert code == 0 or code == 1 or len(shown.strip().splitlines()) >= 1
    if words[0] in discovery.COMMANDS:
        assert run([*words, "--json"]) in (code, 5)
        answer = json.loads(capsys.readouterr().out)
        assert answer["ok"] == (code == 0)
        if "error" in answer and answer["error"]["code"] != "E-USAGE":
            jsonschema.validate(answer, ERROR)


SAYING = [
    ["inspect", "m.safetensors"],
    ["print", "m.safetensors", NASTY],
    ["diff", "m.safetensors", "n.safetensors", "--all"],
    ["check", "nan.safetensors"],
    ["scan", "."],
    ["hash", "m.safetensors"],
    ["hash", "m.safetensors", "-c", "sums"],
    ["metadata", "show", "m.safetensors", "--full"],
    ["metadata", "set", "m.safetensors", NASTY, "new"],
    ["convert", "m.safetensors", "o.safetensors", "--tied", "clone"],
    ["convert", "nan.safetensors", "o.safetensors", "--dtype", "f16", "--nan", "warn"],
    ["convert", "nan.safetensors", "o.safetensors", "--dtype", "f16"],
    ["convert", "m.safetensors", "o.safetensors", "--exclude", "."],
    ["print", "m.safetensors", NASTY + "?"],
    ["inspect", f"{NASTY}.safetensors"],
    ["doctor"],
]


def test_json_ends_with_its_command(tmp_path, capfdbinary):
    run(["inspect", "--json", str(tmp_path / "absent.onnx")])
    write_sound("-", np.zeros(100), 8000)
    assert b"RIFF" in capfdbinary.readouterr().out


@pytest.mark.parametrize("words", SAYING, ids=[printable(" ".join(words)) for words in SAYING])
def test_control_characters_are_shown_and_never_sent(folder, capsys, words):
    cc.save_file({NASTY: np.array([np.nan], np.float32)}, "nan.safetensors")
    assert run(["hash", "m.safetensors", "--write", "sums"]) == 0
    os.mkdir(folder / "x\x1b[31m")
    (folder / "x\x1b[31m" / "evil\x1b[2J").write_bytes(b"cposix\nsystem\n(S'echo'\ntR.")
    capsys.readouterr()
    run(words)
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert not {character for character in text if not character.isprintable()} - {"\n"}
    if NASTY in words or words[0] != "doctor":
        assert captured.out + captured.err


def _process(words, **environment):
    return subprocess.run(
        [sys.executable, "-m", "candle_convert.convert", *words],
        capture_output=True,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize(
    "environment",
    [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}],
)
def test_output_to_a_pipe_is_plain(folder, environment):
    lines = (
        ["inspect", "m.safetensors"],
        ["convert", "m.safetensors", "o.safetensors", "--force"],
        ["print", "m.safetensors", "a.weight"],
    )
    code = f"from candle_convert.convert.cli.main import run\nassert [run(words) for words in {lines!r}] == [0, 0, 0]"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=os.environ | environment, check=False)
    assert (done.returncode, b"\x1b" in done.stdout + done.stderr) == (0, False), done.stderr
    done = _process(["metadata", "show", "m.safetensors", "--json"], **environment)
    assert json.loads(done.stdout)["metadata"]["name"]["value"] == "x"


def test_names_that_are_no_text_do_not_break_the_output(folder, capsys):
    path = os.fsdecode(b"caf\xe9.safetensors")
    cc.save_file({"x": np.ones(1)}, path)
    assert run(["inspect", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"]
    assert run(["hash", path]) == run(["scan", "."]) - 5 == 0


LIGHT = [
    ["--help"],
    ["--version"],
    ["inspect", "m.safetensors"],
    ["scan", "m.safetensors", "text.txt"],
    ["convert", "m.safetensors", "o.safetensors", "--force"],
    ["types"],
    ["formats"],
    ["doctor"],
    ["hash", "m.safetensors"],
    ["metadata", "show", "m.safetensors"],
]


@pytest.mark.parametrize("words", LIGHT, ids=" ".join)
def test_light_commands_load_nothing_heavy(folder, words):
    code = (
        f"import sys\nfrom candle_convert.convert.cli.main import run\nassert run({words!r}) == 0\nprint()\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & HEAVY
    assert words[0] not in ("--help", "--version", "formats", "doctor") or "numpy" not in loaded


def test_importing_the_package_loads_nothing_heavy():
    code = "import candle_convert, sys; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not loaded & {*HEAVY, "numpy", "click", "rich"}


COMPLETIONS = [
    ("candle-convert ins", "inspect"),
    ("candle-convert conv", "convert"),
    ("candle-convert convert --to saf", "safetensors"),
    ("candle-convert convert --dtype bf", "bf16"),
    ("candle-convert inspect --from saf", "safetensors"),
    ("candle-convert types q4_", "q4_k"),
    ("candle-convert convert --ver", "--verify"),
    ("candle-convert convert --verify sam", "sample"),
    ("candle-convert metadata se", "set"),
    ("candle-convert completion z", "zsh"),
]


@pytest.mark.parametrize("line", COMPLETIONS, ids=lambda line: line[0])
def test_completion_answers(line):
    text, wanted = line
    done = _process(
        [], _CANDLE_CONVERT_COMPLETE="bash_complete", COMP_WORDS=text, COMP_CWORD=str(len(text.split()) - 1)
    )
    assert f"plain,{wanted}" in done.stdout.decode().split()


def test_paths_are_completed_by_the_shell():
    for text in ("candle-convert inspect mod", "candle-convert convert a b", "candle-convert hash x -c su"):
        done = _process(
            [], _CANDLE_CONVERT_COMPLETE="bash_complete", COMP_WORDS=text, COMP_CWORD=str(len(text.split()) - 1)
        )
        assert done.stdout.decode().startswith("file,")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_program(shell, capsys):
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_CANDLE_CONVERT_COMPLETE={shell}_complete" in script
    assert shell != "bash" or subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


def test_installed_completion_is_what_bash_uses(tmp_path, monkeypatch, capsys):
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/usr/bin/bash")
    (tmp_path / ".bashrc").write_text("alias own=true")
    for _ in range(2):
        assert run(["completion", "--install"]) == 0
    assert (tmp_path / ".bashrc").read_text().count("source") == 1
    assert (tmp_path / ".bashrc").read_text().startswith("alias own=true\nsource ")
    words = ["bash", "--rcfile", str(tmp_path / ".bashrc"), "-ic", "complete -p candle-convert"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "candle-convert" in shown
    assert run(["completion", "fish", "--install"]) == 0
    assert "candle-convert" in (tmp_path / ".config/fish/completions/candle-convert.fish").read_text()
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    capsys.readouterr()
    assert run(["completion"]) == 2
    assert "bash, zsh, fish" in capsys.readouterr().err
