"""Models of transformers with random weights, by the names of their classes."""

import torch
import transformers

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99}
DECODER = {**SIZES, "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2}
VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
VISION |= {"image_size": 32, "patch_size": 8}
GPT2 = {
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "vocab_size": 99,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
DISTIL = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 99}
DEBERTA = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}
CASES = {
    "BertModel": SIZES,
    "BertForSequenceClassification": SIZES,
    "BertForMaskedLM": SIZES,
    "BertForTokenClassification": SIZES,
    "BertForQuestionAnswering": SIZES,
    "RobertaForSequenceClassification": {**SIZES, "pad_token_id": 1},
    "DistilBertForSequenceClassification": DISTIL,
    "DebertaV2ForSequenceClassification": {**SIZES, **DEBERTA, "norm_rel_ebd": "layer_norm", "share_att_key": True},
    "LlamaModel": DECODER,
    "LlamaForCausalLM": DECODER,
    "Qwen2ForCausalLM": DECODER,
    "Gemma3ForCausalLM": {**DECODER, "head_dim": 8, "sliding_window": 4},
    "GPT2LMHeadModel": GPT2,
    "ViTForImageClassification": VISION,
    "ConvNextForImageClassification": {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2},
}
OFF = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "attention_dropout",
    "dropout",
    "resid_pdrop",
    "embd_pdrop",
)
OFF += ("attn_pdrop", "seq_classif_dropout")


def reference(name, folder, **settings):
    """A model of transformers with random weights, in `folder`."""
    kind = getattr(transformers, name)
    config = kind.config_class(**{**CASES[name], **settings})
    for key in OFF if not settings else ():
        if hasattr(config, key):
            setattr(config, key, 0.0)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = kind(config).eval()
    for parameter in model.parameters():
        parameter.data += 0.02 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return model
