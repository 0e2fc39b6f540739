"""The runners of models that make sound of a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .....runtime.contract.architecture import MODEL, RunOptions
from .....runtime.ir.graph import Graph

if TYPE_CHECKING:
    from .codebook_model import CodebookModel
    from .csm_model import CSMModel
    from .metavoice_model import MetaVoiceModel
    from .metavoice_stages import FirstStage, SecondStage
    from .parler_tts_model import ParlerTTSModel


def run_codebook_model(graphs: Mapping[str, Graph], options: RunOptions) -> CodebookModel:
    """The graphs of MusicGen as one model."""
    from .codebook_model import CodebookModel

    return CodebookModel(graphs, options)


def run_parler_tts(graphs: Mapping[str, Graph], options: RunOptions) -> ParlerTTSModel:
    """The graphs of Parler-TTS as one model."""
    from .parler_tts_model import ParlerTTSModel

    return ParlerTTSModel(graphs, options)


def run_csm(graphs: Mapping[str, Graph], options: RunOptions) -> CSMModel:
    """The graphs of CSM as one model."""
    from .csm_model import CSMModel

    return CSMModel(graphs, options)


def run_first_stage(graphs: Mapping[str, Graph], options: RunOptions) -> FirstStage:
    """The graph of MetaVoice's first stage."""
    from .metavoice_stages import FirstStage

    return FirstStage(graphs[MODEL], options)


def run_second_stage(graphs: Mapping[str, Graph], options: RunOptions) -> SecondStage:
    """The graph of MetaVoice's second stage."""
    from .metavoice_stages import SecondStage

    return SecondStage(graphs[MODEL], options)


def run_metavoice(parts: Mapping[str, Any], options: RunOptions) -> MetaVoiceModel:
    """The loaded parts of MetaVoice as one model."""
    from .metavoice_model import MetaVoiceModel

    return MetaVoiceModel(parts, options)


def metavoice_files(folder: Graph) -> dict[str, Any]:
    """The tokens of text, which only the checkpoint of the first stage holds, as a file of their own."""
    from .metavoice_tokens import tokens_beside

    return tokens_beside(folder)
