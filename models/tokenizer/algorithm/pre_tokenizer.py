r"""Pre-tokenizers: patterns that split text into words, by ``tokenizer.ggml.pre`` of GGUF files.

A file means what llama.cpp makes of it, so these are its patterns, in which the cases of letters outside ASCII are one
class.

Source: llama.cpp's llm_tokenizer_bpe and llama_vocab::impl::load.
"""

from __future__ import annotations

from dataclasses import replace

from ....runtime.base.dataclass import dataclass
from .regex_split import FROM_THE_RIGHT, HAN, words

CONTRACTIONS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
ENDS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
LLAMA3 = rf"{CONTRACTIONS}|{WORD}|\p{{N}}{{1,3}}|{SYMBOLS}|{ENDS}"
QWEN2 = rf"{CONTRACTIONS}|{WORD}|\p{{N}}|{SYMBOLS}|{ENDS}"
QWEN35 = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{ENDS}"
SLASHED = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{ENDS}"
MARKED = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
DEEPSEEK3 = rf"{MARKED}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{ENDS}"
SPARK = rf"{MARKED}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+"
CASCADE = "|".join(
    [*(rf"\s{{{count}}}(?!\S)" for count in (512, 256, 128, 64, 32, 16, 8, 4)), r"\s{1,2}(?!\S)", r"\s{1}"]
)
KANA = r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
CJK = r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
NEWLINES = r"[^\n]+|[\n]+"
CAMEL = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]*[\p{{L}}\p{{M}}]+{CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+{CONTRACTIONS}?"
)
EUROPEAN = (
    r"\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556"
    r"\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    r"\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    r"\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+"
)
WIDE_SIGNS = r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
HANGUL = (
    r"[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|"
    r"[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)
UNSTOPPED = r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
ASIAN = (
    r"[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff"
    r"\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)


def _cased(letters: str, contractions: str) -> str:
    """A pattern of words with capitals before small letters; letters outside ASCII count as both."""
    upper, lower = rf"((?=[{letters}])([^a-z]))", rf"((?=[{letters}])([^A-Z]))"
    lead = r"[^\r\n\p{L}\p{N}]?"
    return f"{lead}{upper}*{lower}+{contractions}|{lead}{upper}+{lower}*{contractions}"


CASED = _cased(r"\p{L}", f"{CONTRACTIONS}?")
CASED_MARKED = _cased(r"\p{L}\p{M}", f"{CONTRACTIONS}?")
CASED_ALONE = _cased(r"\p{L}", "")


@dataclass(frozen=True)
class Splitting:
    """Rules that split text into words.

    Attributes:
        patterns: each applied to what the one before left.
        whole_words: whether a word that is a token stays whole, whatever the merges say.
        byte_level: whether words are written in the alphabet of bytes; else bytes have tokens like ``<0x0A>``.
        spaced: whether spaces are ``▁``.
        newlines: whether a run of line ends that is a token stays whole.
        add_bos: whether a text begins with BOS where the file does not say.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    byte_level: bool = True
    spaced: bool = False
    newlines: bool = False
    add_bos: bool = False

    def words(self, text: str) -> list[str]:
        """The words of a text."""
        return words(text, self.patterns)


def _by(*patterns: str) -> Splitting:
    return Splitting(patterns)


def _whole_words(base: Splitting, add_bos: bool = False) -> Splitting:
    return replace(base, whole_words=True, add_bos=add_bos)


_GPT2, _LLAMA3, _QWEN2 = _by(GPT2), _by(LLAMA3), _by(QWEN2)
_STARCODER = _by(r"\p{N}", GPT2)
_DEEPSEEK3 = _by(r"\p{N}{1,3}", KANA, DEEPSEEK3)
_BLOOM = _by(UNSTOPPED)
_GPT4O = _by(rf"{CASED}|\p{{N}}{{1,3}}|{SLASHED}")
_BAILING = _by(rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|{WORD}|\p{{N}}|{SYMBOLS}|\s*[\r\n]|\s+(?!\S)|\s+")
_PIECES = replace(_by(NEWLINES), byte_level=False, spaced=True)
_AYA = _by(FROM_THE_RIGHT, rf"{CAMEL}|\p{{N}}{{1,3}}|{SLASHED}")
DEFAULT = _by(r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")

ROWS: tuple[tuple[str, Splitting], ...] = (
    ("default", DEFAULT),
    ("minicpm5", _whole_words(_by(r"\p{N}{1,3}", rf"{CONTRACTIONS}|{WORD}|\p{{N}}+|{SYMBOLS}|{ENDS}"))),
    (
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        _whole_words(_LLAMA3, add_bos=True),
    ),
    ("deepseek-llm", _by("[\r\n]", EUROPEAN, WIDE_SIGNS, r"\s+$", CJK, r"\p{N}+")),
    ("deepseek-coder", _by("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}")),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", _DEEPSEEK3),
    ("spark2_5", _by(r"\p{N}{1,3}", KANA, SPARK, r"\p{N}")),
    ("youtu", _whole_words(_by(HANGUL, rf"{CAMEL}|\p{{N}}|{SLASHED}"))),
    ("falcon", _by(r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]")),
    ("whitespace", replace(_by(r"\S+"), byte_level=False)),
    ("starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", _STARCODER),
    ("gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert", _GPT2),
    ("mpt olmo jais trillion granite-docling exaone4 jina-v1-en jina-v2-code roberta-bpe", _GPT2),
    ("jais-2", _by(rf"{CONTRACTIONS}|{WORD}|\p{{N}}{{1,3}}|{SYMBOLS}|\s*[\r\n]+|{CASCADE}")),
    ("gemma4 granite-embed-multi-311m", replace(_PIECES, newlines=True, add_bos=True)),
    ("sarvam-moe", _PIECES),
    ("qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", _QWEN2),
    ("qwen35", _by(QWEN35)),
    ("dbrx smaug-bpe chatglm-bpe", _LLAMA3),
    ("glm4 glm5", _whole_words(_LLAMA3)),
    ("poro-chat bloom gpt3-finnish", _BLOOM),
    ("viking", replace(_BLOOM, patterns=(*_BLOOM.patterns, r"\p{N}"))),
    ("tekken", _whole_words(_by(rf"{CASED_ALONE}|\p{{N}}|{SLASHED}"), add_bos=True)),
    (
        "chameleon",
        replace(
            _by(
                "<sentinel:[0-9]+>",
                "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                r"([\t\n]|    |  )",
                r"\p{N}",
                r"[\p{P}!-/:-@\[-`{-~]",
                GPT2,
            ),
            add_bos=True,
        ),
    ),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", _GPT4O),
    ("granite-embed-multi-97m", _whole_words(_by(rf"{CASED_MARKED}|\p{{N}}{{1,3}}|{SLASHED}"))),
    ("tiny_aya cohere2moe", _AYA),
    ("superbpe", _by(r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
    ("bailingmoe bailingmoe2 llada-moe", _BAILING),
    ("seed-coder", _by(rf"{CONTRACTIONS}|{WORD}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{ENDS}")),
    (
        "kimi-k2",
        _by(
            rf"{HAN}+|[^\r\n\p{{L}}\p{{N}}{HAN}]?\p{{L}}+{CONTRACTIONS}?|\p{{N}}{{1,3}}| "
            rf"?[^\s\p{{L}}\p{{N}}{HAN}]+[\r\n]*|{ENDS}"
        ),
    ),
    ("ufakzeka", _by(rf"{WORD}|\p{{N}}|{SYMBOLS}|{ENDS}")),
    ("afmoe", _by(FROM_THE_RIGHT, ASIAN, DEEPSEEK3)),
    ("laguna", _by(NEWLINES, QWEN2)),
    (
        "exaone-moe",
        _by(
            rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+"
            r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
        ),
    ),
)
PRE = {name: splitting for names, splitting in ROWS for name in names.split()}
"""Pre-tokenizers by the value of ``tokenizer.ggml.pre``."""
