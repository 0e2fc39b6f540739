"""Mixes of llama.cpp's file types: a list of rules for each, generated from one table.

A row says for which tensors, under which condition, which file types choose which type; where a row's type is None, the
base type. Rows are in order of precedence, since the first rule that matches decides. Source: the choice of tensor
types in llama-quant.cpp of llama.cpp.
"""

from __future__ import annotations

from ....runtime.base.dataclass import dataclass
from ....runtime.base.process_cache import process_cache
from ....runtime.tensor.dtype import DTYPES
from ...translate.gguf_file_type import BY_NAME, FILE_TYPES, FileType
from .rule import Recipe, Rule

OUTPUT = r"^output\.weight$"
EMBEDDING = r"^(per_layer_)?token_embd\.weight$"
VALUE = r"attn_(v|qkv|kv_b)\.weight"
KEY = r"attn_k\.weight"
QUERY = r"attn_q\.weight"
ATTENTION_OUTPUT = r"attn_output\.weight"
UP = r"ffn_up"
GATE = r"ffn_gate(?!.*ffn_up)"
DOWN = r"ffn_down"
ANY = r""

LARGE = (
    "(n == 80 and (arch in ('qwen2', 'deci', 'olmo') or arch in ('llama', 'llama-embed') and experts != 8 and gqa > 1)"
    " or n == 68 and arch == 'jais2')"
)
"""Models that llama.cpp takes for one of 70 billion parameters, where eight heads share a value matrix."""
FEW_BITS = ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m")


def more_bits(place: str, count: str) -> str:
    """The first and last eighth of the layers, and every third between them."""
    return f"({place} < {count}//8 or {place} >= 7*{count}//8 or ({place} - {count}//8) % 3 == 2)"


FIRST_EIGHTH = "depth < n//8"
FIRST_SIXTEENTH = "depth < n//16"
MORE_DOWN = more_bits("depth", "n")
MORE_VALUE = more_bits("index", "count")
MIDDLE = "n//8 <= depth < 7*n//8"


@dataclass(frozen=True)
class Row:
    """One line of the table: file types, each with the type it takes here."""

    match: str
    when: str
    types: dict[str, str]


def _all(names: str, dtype: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), dtype)


QUANTIZED = " ".join(each.name for each in FILE_TYPES if each.listed and each.base not in ("f32", "f16", "bf16"))
MOST = " ".join(name for name in QUANTIZED.split() if name not in (*FEW_BITS, "mxfp4_moe"))

_HEAD = (
    ("", {"mxfp4_moe": "q8_0"}),
    ("arch == 'falcon' or columns % block != 0", _all(QUANTIZED, "q8_0")),
    ("", _all("iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq2_m iq3_xxs", "q5_k")),
    ("", {"q8_0": "q8_0"}),
    ("", _all(QUANTIZED, "q6_k")),
)
"""The matrix that computes the logits: output.weight, or the embedding without one."""

