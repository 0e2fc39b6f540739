"""Language models that answer yes or no to whether a document fits, against transformers, sentence-transformers and
libllama."""

import json

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert import models
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.trained_tokenizers import byte_bpe
from candle_convert.tests.oracles.libllama_encoder import RANK, EncoderInLibllama
from candle_convert.tests.oracles.transformers import cases, made, transformers

QUERY = "how do cats sleep?"
DOCUMENTS = ["Cats nap in the sun.", "Taxes rise. " * 9, "  a dog\n\nand a cat  ", "x"]
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
PREFIX = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
ROLES = (
    "{%- set ns = namespace(i='DEFAULT') -%}{%- for m in messages if m.role == 'system' -%}{%- set ns.i = m.content -%}"
    "{%- endfor -%}<|im_start|>user\n<Instruct>: {{ ns.i }}\n"
    "<Query>: {{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first }}\n"
    "<Document>: {{ messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first | trim }}"
    "<|im_end|>\n{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TOLERANCE = 2e-5


def checkpoint(folder, *, tied=True, **settings):
    """A tiny Qwen 3 in `folder` with a tokenizer that has the answers; transformers' model."""
    from tokenizers import Tokenizer

    library = Tokenizer.from_str(byte_bpe((QWEN2_PATTERN,)).to_str())
    library.add_tokens(["yes", "no"])
    kind = {
        "head_dim": 16,
        "tie_word_embeddings": tied,
        "max_position_embeddings": 512,
        "vocab_size": library.get_vocab_size(),
        **settings,
    }
    (case,) = cases("Qwen3ForCausalLM", "qwen3", qwen3=kind)
    reference = made(case, 0, folder)
    library.save(str(folder / "tokenizer.json"))
    said = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    return reference


def by_the_card(reference, folder, instruction=INSTRUCTION):
    """The scores as the model card of Qwen3-Reranker computes them."""
    tokenizer = transformers().AutoTokenizer.from_pretrained(folder)
    answers = [tokenizer.convert_tokens_to_ids(answer) for answer in ("no", "yes")]
    scores = []
    for document in DOCUMENTS:
        text = f"{PREFIX}<Instruct>: {instruction}\n<Query>: {QUERY}\n<Document>: {document}{SUFFIX}"
        ids = torch.tensor([tokenizer.encode(text, add_special_tokens=False)])
        logits = reference(ids).logits[0, -1, answers]
        scores.append(torch.nn.functional.log_softmax(logits, -1)[1].exp().item())
    return scores


def scores_of(found):
    """Scores in the order of the documents."""
    return [each["score"] for each in sorted(found, key=lambda each: each["index"])]


@pytest.mark.parametrize("tied", [True, False])
def test_as_the_model_card(tied, tmp_path, capsys):
    folder = tmp_path / "Qwen3-Reranker-0.6B"
    reference = checkpoint(folder, tied=tied)
    model = models.load(folder, threads=1)
    assert (model.task, model.verbs) == ("text-ranking", ("rerank",))
    found = model.rerank(QUERY, DOCUMENTS, batch=3)
    np.testing.assert_allclose(scores_of(found), by_the_card(reference, folder), rtol=0, atol=TOLERANCE)
    assert [each["score"] for each in found] == sorted((each["score"] for each in found), reverse=True)
    own = scores_of(model.rerank(QUERY, DOCUMENTS, instruction="Find poems"))
    np.testing.assert_allclose(own, by_the_card(reference, folder, "Find poems"), rtol=0, atol=TOLERANCE)
    assert run(["rerank", str(folder), "--query", QUERY, *DOCUMENTS, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["documents"]
    assert [each["index"] for each in printed] == [each["index"] for each in found]
    assert models.load(folder, task="text-generation").generate(QUERY, max_tokens=2) is not None


def test_any_language_model_with_an_instruction(tmp_path, capsys):
    reference = checkpoint(tmp_path)
    want = by_the_card(reference, tmp_path, "Find poems")
    assert run(["rerank", str(tmp_path), "--query", QUERY, *DOCUMENTS, "--instruction", "Find poems", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["documents"]
    np.testing.assert_allclose(scores_of(found), want, rtol=0, atol=TOLERANCE)
    assert models.load(tmp_path).task == "text-generation"


@pytest.mark.parametrize("tied", [True, False])
def test_gguf_as_libllama(tied, tmp_path, capsys):
    """The GGUF file of a reranker, scored by the prompt and the classifier that libllama finds in it."""
    folder, path = tmp_path / "qwen3-reranker", tmp_path / "m.gguf"
    reference = checkpoint(folder, tied=tied)
    cc.convert(folder, path)
    graph = cc.open(path)
    assert graph.metadata["qwen3.pooling_type"] == 4
    assert graph["cls.output.weight"].shape == (2, 64)
    assert "output.weight" not in graph
    theirs = EncoderInLibllama(path, RANK, decoder=True)
    prompt = theirs.template("rerank")
    assert prompt == f"{PREFIX}<Instruct>: {INSTRUCTION}\n<Query>: {{query}}\n<Document>: {{document}}{SUFFIX}"
    texts = [prompt.replace("{query}", QUERY).replace("{document}", document) for document in DOCUMENTS]
    want = [float(theirs(theirs.tokenize(text, special=False))[0]) for text in texts]
    theirs.close()
    found = scores_of(models.load(path, threads=1).rerank(QUERY, DOCUMENTS))
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-4)
    np.testing.assert_allclose(found, by_the_card(reference, folder), rtol=0, atol=TOLERANCE)
    assert run(["rerank", str(path), "--query", QUERY, *DOCUMENTS]) == 0
    with pytest.raises(cc.UnsupportedError, match="by two rows of a head"):
        cc.convert(path, tmp_path / "back", to="safetensors")
    assert run(["quantize", str(path), str(tmp_path / "q.gguf"), "Q8_0"]) == 0
    np.testing.assert_allclose(scores_of(models.load(tmp_path / "q.gguf").rerank(QUERY, DOCUMENTS)), want, atol=0.05)


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("activation", [torch.nn.Identity, torch.nn.Sigmoid])
def test_as_sentence_transformers(both, activation, tmp_path):
    """The module LogitScore with a chat template of the roles query and document."""
    library = pytest.importorskip("sentence_transformers")
    folder = tmp_path / "saved"
    checkpoint(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(ROLES)
    prompts = {"prompts": {"web": INSTRUCTION}, "default_prompt_name": "web"}
    theirs = library.CrossEncoder(str(tmp_path), device="cpu", activation_fn=activation(), **prompts)
    theirs[0].processing_kwargs = {"chat_template": {"add_generation_prompt": True}}
    if not both:
        theirs[1].false_token_id = None
    theirs.save_pretrained(str(folder))
    model = models.load(folder, threads=1)
    for instruction in (None, "Find poems"):
        want = theirs.predict([(QUERY, document) for document in DOCUMENTS], prompt=instruction)
        found = scores_of(model.rerank(QUERY, DOCUMENTS, instruction=instruction))
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-4)


def test_long_documents_are_cut(tmp_path):
    """Tokens are cut from the end of the document, as the model card cuts them."""
    reference = checkpoint(tmp_path / "Qwen3-Reranker", max_position_embeddings=320)
    model = models.load(tmp_path / "Qwen3-Reranker", threads=1)
    tokenizer = transformers().AutoTokenizer.from_pretrained(tmp_path / "Qwen3-Reranker")
    prefix, suffix = (tokenizer.encode(part, add_special_tokens=False) for part in (PREFIX, SUFFIX))
    body = f"<Instruct>: {INSTRUCTION}\n<Query>: {QUERY}\n<Document>: " + "Taxes rise. " * 60
    kept = tokenizer.encode(body, add_special_tokens=False)[: 320 - len(prefix) - len(suffix)]
    answers = [tokenizer.convert_tokens_to_ids(answer) for answer in ("no", "yes")]
    logits = reference(torch.tensor([[*prefix, *kept, *suffix]])).logits[0, -1, answers]
    with pytest.warns(UserWarning, match="1 document of 1 would make prompts of more than 320 tokens"):
        (found,) = model.rerank(QUERY, ["Taxes rise. " * 60])
    assert found["score"] == pytest.approx(torch.softmax(logits, -1)[1].item(), abs=TOLERANCE)
    with pytest.raises(cc.UsageError, match="E-TEXT-LONG"):
        model.rerank("who " * 200, ["a"])


def test_what_cannot_rank(tmp_path):
    checkpoint(tmp_path / "lm")
    with pytest.raises(cc.UsageError, match="take no instruction"):
        models.load(tmp_path / "lm", task="feature-extraction").rerank(QUERY, DOCUMENTS, instruction="Find poems")
    vocabulary = json.loads((tmp_path / "lm" / "tokenizer.json").read_text())
    vocabulary["added_tokens"] = [each for each in vocabulary["added_tokens"] if each["content"] != "yes"]
    (tmp_path / "lm" / "tokenizer.json").write_text(json.dumps(vocabulary))
    with pytest.raises(cc.UnsupportedError, match="E-RANK-TOKENS"):
        models.load(tmp_path / "lm", task="text-ranking")
