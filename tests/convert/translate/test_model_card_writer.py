"""Licence, tags, names and whatever else a GGUF file says of itself, through a Hugging Face directory and back."""

import json

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.translate.front_matter import front_matter, written
from candle_convert.convert.translate.metadata_value import kind_of, readable
from candle_convert.convert.translate.model_card_writer import BLOCK
from candle_convert.tests.builders.tiny_llama import written as gguf_file
from hypothesis import given
from hypothesis import strategies as st

SAID = {
    "general.name": 'Grüße "Tiny": a model', "general.basename": "tiny", "general.size_label": "1K",
    "general.license": "apache-2.0", "general.license.name": "own", "general.license.link": "https://x/y",
    "general.tags": ["text-generation", "a b", "no", "- no", "#x"], "general.languages": ["en", "no", "de"],
    "general.author": "A U Thor", "general.organization": "Org", "general.description": "Two\nlines\n---\n- no\n# x\n",
    "general.url": "https://u", "general.repo_url": "https://r", "general.doi": "10.1/2", "general.uuid": "u-u",
    "general.source.url": "https://s", "general.source.huggingface.repository": "o/r", "general.version": "2.0",
    "general.finetune": "Chat", "general.quantized_by": "me", "general.base_model.count": np.uint32(2),
    "general.base_model.0.name": "Base", "general.base_model.0.repo_url": "https://huggingface.co/own/base-7B",
    "general.base_model.1.name": "Other", "general.dataset.count": np.uint32(1), "general.dataset.0.name": "Set",
    "general.dataset.0.repo_url": "https://huggingface.co/datasets/o/set", "general.sampling.temp": np.float32(0.7),
    "general.sampling.top_k": np.int32(40), "general.sampling.mirostat": np.int32(2), "general.flag": True,
    "general.odd": np.array([1.5, 0.1], np.float32), "general.half": np.float64(1 / 3), "general.n": np.uint64(2**63),
    "acme.note": "keep me", "acme.list": ["a", ""],
}  # fmt: skip
ANEW = ("general.architecture", "general.type", "general.file_type", "general.quantization_version")


def plain(metadata):
    """Values and types of what is said of the model itself."""
    found = {key: value for key, value in metadata.items() if key.startswith(("general.", "acme.")) and key not in ANEW}
    strings = {key: value if isinstance(value, str) else None for key, value in found.items()}
    return {
        key: strings[key] or (kind_of(value), list(map(str, value)) if kind_of(value) == "str[]" else readable(value))
        for key, value in found.items()
    }


def there_and_back(folder, **said):
    cc.convert(gguf_file(folder / "first.gguf", **said), folder / "hf", to="safetensors")
    cc.convert(folder / "hf", folder / "second.gguf")
    return cc.open(folder / "second.gguf").metadata


@pytest.mark.parametrize(
    "keys", [SAID, {"general.name": "x"}, {"general.license": "mit,apache-2.0"}, {"general.tags": ["a"]}]
)
def test_keys_come_back_with_their_types(keys, tmp_path):
    found = plain(there_and_back(tmp_path, **keys))
    assert found == {"general.name": "Hf"} | plain(keys)


def test_the_hub_has_its_own_fields(tmp_path):
    there_and_back(tmp_path, **SAID)
    text = (tmp_path / "hf" / "README.md").read_text()
    yaml = pytest.importorskip("yaml")
    card = yaml.safe_load(text.split("\n---\n")[0].removeprefix("---"))
    assert card == front_matter(text)
    hub = {
        key: card[key]
        for key in ("license", "license_name", "license_link", "language", "tags", "base_model", "datasets")
    }
    assert hub == {
        "license": "apache-2.0", "license_name": "own", "license_link": "https://x/y", "language": ["en", "no", "de"],
        "tags": SAID["general.tags"], "base_model": ["own/base-7B"], "datasets": ["o/set"],
    }  # fmt: skip
    generation = json.loads((tmp_path / "hf" / "generation_config.json").read_text())
    assert (generation["temperature"], generation["top_k"], generation["do_sample"]) == (0.7, 40, True)
    library = pytest.importorskip("huggingface_hub")
    data = library.ModelCard(text).data
    assert (data.license, data.language, data.base_model) == ("apache-2.0", ["en", "no", "de"], ["own/base-7B"])


def test_as_gguf_py_reads_the_directory(tmp_path):
    gguf = pytest.importorskip("gguf")
    there_and_back(tmp_path, **SAID)
    found = gguf.Metadata.load(None, tmp_path / "hf", None, 1000)
    for key in (
        "name",
        "author",
        "organization",
        "version",
        "basename",
        "finetune",
        "size_label",
        "description",
        "license",
    ):
        assert getattr(found, key) == SAID[f"general.{key}"]
    assert (found.tags, found.languages) == (SAID["general.tags"], SAID["general.languages"])
    assert found.sampling_temp == pytest.approx(0.7)


