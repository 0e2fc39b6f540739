"""Classes, spans, answers, masks and ranks as transformers' pipelines and sentence-transformers find them."""

import json

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.tests.builders.text_checkpoints import TEXTS, checkpoint, sharpened, write
from candle_convert.tests.oracles.transformers import transformers

TOLERANCE = 1e-4
PAIRS = [
    ("a cat sat on the mat", "the mat is under a cat"),
    ("who is it?", "hello " * 40),
    ("hello " * 20, "bye " * 40),
]
ONE_LABEL = {"id2label": {"0": "relevance"}, "label2id": {"relevance": 0}}
NER = {"id2label": {"0": "O", "1": "B-PER", "2": "I-PER"}, "label2id": {"O": 0, "B-PER": 1, "I-PER": 2}}


def pipeline(task, folder):
    """transformers' pipeline."""
    return transformers().pipeline(task, model=str(folder), device="cpu")


def assert_rows(found, wanted, names):
    """Equal dictionaries, whose keys are called `names` by transformers; scores up to rounding."""
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        for name, other in names.items():
            if name == "score":
                assert ours[name] == pytest.approx(theirs[other], abs=TOLERANCE)
            else:
                assert ours[name] == theirs[other]


@pytest.mark.parametrize("problem", [None, "multi_label_classification", "regression"])
@pytest.mark.parametrize("name", ["BertForSequenceClassification", "RobertaForSequenceClassification"])
def test_text_classification(name, problem, tmp_path):
    checkpoint(name, tmp_path, problem_type=problem)
    model, reference = models.load(tmp_path, threads=1), pipeline("text-classification", tmp_path)
    assert model.verbs == ("predict", "rerank")
    for found, want in zip(model.predict(TEXTS[:4]), reference(TEXTS[:4], top_k=None, truncation=True), strict=True):
        assert_rows(found, want, {"label": "label", "score": "score"})
    for pair in PAIRS:
        want = reference({"text": pair[0], "text_pair": pair[1]}, top_k=2, truncation=True)
        assert_rows(model.predict(pair, top=2), want, {"label": "label", "score": "score"})
        assert model.predict(pair[0], context=pair[1], top=2) == model.predict(pair, top=2)


