"""What a tokenizer loses in a GGUF file is said: flags of added tokens, and steps of the decoder. What the files do is
what the library tokenizers does."""

import json

import pytest
from candle_convert.models.tokenizer import gguf_metadata, read
from candle_convert.models.tokenizer.readers.gguf import from_gguf
from candle_convert.runtime.ir.graph import Graph
from candle_convert.runtime.tensor.storage import Held
from candle_convert.tests.builders.trained_tokenizers import SAMPLE

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers  # noqa: E402

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
DECODER = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
LINES = decoders.Replace("\n ", "\n")
TOLD = {
    "nothing": ({}, [], None),
    "white space before": ({"lstrip": True}, [], "lstrip is lost"),
    "white space after": ({"rstrip": True}, [], "rstrip is lost"),
    "white space on both sides": ({"lstrip": True, "rstrip": True}, [], "lstrip, rstrip is lost"),
    "whole words": ({"single_word": True}, [], "other ids around 1 of"),
    "a step of the decoder": ({}, [LINES], "other text from the ids of"),
    "a step for few texts": ({}, [decoders.Replace(" n't", "n't")], "other text from the ids of"),
    "an expression": ({}, [decoders.Replace(Regex(" {2,}"), " ")], "without the replacement of ' {2,}'"),
    "a step without effect": ({}, [decoders.Replace("\u2581", " ")], None),
    "a text that looks special": ({"special": False}, [], "other text from the ids of"),
    "both": ({"lstrip": True}, [LINES], "lstrip is lost); other text"),
}


def llama_tokenizer(flags, steps):
    """BPE with byte fallback, as Llama's tokenizer.json, and an added token."""
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>", "<s>", "</s>", *BYTES], show_progress=False)
    made.train_from_iterator([SAMPLE, "two\n lines\n of text"], trainer)
    content = json.loads(made.to_str())
    content["added_tokens"] = [added for added in content["added_tokens"] if added["id"] < 3]
    made = Tokenizer.from_str(json.dumps(content))
    flags = {"special": True, **flags}
    (made.add_special_tokens if flags["special"] else made.add_tokens)(
        [AddedToken("<mask>", normalized=False, **flags)]
    )
    made.decoder = decoders.Sequence([*DECODER, *steps])
    return made


@pytest.mark.parametrize("case", TOLD)
def test_what_a_gguf_file_loses_is_said(case):
    flags, steps, told = TOLD[case]
    library = llama_tokenizer(flags, steps)
    graph = Graph(attachments={"tokenizer.json": Held(library.to_str().encode())})
    written = from_gguf(gguf_metadata(graph, "llama", None))
    for text in ("a <mask> b", "x<mask>y", "one\n two", "do n't", "one   two"):
        ids = library.encode(text, add_special_tokens=False).ids
        assert read(graph).encode(text, add_bos=False) == ids
        assert read(graph).decode(ids) == library.decode(ids)
        same = written.encode(text, add_bos=False) == ids and written.decode(ids) == library.decode(ids)
        assert same or told
    notes = [note.message for note in graph.notes if note.code == "W-TOKENIZER-DIFFERS"]
    assert notes == [] if told is None else told in notes[0]
