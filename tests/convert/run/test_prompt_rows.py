"""``generate -f``: prompts of a JSONL file and their answers."""

import json

import candle_convert as cc
import pytest
from candle_convert import models
from candle_convert.convert.cli.main import run
from candle_convert.convert.run.prompt_rows import read_rows
from candle_convert.tests.builders.tiny_llama import written


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    template = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"
    return written(tmp_path_factory.mktemp("rows") / "m.gguf", **{"tokenizer.chat_template": template})


def lines(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_answers_are_those_of_lone_prompts(path, tmp_path, capsys):
    model = models.load(path, threads=1)
    rows = [{"prompt": f"Hello {number}", "id": number} for number in range(20)]
    rows[3] |= {"max_tokens": 2, "stop": "zzz"}
    rows[4] |= {"stop": None, "seed": None, "temperature": None}
    rows.append({"messages": [{"role": "user", "content": "Hi"}]})
    asked, answers = lines(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    words = ["generate", str(path), "-f", str(asked), "-n", "8", "--temp", "0", "--threads", "1"]
    assert run([*words, "-o", str(answers)]) == 0
    found = [json.loads(line) for line in answers.read_text().splitlines()]
    assert [{key: row[key] for key in wanted} for row, wanted in zip(found, rows, strict=True)] == rows
    prompts = [row.get("prompt", "user: Hi\nassistant:") for row in rows]
    for prompt, row in zip(prompts, found, strict=True):
        (lone,) = model.generate_batch([prompt], max_tokens=row.get("max_tokens", 8), temperature=0)
        assert (row["text"], row["tokens"], row["reason"]) == (lone.text, lone.tokens, lone.reason)
    assert "21 prompts" in capsys.readouterr().err
    assert run([*words, "-o", str(answers)]) != 0  # it exists
    assert run([*words, "-o", str(answers), "--force"]) == 0
    capsys.readouterr()
    assert run(words) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == found
    assert run([*words, "--json"]) == 0
    assert [row["text"] for row in json.loads(capsys.readouterr().out)["results"]] == [row["text"] for row in found]


@pytest.mark.parametrize("text", ["{", "[1]", '{"text": "a"}', '{"prompt": 3}', '{"prompt": "a", "messages": []}', ""])
def test_rows_that_are_not_prompts(path, tmp_path, capsys, text):
    file = tmp_path / "in.jsonl"
    file.write_text(text)
    assert run(["generate", str(path), "-f", str(file)]) != 0
    error = capsys.readouterr().err
    assert "E-PROMPT-ROW" in error or "E-TEXT-EMPTY" in error


@pytest.mark.parametrize(
    "setting",
    [
        {"max_tokens": "5"},
        {"max_tokens": -1},
        {"max_tokens": True},
        {"stop": 5},
        {"stop": ["a", 5]},
        {"seed": 1.5},
        {"seed": -1},
        {"temperature": "hot"},
        {"temperature": 10**400},
        {"top_p": 2},
        {"top_k": [1]},
    ],
    ids=str,
)
def test_wrong_settings_name_their_line(tmp_path, setting):
    file = tmp_path / "in.jsonl"
    file.write_text('\n{"prompt": "a"}\n\n' + json.dumps({"prompt": "b", **setting}) + "\n")
    with pytest.raises(cc.FormatError, match="line 4 has") as error:
        read_rows(str(file))
    assert error.value.code == "E-PROMPT-ROW"


def test_options_that_do_not_go_together(path, tmp_path, capsys):
    file = lines(tmp_path / "in.jsonl", [{"prompt": "a"}])
    schema = lines(tmp_path / "s.json", [{"type": "object"}])
    for words in (
        ["-o", "x"],
        ["-f", str(file), "-p", "a"],
        ["-p", "a", "--json-schema", str(schema), "--grammar", str(schema)],
    ):
        assert run(["generate", str(path), *words]) == 2
        assert "E-OPTION" in capsys.readouterr().err
