"""Parts of the models that tests convert and then use: sizes, and files of sentence encoders and of CTC models."""

import json

import transformers

LABELS = 1000
VIT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
TOKENS = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ETAONIHSRDLUMWCFGYPBVKXJQZ'"]


def add_sentence_modules(folder):
    """Modules of sentence-transformers in folders of their own: the first token's vector, normalized."""
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (path, kind) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 64, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


def add_letters(folder):
    """Vocabulary, tokenizer and feature extractor of a CTC model."""
    (folder / "vocab.json").write_text(json.dumps({token: at for at, token in enumerate(TOKENS)}))
    transformers.Wav2Vec2CTCTokenizer(folder / "vocab.json").save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor(do_normalize=True).save_pretrained(folder)
