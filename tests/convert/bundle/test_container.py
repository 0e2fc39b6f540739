"""The steps of the Dockerfile of the documentation, carried out in a folder and a virtual environment of their own."""

import json
import re
import shlex
import shutil
import subprocess
import urllib.request
import venv

import candle_convert as cc
from candle_convert.convert.bundle.make_bundle import make_bundle
from candle_convert.tests.builders.paths import EXAMPLES, REPOSITORY

PAGE = REPOSITORY / "docs" / "guide" / "deploy.md"


def instructions():
    """(instruction, its words) of the page's Dockerfile."""
    (text,) = re.findall(r"^```dockerfile\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for line in text.splitlines():
        name, rest = line.split(maxsplit=1)
        yield name, json.loads(rest) if rest.startswith("[") else shlex.split(rest)


def test_the_image_answers(tmp_path):
    root = tmp_path / "root"
    make_bundle(str(EXAMPLES / "digits.onnx"), tmp_path / "app")
    python, steps = root / "venv" / "bin" / "python", []

    def inside(word):
        return str(root) + word if word.startswith("/") else word

    for name, words in instructions():
        steps.append(name)
        if name == "FROM":
            assert words[0].startswith("python:")
            venv.create(root / "venv", with_pip=True)
        elif name == "COPY":
            shutil.copytree(tmp_path / words[0], inside(words[1]))
        elif name == "RUN":
            assert words[0] == "pip"
            subprocess.run([python, "-m", *map(inside, words)], check=True, capture_output=True)
        elif name == "EXPOSE":
            port = words[0]
        elif name == "CMD":
            assert words[-1] == f"0.0.0.0:{port}"
            command = [python, *map(inside, words[1:-1]), "0.0.0.0:0"]
    assert steps == ["FROM", "COPY", "RUN", "EXPOSE", "CMD"]
    image = cc.load_file(EXAMPLES / "digits.npz")["image"][:1]
    (want,) = cc.InferenceSession(EXAMPLES / "digits.onnx").run(None, {"image": image})
    environment = {"HOME": str(tmp_path / "none"), "PATH": "/usr/bin"}
    with subprocess.Popen(command, cwd="/", env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = process.stderr.readline().split()[0].replace("0.0.0.0", "127.0.0.1")
            body = json.dumps({"inputs": {"image": image.tolist()}}).encode()
            request = urllib.request.Request(f"{address}/run", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert json.load(answer)["outputs"]["logits"] == want.tolist()
        finally:
            process.terminate()
