"""BART (Lewis et al. 2019, arXiv:1910.13461) and its relatives: mBART, Marian, M2M-100, NLLB and Pegasus.

All are the transformer of Vaswani et al. 2017 (arXiv:1706.03762). They differ in the positions, in where norms stand,
and in what is added to embeddings and logits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...runtime.contract.architecture import Architecture, Config, Key, Row, Task, Weight
from ...runtime.contract.hyperparameter import COUNT, SIZE, flag
from ...runtime.tensor.stored_tensor import StoredTensor
from ..schema.hyperparameters import LAYERS, OWN_HEAD_DIM, Vocabulary, act
from .tasks import encoder_decoder_task, encoder_task
from .text_heads import head_rows, head_tasks
from .transformer import (
    OFFSET,
    POSITIONS,
    POST_NORM,
    Family,
    SameHeads,
    fairseq_sinusoids,
    head_weights,
    layer_weights,
    norm_weights,
)


def rows(start: int, pad: int, activation: str = "gelu") -> tuple[Row, ...]:
    """The hyper-parameters. The arguments are defaults: the ids of the decoder's first token and of padding, and the
    activation."""
    return (
        Vocabulary(),
        Key("positions", "max_position_embeddings", (), 1024, POSITIONS),
        Key("hidden", "d_model", (), kind=COUNT),
        Key("layers", "encoder_layers", (), kind=LAYERS),
        Key("decoder_layers", "decoder_layers", (), kind=LAYERS),
        Key("heads", "encoder_attention_heads", (), kind=COUNT),
        OWN_HEAD_DIM,
        SameHeads(),
        Key("intermediate", "encoder_ffn_dim", (), kind=COUNT),
        Key("decoder_intermediate", "decoder_ffn_dim", (), kind=COUNT),
        act(activation, "activation_function"),
        Key("scaled", "scale_embedding", (), False, flag),
        Key("shared", "share_encoder_decoder_embeddings", (), True, flag),
        Key("decoder_vocab", "decoder_vocab_size", (), lambda config: config.vocab, COUNT),
        Key("tied", "tie_word_embeddings", (), True, flag),
        Key("pad", "pad_token_id", (), pad, SIZE, at_most=("vocab",)),
        Key("decoder_start", "decoder_start_token_id", (), start, SIZE, at_most=("decoder_vocab",)),
        Key("learned_rows", (), (), lambda config: config.positions + OFFSET),
        Key("padded_rows", (), (), lambda config: config.positions + config.pad + 1),
    )


TOKENS = "embed_tokens.weight"
WEIGHTS = (
    Weight(
        "embed.weight",
        ("model.shared.weight", f"model.encoder.{TOKENS}", f"model.decoder.{TOKENS}"),
        shape=("vocab", "hidden"),
    ),
    *layer_weights("encoder", "layers", "intermediate"),
    *layer_weights("decoder", "decoder_layers", "decoder_intermediate"),
    Weight(
        "encoder.embed.weight",
        f"model.encoder.{TOKENS}",
        shape=("vocab", "hidden"),
        optional=True,
        repeats="embed.weight",
    ),
    Weight(
        "decoder.embed.weight",
        f"model.decoder.{TOKENS}",
        shape=("decoder_vocab", "hidden"),
        when=lambda config, i: not config.shared,
    ),
    Weight(
        "decoder.embed.weight",
        f"model.decoder.{TOKENS}",
        shape=("vocab", "hidden"),
        when=lambda config, i: bool(config.shared),
        optional=True,
        repeats="embed.weight",
    ),
    *head_weights("lm_head.weight", "decoder_vocab"),
    Weight("logits.bias", "final_logits_bias", shape=(1, "decoder_vocab"), optional=True),
)
EMBED_NORM = norm_weights("layernorm_embedding", "embed_norm")
LAST_NORM = norm_weights("layer_norm", "norm")


def sinusoids(config: Config) -> np.ndarray:
    """Sines, then cosines, of the positions, f32 [positions, hidden] (Marian, Pegasus)."""
    rates = 10000.0 ** (-2 * np.arange(-(-config.hidden // 2)) / config.hidden)
    angles = np.arange(config.positions)[:, None] * rates
    found: np.ndarray = np.concatenate([np.sin(angles), np.cos(angles)[:, : config.hidden // 2]], 1).astype(np.float32)
    return found


def position_weights(
    rows: str, compute: Callable[[Config], np.ndarray] | None = None, *, stored: bool = True
) -> tuple[Weight, ...]:
    """Bindings of the positions of encoder and decoder, [`rows`, hidden].

    Args:
        compute: makes them for files without them.
        stored: whether files may have them.
    """

    def table(config: Config) -> StoredTensor | None:
        return None if compute is None else StoredTensor.of(compute(config))

    return tuple(
        Weight(
            f"{side}.positions.weight",
            f"model.{side}.embed_positions.weight" if stored else (),
            shape=(rows, "hidden"),
            optional=compute is not None,
            compute=table,
        )
        for side in ("encoder", "decoder")
    )


LEARNED, SINUSOIDS = position_weights("learned_rows"), position_weights("positions", sinusoids)
FAIRSEQ_SINUSOIDS = position_weights("padded_rows", fairseq_sinusoids, stored=False)


def architecture(
    name: str,
    title: str,
    family: Family,
    keys: tuple[Row, ...],
    further: tuple[Weight, ...],
    heads: tuple[Task, ...] = (),
    defaults: Mapping[str, Any] | None = None,
) -> Architecture:
    """One model; `further`: rows of weights that not all models have, `heads`: tasks of its own, `defaults`: as of
    `Architecture` for its `model_type`."""
    return Architecture(
        name,
        title,
        (name,),
        (),
        keys,
        (*WEIGHTS, *further),
        (
            encoder_decoder_task(family.encode, family.decode),
            encoder_task(family.encode, ("decoder.", "head.")),
            *heads,
        ),
        prefixes=("model.",),
        ignored=(
            r"embed_tokens\.weight$",
            r"embed_positions\.weights?$",
            r"^lm_head\.weight$",
            r"^(model\.)?(en|de)coder\.version$",
        ),
        tied=True,
        defaults={name: defaults or {}},
    )


PLAIN, MULTILINGUAL = POST_NORM, Family(pre_norm=True, offset=OFFSET)
ARCHITECTURES = (
    architecture(
        "bart",
        "BART",
        PLAIN,
        (*rows(2, 1), *head_rows(2)),
        (*LEARNED, *EMBED_NORM),
        head_tasks(PLAIN.encode, PLAIN.decoded),
    ),
    architecture(
        "mbart",
        "mBART",
        MULTILINGUAL,
        (*rows(2, 1), *head_rows(2)),
        (*LEARNED, *EMBED_NORM, *LAST_NORM),
        head_tasks(MULTILINGUAL.encode, MULTILINGUAL.decoded, wraps=True),
    ),
    architecture("marian", "Marian", Family(pre_norm=False), rows(58100, 58100), SINUSOIDS),
    architecture(
        "m2m_100",
        "M2M-100, NLLB",
        Family(pre_norm=True, padded=True),
        rows(2, 1, "relu"),
        (*FAIRSEQ_SINUSOIDS, *LAST_NORM),
        defaults={"scale_embedding": True},
    ),
    architecture("pegasus", "Pegasus", Family(pre_norm=True), rows(0, 0), (*SINUSOIDS, *LAST_NORM)),
)