ROWS = (
    Row(r"attn_q_[ab]|nextn\.eh_proj", "arch == 'glm5-next'", _all(QUANTIZED, "q8_0")),
    *(Row(OUTPUT, when, types) for when, types in _HEAD),
    *(Row(EMBEDDING, f"tied and ({when})" if when else "tied", types) for when, types in _HEAD),
    Row(ANY, "matrices > 1 and arch != 'bailingmoe3'", {"mxfp4_moe": "mxfp4"}),
    Row(r"ffn_(up|gate|down)", "matrices > 1", {"mxfp4_moe": "mxfp4"}),
    Row(ANY, "", {"mxfp4_moe": "q8_0"}),
    Row(EMBEDDING, "", _all("iq1_s iq1_m iq2_xxs iq2_xs", "q2_k")),
    Row(EMBEDDING, "", _all("iq2_s iq2_m iq3_xxs", "iq3_s")),
    Row(EMBEDDING, "", _all("tq1_0 tq2_0 q2_0", "q4_k")),
    Row(VALUE, "gqa >= 4 or experts >= 4", _all("iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq2_m", "q4_k")),
    Row(VALUE, "", {**_all("iq2_s iq2_m", "iq3_s"), **_all("iq1_s iq1_m iq2_xxs iq2_xs", "q2_k")}),
    Row(VALUE, "experts == 8", _all(MOST, "q8_0")),
    Row(VALUE, "gqa >= 4", {**_all("q2_k q2_k_s iq3_xxs iq3_xs iq3_s", "q4_k"), **_all("iq4_nl iq4_xs", "q5_k")}),
    Row(VALUE, "not imatrix", {"iq3_xxs": "iq3_s"}),
    Row(VALUE, "index < 2", {"q3_k_m": "q5_k"}),
    Row(VALUE, MORE_VALUE, _all("q4_k_m q5_k_m", "q6_k")),
    Row(VALUE, "index < 4", {"q4_k_s": "q5_k"}),
    Row(VALUE, "", {"q2_k": "q3_k", **_all("q3_k_m iq3_m", "q4_k"), "q3_k_l": "q5_k"}),
    Row(VALUE, "", _all("q3_k_s q4_k_s q4_k_m", "base")),
    Row(KEY, "experts == 8", {**_all(" ".join(FEW_BITS), "q4_k"), **_all(MOST, "q8_0")}),
    Row(KEY, "", {"iq3_xs": "iq3_xxs", "iq3_xxs": "iq2_s"}),
    Row(QUERY, "", {"iq3_xs": "iq3_xxs", "iq3_xxs": "iq2_s"}),
    Row(DOWN, "index < n//8", {**_all("iq1_s iq1_m iq2_xxs iq2_xs", "q2_k"), **_all("iq2_s iq2_m", "iq3_s")}),
    Row(DOWN, f"{FIRST_EIGHTH} and not imatrix", {"iq3_xxs": "q4_k", **_all("iq4_nl iq4_xs", "q5_k")}),
    Row(DOWN, f"{FIRST_EIGHTH} and imatrix", {"q4_0": "q4_1", "q5_0": "q5_1"}),
    Row(DOWN, "not imatrix", {"iq3_xxs": "q3_k"}),
    Row(DOWN, FIRST_EIGHTH, _all("q2_k_s iq3_m", "q4_k")),
    Row(DOWN, f"experts == 8 and {MORE_DOWN}", {"iq3_m": "q4_k"}),
    Row(DOWN, f"{FIRST_EIGHTH} and arch != 'falcon'", {"q4_k_s": "q5_k"}),
    Row(DOWN, FIRST_SIXTEENTH, {"q3_k_m": "q5_k"}),
    Row(DOWN, f"arch != 'falcon' or {MORE_DOWN}", {"q3_k_m": "q4_k"}),
    Row(DOWN, "arch == 'falcon'", {"q3_k_l": "q4_k"}),
    Row(DOWN, f"arch == 'falcon' and {FIRST_SIXTEENTH}", {"q4_k_m": "q6_k"}),
    Row(DOWN, f"arch == 'falcon' and {MORE_DOWN}", {"q4_k_m": "q5_k"}),
    Row(DOWN, f"arch != 'falcon' and {MORE_DOWN}", {"q4_k_m": "q6_k"}),
    Row(DOWN, MORE_DOWN, {"q5_k_m": "q6_k"}),
    Row(DOWN, "", {"q2_k": "q3_k", "q3_k_l": "q5_k"}),
    Row(ATTENTION_OUTPUT, "experts == 8", _all(" ".join(FEW_BITS), "q5_k")),
    Row(ATTENTION_OUTPUT, "", {**_all("iq1_s iq1_m", "iq2_xxs"), **_all("iq2_s iq2_m", "iq3_s")}),
    Row(ATTENTION_OUTPUT, "arch == 'falcon'", {"q3_k_l": "q4_k", **_all("q2_k iq3_xxs q3_k_m iq3_m", "base")}),
    Row(
        ATTENTION_OUTPUT,
        "experts == 8 and arch != 'falcon'",
        _all("q2_k iq3_xs iq3_xxs q3_k_s q3_k_m iq4_nl q4_k_s q4_k_m iq3_s iq3_m iq4_xs", "q5_k"),
    ),
    Row(
        ATTENTION_OUTPUT,
        "experts != 8",
        {"q2_k": "q3_k", "iq3_xxs": "iq3_s", **_all("q3_k_m iq3_m", "q4_k"), "q3_k_l": "q5_k"},
    ),
    Row(GATE, MIDDLE, {"iq3_xs": "iq3_xxs"}),
    Row(UP, MIDDLE, {"iq3_xs": "iq3_xxs"}),
)
"""The table. "base" is the file type's base type, said where a later row must not decide."""

FALLBACKS = {
    **dict.fromkeys(("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_xs"), "iq4_nl"),
    **dict.fromkeys(("q2_0", "q2_k", "q3_k", "tq1_0", "tq2_0"), "q4_0"),
    "q4_k": "q5_0",
    "q5_k": "q5_1",
    "q6_k": "q8_0",
}
"""Fallback type of a tensor whose rows are not a multiple of the block size; f16 if that does not fit either."""


@process_cache
def mix(file_type: FileType) -> Recipe:
    """The recipe of a file type."""
    rules = [rule for row in ROWS for rule in _rules(row, file_type)]
    return Recipe(file_type.name, DTYPES[file_type.base], tuple(rules), file_type=file_type.number)


def mix_named(name: str) -> Recipe:
    """The recipe of the file type with that name."""
    return mix(BY_NAME[name])


def _rules(row: Row, file_type: FileType) -> list[Rule]:
    """The row's rules for one file type, with the exception for large models before each."""
    chosen = row.types.get(file_type.name)
    if chosen is None:
        return []
    dtype = file_type.base if chosen == "base" else chosen
    rules = [Rule(row.match, dtype, row.when)]
    if row.match == VALUE and dtype in ("q3_k", "q4_k") and file_type.name not in FEW_BITS:
        rules.insert(0, Rule(VALUE, "q5_k", f"{row.when} and {LARGE}" if row.when else LARGE))
    return rules
