"""Configurations of text encoders that transformers builds, as hub repositories have them, and inputs for them."""

import numpy as np
from candle_convert.tests.oracles.transformers import BASE, Case

LABELS = {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}
DEBERTA = {
    "layer_norm_eps": 1e-7,
    "relative_attention": True,
    "position_buckets": 16,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
    "type_vocab_size": 0,
}
FAMILIES = {
    "Bert": ("bert", {"type_vocab_size": 2}),
    "Roberta": ("roberta", {"type_vocab_size": 1, "pad_token_id": 1}),
    "XLMRoberta": ("xlm-roberta", {"type_vocab_size": 1, "pad_token_id": 1}),
    "DistilBert": ("distilbert", {"dim": 64, "hidden_dim": 96, "n_layers": 2, "n_heads": 4}),
    "Electra": ("electra", {"embedding_size": 32, "type_vocab_size": 2}),
    "Albert": ("albert", {"type_vocab_size": 2, "embedding_size": 32, "num_hidden_layers": 4, "num_hidden_groups": 2}),
    "MPNet": ("mpnet", {"pad_token_id": 1, "relative_attention_num_buckets": 32}),
    "DebertaV2": ("deberta-v2", DEBERTA),
    "ModernBert": ("modernbert", {"global_attn_every_n_layers": 2, "local_attention": 8}),
}
HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
LACKING = {"ModernBertForQuestionAnswering"}
"""Classes without a task of ours."""
ENCODERS = [
    Case(family + head, family + head, {"architectures": [family + head], "model_type": kind, **config, **(
         LABELS if head.endswith("Classification") else {})}, {**BASE, "num_hidden_layers": 2})
    for family, (kind, config) in FAMILIES.items() for head in HEADS if family + head not in LACKING
]  # fmt: skip
ENCODERS += [
    Case(name, cls, {"architectures": [cls], "model_type": kind, **config}, {**BASE, "num_hidden_layers": 2})
    for name, cls, kind, config in [
        ("deberta_v2_conv", "DebertaV2Model", "deberta-v2",
         {**DEBERTA, "share_att_key": False, "conv_kernel_size": 3, "conv_act": "gelu"}),
        ("deberta_absolute", "DebertaV2Model", "deberta-v2", {"type_vocab_size": 2}),
        ("modernbert_mean", "ModernBertForSequenceClassification", "modernbert",
         {**LABELS, "classifier_pooling": "mean", "classifier_activation": "silu", "local_attention": 6}),
        ("nomic_bert", "NomicBertModel", "nomic_bert",
         {"type_vocab_size": 2, "hidden_act": "silu",
          "rope_parameters": {"rope_theta": 1000.0, "rope_type": "default"}}),
        ("eurobert", "EuroBertModel", "eurobert", {"rope_theta": 250000.0}),
        ("jina_embeddings_v3", "JinaEmbeddingsV3Model", "jina_embeddings_v3",
         {"type_vocab_size": 1, "pad_token_id": 1, "rope_parameters": {"rope_theta": 20000.0, "rope_type": "default"}}),
        ("clip_text", "CLIPTextModel", "clip_text_model", {"eos_token_id": (95, 2)}),
        ("clip_text_projection", "CLIPTextModelWithProjection", "clip_text_model",
         {"eos_token_id": 95, "projection_dim": 40, "hidden_act": ("gelu", "quick_gelu")}),
        ("siglip_text", "SiglipTextModel", "siglip_text_model", {"projection_size": (64, 48)}),
    ]
]  # fmt: skip


def inputs(case, seed, length=13):
    """Two calls: one text without a mask, and texts of several lengths with padding and, where the model tells them
    apart, segments."""
    rng = np.random.default_rng(seed)
    pad = case.config.get("pad_token_id", case.base["pad_token_id"])
    ids = rng.integers(3, case.base["vocab_size"], (3, length))
    mask = (np.arange(length) < np.array([[length], [length - 3], [4]])).astype(np.int64)
    batch = {"input_ids": np.where(mask, ids, pad), "attention_mask": mask}
    if case.config.get("type_vocab_size", 0) > 1:
        batch["token_type_ids"] = (np.arange(length) >= 5) * mask
    return {"single": {"input_ids": rng.integers(3, case.base["vocab_size"], (1, 40))}, "padded": batch}
