"""Names of transformers' tokenizer classes, and which of them give the segments of tokens."""

from __future__ import annotations

from ...models.tokenizer.readers.locate import class_of, companion_files
from ...runtime.ir.graph import Graph

AUTO = "AutoTokenizer"
WITH_SEGMENTS = (
    "BertTokenizer", "CanineTokenizer", "ConvBertTokenizer", "DebertaTokenizer", "DebertaV2Tokenizer", "FNetTokenizer",
    "MobileBertTokenizer", "SqueezeBertTokenizer",
)  # fmt: skip
"""Classes whose encodings have ``token_type_ids``."""
WITHOUT_SEGMENTS = (
    "AlbertTokenizer", "BartTokenizer", "BigBirdTokenizer", "BlenderbotTokenizer", "CLIPTokenizer",
    "CamembertTokenizer", "CodeGenTokenizer", "CodeLlamaTokenizer", "CohereTokenizer", "DistilBertTokenizer",
    "ElectraTokenizer", "GPT2Tokenizer", "GPTNeoXTokenizer", "GemmaTokenizer", "LayoutLMTokenizer",
    "LlamaTokenizer", "M2M100Tokenizer", "MBartTokenizer", "MPNetTokenizer", "MarianTokenizer", "NllbTokenizer",
    "PegasusTokenizer", "PreTrainedTokenizer", "Qwen2Tokenizer", "Qwen3_5Tokenizer", "RobertaTokenizer",
    "SiglipTokenizer", "T5Tokenizer", "WhisperTokenizer", "XGLMTokenizer", "XLMRobertaTokenizer",
)  # fmt: skip
"""Other classes."""
TYPES_WITH_SEGMENTS = (
    "align", "bert", "blip", "bros", "chinese_clip", "convbert", "deberta", "deberta-v2", "distilbert", "electra",
    "ernie", "git", "layoutlm", "nomic_bert", "squeezebert",
)  # fmt: skip
"""Model types whose tokenizer is of one of these classes, if their files do not name a class."""
FAST = "Fast"


def is_tokenizer(name: str) -> bool:
    """Whether a name is that of a class of tokenizers."""
    plain = name.removesuffix(FAST)
    return plain == AUTO or plain in WITH_SEGMENTS or plain in WITHOUT_SEGMENTS


def tokenizer_names() -> list[str]:
    """All names, without those that end with ``Fast``."""
    return sorted([AUTO, *WITH_SEGMENTS, *WITHOUT_SEGMENTS])


def gives_segments(name: str, graph: Graph) -> bool:
    """Whether encodings have ``token_type_ids``: as tokenizer_config.json says, else the class or the files' class.

    Args:
        name: of the class.
    """
    companions = companion_files(graph)
    stated = companions.config.get("model_input_names")
    if isinstance(stated, list):
        return "token_type_ids" in stated
    plain = name.removesuffix(FAST)
    if plain != AUTO:
        return plain in WITH_SEGMENTS
    found = class_of(graph)
    return found in WITH_SEGMENTS if found else companions.model.get("model_type") in TYPES_WITH_SEGMENTS
