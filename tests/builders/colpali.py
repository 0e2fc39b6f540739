"""A tiny ColPali of transformers as a directory: random weights, a tokenizer, a processor and pages."""

import numpy as np
import transformers
from candle_convert.tests.builders.image_checkpoints import randomized
from candle_convert.tests.builders.vision_language import FAMILIES, processor_of, tokenizer_of
from PIL import Image


def colpali_folder(folder):
    """The directory with pages a.png, b.png and c.png; returns the model and the processor in transformers."""
    _, marker, text, vision, keys = FAMILIES["paligemma"]
    tokenizer = tokenizer_of(marker)
    images = processor_of("paligemma", tokenizer).image_processor
    processor = transformers.ColPaliProcessor(images, tokenizer)
    inner = transformers.PaliGemmaConfig(
        text_config={**text, "vocab_size": len(tokenizer)}, vision_config=vision,
        image_token_index=tokenizer.image_token_id, **keys,
    )  # fmt: skip
    inner.image_token_id = tokenizer.image_token_id
    config = transformers.ColPaliConfig(vlm_config=inner, embedding_dim=24)
    model = randomized(transformers.ColPaliForRetrieval._from_config(config, attn_implementation="eager"))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    images.save_pretrained(folder)
    random = np.random.default_rng(0)
    for letter, height, width in (("a", 50, 70), ("b", 61, 40), ("c", 32, 32)):
        small = Image.fromarray(random.integers(0, 256, (5, 7, 3), np.uint8))
        small.resize((width, height), Image.BICUBIC).save(folder / f"{letter}.png")
    return model, processor