def test_a_card_of_ones_own_stays(tmp_path):
    own = "---\nlicense: mit\ntags: [mine]\nwidget:\n- text: hello\n---\n# My model\n\nText -- of mine.\n"
    (tmp_path / "model").mkdir()
    gguf_file(
        tmp_path / "model" / "m.gguf", **{"general.license": "apache-2.0", "general.author": "Me", "acme.note": "x"}
    )
    (tmp_path / "model" / "README.md").write_text(own)
    cc.convert(tmp_path / "model", tmp_path / "hf", to="safetensors")
    text = (tmp_path / "hf" / "README.md").read_text()
    assert text.endswith("---\n# My model\n\nText -- of mine.\n")
    card = front_matter(text)
    assert card["license"] == "mit"
    assert (card["tags"], card["widget"], card["model_author"]) == (["mine"], [{"text": "hello"}], "Me")
    cc.convert(tmp_path / "hf", tmp_path / "again.gguf")
    metadata = cc.open(tmp_path / "again.gguf").metadata
    assert (metadata["general.license"], metadata["general.author"], metadata["acme.note"]) == ("mit", "Me", "x")
    assert list(metadata["general.tags"]) == ["mine"]


@pytest.mark.parametrize("own", ["no front matter\n", "---\n[broken\n---\ntext\n", ""])
def test_cards_without_fields(own, tmp_path):
    (tmp_path / "model").mkdir()
    gguf_file(tmp_path / "model" / "m.gguf", **{"general.license": "apache-2.0"})
    (tmp_path / "model" / "README.md").write_text(own)
    cc.convert(tmp_path / "model", tmp_path / "hf", to="safetensors")
    text = (tmp_path / "hf" / "README.md").read_text()
    assert text.endswith(own)
    assert ("license: apache-2.0" in text) is not own.startswith("---")


def test_the_text_of_a_card_is_not_in_a_gguf_file_and_its_fields_are(tmp_path):
    there_and_back(tmp_path, **SAID)
    readme = tmp_path / "hf" / "README.md"
    readme.write_text(readme.read_text().replace("license: apache-2.0", "license: mit") + "More text.\n")
    cc.convert(tmp_path / "hf", tmp_path / "third.gguf")
    cc.convert(tmp_path / "third.gguf", tmp_path / "again", to="safetensors")
    text = (tmp_path / "again" / "README.md").read_text()
    assert "More text." not in text
    assert front_matter(text) == front_matter(readme.read_text())
    assert cc.open(tmp_path / "third.gguf").metadata["general.license"] == "mit"


def test_quantizing_keeps_everything(tmp_path):
    gguf_file(tmp_path / "m.gguf", **SAID)
    assert run(["quantize", str(tmp_path / "m.gguf"), str(tmp_path / "q.gguf"), "q8_0", "-q"]) == 0
    assert plain(cc.open(tmp_path / "q.gguf").metadata) == plain(SAID)


@pytest.mark.parametrize("entry", [
    "{type: json, value: '{}'}", "{type: i8, value: '300'}", "{type: nothing, value: x}", "{value: 3}", "[1, 2]",
    "{type: 'i32[]', value: '[\"a\"]'}",
])  # fmt: skip
def test_blocks_that_say_nonsense_are_left_out_and_told(entry, tmp_path):
    there_and_back(tmp_path, **{"general.name": "x"})
    keys = f"{BLOCK}:\n  acme.bad: {entry}\n  acme.good: y\n"
    keys += "  general.alignment: {type: u32, value: '7'}\n  llama.block_count: '9'\n"
    (tmp_path / "hf" / "README.md").write_text(f"---\nmodel_name: x\n{keys}---\n")
    report = cc.convert(tmp_path / "hf", tmp_path / "third.gguf")
    assert [note.code for note in report.notes] == ["W-CARD"]
    metadata = cc.open(tmp_path / "third.gguf").metadata
    assert metadata["acme.good"] == "y"
    assert "acme.bad" not in metadata
    assert "general.alignment" not in metadata
    assert metadata["llama.block_count"] == 2


def test_values_that_are_too_long_are_told(tmp_path):
    gguf_file(tmp_path / "m.gguf", **{"acme.long": "x" * 20_000, "acme.short": "y"})
    report = cc.convert(tmp_path / "m.gguf", tmp_path / "hf", to="safetensors")
    assert [note.code for note in report.notes] == ["W-CARD"]
    assert front_matter((tmp_path / "hf" / "README.md").read_text())[BLOCK] == {"acme.short": "y"}


ODD = ["- no\n", "no", "---", "a\n---\nb", "\t", "\x85", "1_0", "~", "a: b", "{x", "\ufeff"]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(ODD)


@given(st.dictionaries(TEXT, TEXT | st.lists(TEXT, max_size=3), max_size=4))
def test_every_string_is_read_as_it_was_written(card):
    assert front_matter(written(card)) == card
