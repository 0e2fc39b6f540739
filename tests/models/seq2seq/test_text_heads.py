"""Classes, answers and labeled tokens with BART, mBART and T5, against transformers; from ONNX files too."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.tests.builders.encoder_decoder_cases import BART, T5
from candle_convert.tests.oracles.transformers import Case, difference, made

torch = pytest.importorskip("torch")

BASE = {**BART, "encoder_layers": 1, "decoder_layers": 2, "pad_token_id": 1, "bos_token_id": 0, "num_labels": 3}
TASKS = {
    "ForSequenceClassification": "text-classification",
    "ForQuestionAnswering": "question-answering",
    "ForTokenClassification": "token-classification",
}
CASES = [
    Case(f"{stem}{end}", f"{stem}{end}", {"architectures": [f"{stem}{end}"], "model_type": kind, **config}, BASE)
    for stem, kind, config in (("Bart", "bart", {}), ("MBart", "mbart", {"scale_embedding": True}))
    for end in list(TASKS)[:2]
]
CASES += [
    Case(
        f"{stem}{end}",
        f"{stem}{end}",
        {"architectures": [f"{stem}{end}"], "model_type": stem.lower(), **config},
        {**T5, "num_layers": 1, "num_decoder_layers": 2, "num_labels": 2 if end.endswith("Answering") else 3},
    )
    for stem, config in (
        ("T5", {}),
        ("MT5", {"tie_word_embeddings": False}),
        ("UMT5", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    )
    for end in TASKS
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_as_transformers(case, tmp_path):
    """Texts of several lengths, with end tokens inside them: the last one counts."""
    reference = made(case, 0, tmp_path / "model")
    ids = np.random.default_rng(0).integers(3, 96, (3, 12))
    mask = (np.arange(12) < [[12], [9], [5]]).astype(np.int64)
    for row, length in enumerate(mask.sum(1)):
        ids[row, length - 1] = ids[row, length // 2] = case.base["eos_token_id"]
        ids[row, length:] = case.base["pad_token_id"]
    with torch.no_grad():
        want = reference(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask))
    cc.convert(tmp_path / "model", tmp_path / "onnx", to="onnx")
    for folder in (tmp_path / "model", tmp_path / "onnx"):
        model = models.load(folder, threads=1)
        assert model.task == next(task for end, task in TASKS.items() if case.name.endswith(end))
        found = model(input_ids=ids, attention_mask=mask)
        for name, array in found.items():
            assert difference(array, want[name].numpy()) <= case.tolerance, name
    assert "predict" in model.verbs


def test_generation_with_a_checkpoint_of_another_class(tmp_path):
    """A checkpoint without a language-model head has the embedding for one, as transformers has it."""
    reference = made(CASES[0], 0, tmp_path)
    model = models.load(tmp_path, threads=1, task="text2text-generation")
    ids = np.random.default_rng(0).integers(3, 96, (1, 9))
    hidden = reference.model(input_ids=torch.tensor(ids), decoder_input_ids=torch.tensor(ids)).last_hidden_state
    want = (hidden @ reference.model.shared.weight.T).detach().numpy()
    assert difference(model(ids, decoder_input_ids=ids)["logits"], want) <= CASES[0].tolerance