@pytest.mark.parametrize("name", ["BertForSequenceClassification", "RobertaForSequenceClassification"])
@pytest.mark.parametrize("activation", [None, "torch.nn.modules.linear.Identity"])
def test_rerank(name, activation, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    from safetensors.numpy import load_file, save_file

    own = {} if activation is None else {"sentence_transformers": {"activation_fn": activation}}
    folder = tmp_path / "hf"
    checkpoint(name, folder, **ONE_LABEL, num_labels=1, **own)
    state = load_file(folder / "model.safetensors")
    heads = [key for key in state if key.startswith("classifier") and state[key].shape[0] == 3]
    save_file(state | {key: np.ascontiguousarray(state[key][:1]) for key in heads}, folder / "model.safetensors")
    documents = [*TEXTS, PAIRS[2][1]]
    want = library.CrossEncoder(str(folder), device="cpu").rank(PAIRS[2][0], documents)
    found = models.load(folder, threads=1).rerank(PAIRS[2][0], documents)
    assert_rows(found, want, {"index": "corpus_id", "score": "score"})
    assert [each["text"] for each in found] == [documents[each["index"]] for each in found]
    assert models.load(folder, threads=1).rerank(PAIRS[2][0], documents, top=2) == found[:2]
    if name.startswith("Bert"):
        cc.convert(folder, tmp_path / "m.gguf")
        cc.convert(folder, tmp_path / "network", to="onnx")
        for path in ("m.gguf", "network"):
            again = models.load(tmp_path / path, threads=1).rerank(PAIRS[2][0], TEXTS[:5])
            want = [each for each in found if each["index"] < 5]
            if path == "network":
                assert_rows(again, want, {"index": "index", "score": "score"})
            else:
                assert len(again) == 5


def test_a_reranker_has_one_label(tmp_path):
    checkpoint("BertForSequenceClassification", tmp_path)
    with pytest.raises(cc.UsageError, match="E-MODEL-RERANK"):
        models.load(tmp_path, threads=1).rerank("a", TEXTS)


@pytest.mark.parametrize("name", ["BertForTokenClassification", "RobertaForTokenClassification"])
def test_token_classification(name, tmp_path):
    checkpoint(name, tmp_path, **NER)
    sharpened(tmp_path, 3, "classifier")
    model = models.load(tmp_path, threads=1)
    reference = transformers().pipeline(
        "token-classification", model=str(tmp_path), aggregation_strategy="simple", device="cpu"
    )
    texts = ["the cat sat on a mat, ok?", "berlin is 3 hours away ü", "what?"]
    wanted = reference(texts)
    assert any(wanted)
    for found, want in zip(model.predict(texts), wanted, strict=True):
        names = {"label": "entity_group", "score": "score", "text": "word", "start": "start", "end": "end"}
        assert_rows(found, want, names)
    with pytest.raises(cc.UsageError, match="E-TEXT-LONG"):
        model.predict("cat " * 60)


@pytest.mark.parametrize("name", ["BertForMaskedLM", "RobertaForMaskedLM", "DebertaV2ForMaskedLM"])
def test_fill_mask(name, tmp_path):
    checkpoint(name, tmp_path)
    model, reference = models.load(tmp_path, threads=1), pipeline("fill-mask", tmp_path)
    mask = reference.tokenizer.mask_token
    names = {"token": "token_str", "score": "score", "id": "token", "sequence": "sequence"}
    assert_rows(model.predict(f"the {mask} sat."), reference(f"the {mask} sat."), names)
    two = f"{mask} cat {mask} there."
    for found, want in zip(model.predict(two, top=3), reference(two, top_k=3), strict=True):
        assert_rows(found, want, names)
    with pytest.raises(cc.UsageError, match=r"E-TEXT-MASK.*" + mask.strip("<>[]")):
        model.predict("no mask here")


def answers(folder, question, context, top, no_answer, limit, stride):
    """The answers of transformers 4's pipeline, computed by its definition: every span of every window."""
    import torch

    tokenizer = transformers().AutoTokenizer.from_pretrained(folder)
    model = transformers().AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    windows = tokenizer(
        question, context, truncation="only_second", max_length=limit, stride=stride, return_overflowing_tokens=True
    )
    found, nulls = [], []
    for place in range(len(windows["input_ids"])):
        encoding = windows.encodings[place]
        feeds = {"input_ids": torch.tensor([encoding.ids])}
        if "token_type_ids" in windows:
            feeds["token_type_ids"] = torch.tensor([encoding.type_ids])
        with torch.no_grad():
            outputs = model(**feeds)
        inside = torch.tensor([sequence == 1 for sequence in encoding.sequence_ids])
        inside[0] = True
        start, end = (
            torch.where(inside, logits[0], torch.tensor(-10000.0)).softmax(-1)
            for logits in (outputs.start_logits, outputs.end_logits)
        )
        nulls.append(float(start[0] * end[0]))
        spans = []
        for first in range(1, len(encoding.ids)):
            spans += [
                (float(start[first] * end[last]), first, last)
                for last in range(first, min(first + 15, len(encoding.ids)))
                if encoding.sequence_ids[first] == encoding.sequence_ids[last] == 1
            ]
        for score, first, last in sorted(spans, reverse=True)[: 2 * top + 10]:
            left = encoding.word_to_chars(encoding.token_to_word(first), 1)[0]
            right = encoding.word_to_chars(encoding.token_to_word(last), 1)[1]
            found.append((context[left:right], score))
    merged = {}
    for text, score in found:
        merged[text.lower()] = merged.get(text.lower(), 0) + score
    if no_answer:
        merged[""] = min(nulls)
    return sorted(merged.items(), key=lambda item: -item[1])[:top], len(windows["input_ids"])


@pytest.mark.parametrize("no_answer", [False, True])
@pytest.mark.parametrize("name", ["BertForQuestionAnswering", "RobertaForQuestionAnswering"])
def test_question_answering(name, no_answer, tmp_path):
    checkpoint(name, tmp_path)
    context = "a cat sat on the mat. the hat was there. " * 3
    model = models.load(tmp_path, threads=1)
    limit = 64 if name.startswith("Bert") else 62
    wanted, windows = answers(tmp_path, "who sat?", context, 4, no_answer, limit, limit // 2)
    assert windows > 1
    found = model.predict("who sat?", context=context, top=4, no_answer=no_answer)
    assert [each["answer"].lower() for each in found] == [text for text, _ in wanted]
    np.testing.assert_allclose([each["score"] for each in found], [score for _, score in wanted], atol=TOLERANCE)
    assert all(context[each["start"] : each["end"]] == each["answer"] for each in found)
    assert model.predict(("who sat?", context))[0]["answer"] == next(each["answer"] for each in found)
    with pytest.raises(cc.UsageError, match="E-MODEL-INPUT"):
        model.predict("who sat?")
    with pytest.raises(cc.UsageError, match="E-TEXT-LONG"):
        model.predict("who sat " * 20, context=context)


@pytest.mark.parametrize(
    "name",
    ["BertForTokenClassification", "BertForQuestionAnswering", "BertForMaskedLM", "BertForSequenceClassification"],
)
def test_an_onnx_directory_predicts_the_same(name, tmp_path):
    """Also where the graph lies in a folder ``onnx``, as in repositories of the hub."""
    checkpoint(name, tmp_path / "hf")
    cc.convert(tmp_path / "hf", tmp_path / "network", to="onnx")
    inner = tmp_path / "network" / "onnx"
    inner.mkdir()
    (tmp_path / "network" / "model.onnx").rename(inner / "model.onnx")
    options = {"context": "a cat sat on the mat."} if name.endswith("Answering") else {}
    text = "who is [MASK] there?"
    want = models.load(tmp_path / "hf", threads=1).predict(text, **options)
    for path in (tmp_path / "network", inner / "model.onnx", inner):
        model = models.load(path, threads=1)
        found = model.predict(text, **options)
        assert len(found) == len(want)
        for ours, theirs in zip(found, want, strict=True):
            assert ours == {**theirs, "score": pytest.approx(theirs["score"], abs=1e-5)}


def test_labels_that_do_not_fit_are_refused(tmp_path):
    checkpoint("BertForSequenceClassification", tmp_path)
    cc.convert(tmp_path, tmp_path / "network", to="onnx")
    said = json.loads((tmp_path / "network" / "config.json").read_text())
    write(tmp_path / "network" / "config.json", said | {"id2label": {"0": "a"}, "label2id": {"a": 0}})
    with pytest.raises(cc.FormatError, match="E-MODEL-LABELS"):
        models.load(tmp_path / "network", threads=1).predict("a")


def test_classes_of_ones_own(tmp_path):
    """As the zero-shot pipeline of transformers, with several classes and with one."""
    labels = ["contradiction", "neutral", "entailment"]
    names = {str(place): label for place, label in enumerate(labels)}
    own = {"id2label": names, "label2id": {label: int(place) for place, label in names.items()}}
    checkpoint("BertForSequenceClassification", tmp_path, **own)
    sharpened(tmp_path, 3, "classifier")
    reference = transformers().pipeline("zero-shot-classification", model=str(tmp_path), device="cpu")
    model = models.load(tmp_path, threads=1)
    texts = ["the cat sat on a mat", "berlin is 3 hours away"]
    for classes in (["the cat", "hours", "a mat"], ["hours"]):
        for found, text in zip(model.predict(texts, classes=classes), texts, strict=True):
            want = reference(text, classes)
            assert [each["label"] for each in found] == want["labels"]
            np.testing.assert_allclose([each["score"] for each in found], want["scores"], rtol=1e-4)
    assert model.predict(texts[0], classes="the cat, hours") == model.predict(texts[0], classes=["the cat", "hours"])
    with pytest.raises(cc.UsageError, match="E-OPTION"):
        model.predict(("a", "b"), classes=["x", "y"])


def test_classes_need_a_model_of_inference(tmp_path):
    checkpoint("BertForSequenceClassification", tmp_path)
    with pytest.raises(cc.UsageError, match="E-MODEL-LABELS"):
        models.load(tmp_path, threads=1).predict("a cat", classes="x,y")
