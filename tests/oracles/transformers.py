"""Tiny checkpoints that transformers builds and runs: the oracle of the model library."""

import functools
import json
import random
from dataclasses import dataclass, field

import numpy as np
import pytest

BASE = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


@dataclass(frozen=True)
class Case:
    """A model class of transformers and a configuration as hub repositories have them; tuples are choices of the seed.

    Attributes:
        long: length of a text past its window or trained context.
        tolerance: of the largest difference, relative to the largest value.
        padded: whether padding is defined in the reference.
        attention: which of transformers' implementations is right.
    """

    name: str
    cls: str
    config: dict
    base: dict = field(default_factory=lambda: BASE)
    long: int = 40
    tolerance: float = 3e-5
    padded: bool = True
    attention: str = "eager"


def cases(cls, model_type, **rows):
    """Cases of one class: each row is what its configuration adds."""
    return [
        Case(name, cls, {"architectures": [cls], "model_type": model_type, **config}) for name, config in rows.items()
    ]


@functools.cache
def transformers():
    library = pytest.importorskip("transformers")
    library.logging.set_verbosity_error()
    return library


def made(case, seed, folder, saved=False):
    """Write a checkpoint with random weights that all show in the output; the model as transformers reads it back.
    `saved`: config.json is what transformers saves, not the configuration of the case."""
    import torch

    rng = random.Random(f"{case.name}/{seed}")
    config = {
        key: rng.choice(value) if isinstance(value, tuple) else value
        for key, value in {**case.base, **case.config}.items()
    }
    cls = getattr(transformers(), case.cls)
    torch.manual_seed(seed)
    model = cls(cls.config_class.from_dict(json.loads(json.dumps(config)))).float().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(noise * (0.5 if "embed" in name else 1.2 / parameter.shape[-1] ** 0.5))
            elif "bias" in name or float(parameter.abs().max()) == 0:
                parameter.copy_(0.1 * noise)
            else:
                parameter.mul_(1 + 0.2 * noise)
    model.save_pretrained(folder)
    if not saved:
        (folder / "config.json").write_text(json.dumps(config))
    return cls.from_pretrained(folder, dtype=torch.float32, attn_implementation=case.attention).eval()


def stored_ties(cls, source, folder):
    """Write a checkpoint again with values of its own for every weight that config.json ties to another; the model as
    transformers reads it, which computes with these, and the names of the weights."""
    import torch

    model = cls.from_pretrained(source, dtype=torch.float32)
    names = sorted(model.all_tied_weights_keys)
    generator = torch.Generator().manual_seed(5)
    for name in names:
        module, _, part = name.rpartition(".")
        shape = model.get_parameter(name).shape
        values = torch.randn(shape, generator=generator) * (0.5 if len(shape) > 1 else 0.2)
        setattr(model.get_submodule(module), part, torch.nn.Parameter(values))
    model.all_tied_weights_keys = {}  # it would store one of each pair
    model.save_pretrained(folder)
    (folder / "config.json").write_text((source / "config.json").read_text())
    again = cls.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    return again, names


def texts(case, seed, model):
    """Inputs of each variant: name -> (ids, mask or None)."""
    rng = np.random.default_rng(seed)
    vocabulary = model.config.vocab_size
    batch = rng.integers(3, vocabulary, (3, 13))
    left = np.ones((3, 13), np.int64)
    left[1, :3] = left[2, :6] = 0
    found = {
        "single": (rng.integers(3, vocabulary, (1, 9)), None),
        "long": (rng.integers(3, vocabulary, (1, case.long)), None),
    }
    return found | (
        {"left padding": (batch, left), "right padding": (batch, left[:, ::-1].copy())} if case.padded else {}
    )


def expected(model, ids, mask):
    """What transformers gives, zero where the mask is."""
    import torch

    given = (
        {}
        if mask is None
        else {"attention_mask": torch.tensor(mask), "position_ids": torch.tensor(np.maximum(mask.cumsum(1) - 1, 0))}
    )
    with torch.no_grad():
        logits = model(input_ids=torch.tensor(ids), use_cache=False, **given).logits.numpy()
    return logits if mask is None or logits.ndim < 3 else logits * mask[..., None]


def converted(model, names):
    """The same model from files with other names."""
    from candle_convert.convert.load.bind import Model
    from candle_convert.runtime.contract.architecture import GGUF
    from candle_convert.runtime.contract.weight_binding import bind, config_from, config_keys, find_architecture, unbind

    stated = config_keys(model.architecture, names, model.config)
    kind = (
        {"general.architecture": model.architecture.gguf[0]}
        if names == GGUF
        else {
            "model_type": model.architecture.model_types[0],
            "tie_word_embeddings": "head.weight" not in model.weights,
        }
    )
    said = kind | stated
    architecture = find_architecture(names, said)
    assert architecture is model.architecture
    config = config_from(architecture, names, said)
    weights = bind(architecture, config, unbind(model.architecture, model.config, model.weights, names), names)
    return Model(architecture, names, config, weights, model.source)


def difference(got, want, mask=None):
    """The largest difference where the mask is, relative to the largest value."""
    got = got if mask is None else got * mask[..., None]
    return np.abs(got - want).max() / np.abs(want).max()
