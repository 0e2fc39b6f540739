"""Tokenizers by the names of transformers' classes: texts become the inputs of models."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from ...models.tokenizer import Tokenizer
from ...models.tokenizer.core.encoding import Text
from ...models.tokenizer.readers.locate import class_of, companion_files
from ...models.tokenizer.readers.tokenizer_json import Library
from ...runtime.base.errors import UsageError
from ...runtime.base.process_cache import process_cache
from ...runtime.ir.graph import Graph
from ...tensors.operations.creation import as_tensor, check_device
from ..translate.open_tokenizer import open_tokenizer
from .tokenizer_names import AUTO, FAST, WITH_SEGMENTS, WITHOUT_SEGMENTS, gives_segments, is_tokenizer

T = TypeVar("T", bound="PretrainedTokenizer")
TENSORS = {"pt": as_tensor, "np": lambda array: array}
"""Values of `return_tensors`: tensors or arrays."""
SIDES = ("left", "right")
LONGEST, TO_LIMIT, NO_PADDING = "longest", "max_length", "do_not_pad"
PADDINGS: Mapping[Any, str] = {True: LONGEST, False: NO_PADDING, LONGEST: LONGEST, TO_LIMIT: TO_LIMIT,
                               NO_PADDING: NO_PADDING}  # fmt: skip
TRUNCATIONS: Mapping[Any, bool] = {True: True, False: False, "longest_first": True, "do_not_truncate": False}
"""Whether texts are cut, of a pair the longer one first."""
NO_LIMIT = 1 << 30
"""A ``model_max_length`` from here on is none."""


class BatchEncoding(dict[str, Any]):
    """Inputs of a model by name, as items and as attributes."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"the encoding has no {name!r}; it has {', '.join(self)}")
        return self[name]

    def to(self, device: Any, **options: Any) -> BatchEncoding:
        """The encoding on a device: the same for the CPU, UsageError for others."""
        check_device(device)
        return self


class PretrainedTokenizer:
    """Base of the classes that `tokenizer_class` makes; `from_pretrained` opens one.

    Attributes:
        tokenizer: the vocabulary with its encoder and decoder.
        pad_token, pad_token_id, eos_token ...: of each role; ``tokenizer.pad_token = tokenizer.eos_token`` sets one.
        model_max_length: tokens that the model takes at most, as tokenizer_config.json says.
        padding_side: where short texts are filled: ``right`` or ``left``.
    """

    class_name: ClassVar[str] = AUTO

    def __init__(self, graph: Graph, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._roles = dict(tokenizer.vocabulary.roles)
        config = companion_files(graph).config
        stated = config.get("model_max_length")
        self.model_max_length = int(stated) if isinstance(stated, int | float) and stated < NO_LIMIT else NO_LIMIT
        self.padding_side = str(config.get("padding_side", SIDES[1]))
        self._segments = gives_segments(self.class_name, graph)

    @classmethod
    def from_pretrained(
        cls: type[T],
        pretrained_model_name_or_path: str | os.PathLike[str],
        *,
        revision: str | None = None,
        offline: bool = False,
        local_files_only: bool = False,
        trust_remote_code: bool = False,
        use_fast: bool = True,
        **changes: Any,
    ) -> T:
        """The tokenizer of a directory, of a GGUF file, of a tokenizer's own file, or of ``hf://owner/repo``.

        Args:
            local_files_only: the same as `offline`: nothing is downloaded.
            trust_remote_code: must be False: code of repositories is not run.
            use_fast: transformers' choice of an implementation, without effect.
            changes: ``model_max_length`` and ``padding_side``.

        Raises UnsupportedError without a tokenizer, FormatError for damaged files.
        """
        if trust_remote_code:
            why = "trust_remote_code=True: code of repositories is not run"
            raise UsageError("E-OPTION", None, why, hint="Leave trust_remote_code out")
        path = os.fspath(pretrained_model_name_or_path)
        graph, found = open_tokenizer(path, revision=revision, offline=offline or local_files_only)
        made = cls(graph, found)
        stated, own = class_of(graph), cls.class_name.removesuffix(FAST)
        if own not in (AUTO, stated) and stated in (*WITH_SEGMENTS, *WITHOUT_SEGMENTS):
            warnings.warn(f"the files are of the class {stated}, not {own}", stacklevel=2)
        for name in ("model_max_length", "padding_side"):
            setattr(made, name, changes.pop(name, getattr(made, name)))
        if changes:
            why = f"{cls.__name__} does not take {', '.join(sorted(changes))}"
            raise UsageError("E-OPTION", None, why, expected="model_max_length, padding_side")
        return made

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.tokenizer!r}>"

    def __len__(self) -> int:
        return len(self.tokenizer)

    def __call__(
        self,
        text: str | Sequence[Text],
        text_pair: str | Sequence[str] | None = None,
        add_special_tokens: bool = True,
        padding: bool | str = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        return_tensors: str | None = None,
        return_token_type_ids: bool | None = None,
        return_attention_mask: bool = True,
    ) -> BatchEncoding:
        """Inputs of a model: ``input_ids``, ``token_type_ids`` where the class has them, and ``attention_mask``.

        Args:
            text: a text, or several, or pairs of texts.
            text_pair: the second text of each pair.
            padding: True or ``longest`` fills to the longest text, ``max_length`` to `max_length`.
            truncation: whether texts are cut to `max_length`, by default the model's: True or ``longest_first``; by
                default they are if `max_length` is given and `padding` is not, as in transformers.
            return_tensors: ``pt`` for tensors i64 [texts, tokens], ``np`` for arrays; lists without it.

        Raises UsageError for texts of different lengths that are to be one tensor without padding.
        """
        single = isinstance(text, str)
        texts: list[Text] = [text] if isinstance(text, str) else list(text)
        if text_pair is not None:
            seconds = [text_pair] if isinstance(text_pair, str) else list(text_pair)
            texts = [(str(one), two) for one, two in zip(texts, seconds, strict=True)]
        if truncation is None:
            truncation = max_length is not None and padding is False
        if truncation not in TRUNCATIONS:
            expected = f"True, False, {', '.join(map(str, list(TRUNCATIONS)[2:]))}"
            raise UsageError("E-OPTION", None, f"truncation {truncation!r} is not one of ours", expected=expected)
        limit = self._limit(max_length) if TRUNCATIONS[truncation] else None
        rows = [self._ids(each, limit, add_special_tokens) for each in texts]
        length = self._length(rows, padding, max_length)
        found: dict[str, list[list[int]]] = {"input_ids": [], "token_type_ids": [], "attention_mask": []}
        for ids, segments in rows:
            missing = max(length - len(ids), 0)
            found["input_ids"].append(self._filled(ids, self._pad() if missing else 0, missing))
            found["token_type_ids"].append(self._filled(segments, 0, missing))
            found["attention_mask"].append(self._filled([1] * len(ids), 0, missing))
        if not (self._segments if return_token_type_ids is None else return_token_type_ids):
            del found["token_type_ids"]
        if not return_attention_mask:
            del found["attention_mask"]
        if return_tensors is None:
            return BatchEncoding({name: lists[0] if single else lists for name, lists in found.items()})
        return BatchEncoding({name: self._tensor(lists, return_tensors) for name, lists in found.items()})

    def encode(self, text: str, text_pair: str | None = None, add_special_tokens: bool = True, **options: Any) -> Any:
        """The ids of a text or pair; options as of a call."""
        return self(text, text_pair, add_special_tokens, **options)["input_ids"]

    def decode(self, token_ids: Any, skip_special_tokens: bool = False) -> Any:
        """The text of ids, special tokens included unless `skip_special_tokens`; of rows of ids a list of texts."""
        if getattr(token_ids, "ndim", 0) > 1 or (
            isinstance(token_ids, list | tuple) and token_ids and np.ndim(token_ids[0])
        ):
            return self.batch_decode(token_ids, skip_special_tokens)
        ids = np.asarray(token_ids, dtype=np.int64).reshape(-1).tolist()
        return self.tokenizer.decode(ids, special=not skip_special_tokens)

    def batch_decode(self, sequences: Any, skip_special_tokens: bool = False) -> list[str]:
        """The text of each row of ids."""
        return [self.decode(ids, skip_special_tokens) for ids in sequences]

    def tokenize(self, text: str) -> list[str]:
        """The strings of a text's tokens in the vocabulary, without special tokens around it."""
        return self.convert_ids_to_tokens(self._ids(text, None, False)[0])

    def convert_ids_to_tokens(self, ids: Any) -> Any:
        """The string of each id in the vocabulary, or of one; None for ids after its last.

        Raises UsageError for negative ids.
        """
        if not isinstance(ids, int):
            return [self.convert_ids_to_tokens(int(token)) for token in ids]
        if ids < 0:
            raise UsageError("E-TOKENIZER-ID", None, f"token {ids}", expected="an id of at least 0")
        texts = self.tokenizer.vocabulary.texts
        return texts[ids] if ids < len(texts) else None

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """The id of each string of the vocabulary, or of one; that of the unknown token for others."""
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(token) for token in tokens]
        found = self.tokenizer.id_of(tokens)
        return self._roles.get("unk") if found is None else found

    def get_vocab(self) -> dict[str, int]:
        """Ids by string."""
        return dict(self.tokenizer.vocabulary.ids)

    @property
    def vocab_size(self) -> int:
        """Tokens of the vocabulary, without those that were added to a tokenizer.json."""
        engine = self.tokenizer.engine
        if not isinstance(engine, Library):
            return len(self)
        return int(engine.library.get_vocab_size(with_added_tokens=False))

    def __getattr__(self, name: str) -> Any:
        """``pad_token``, ``pad_token_id`` and the same of each role; None for roles that the vocabulary lacks."""
        role, is_id = _role_of(name)
        if not role:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found = self._roles.get(role)
        return found if is_id or found is None else self.tokenizer.vocabulary.texts[found]

    def __setattr__(self, name: str, value: Any) -> None:
        """Give a role to a token of the vocabulary: ``tokenizer.pad_token = tokenizer.eos_token``; None takes it away.

        Raises UsageError for what is not a token of the vocabulary.
        """
        role, is_id = _role_of(name)
        if not role:
            super().__setattr__(name, value)
        elif value is None:
            self._roles.pop(role, None)
        else:
            found = value if is_id else self.tokenizer.id_of(str(value))
            if not isinstance(found, int) or not 0 <= found < len(self):
                why = f"{name} is {value!r}, which is not a token of the vocabulary"
                raise UsageError("E-TOKENIZER-ROLE", None, why, hint="Use one of get_vocab()")
            self._roles[role] = found

    def _ids(self, text: Text, limit: int | None, special: bool) -> tuple[list[int], list[int]]:
        """Ids of a text or pair, and the segment of each."""
        if special:
            (found, _), *_ = self.tokenizer.encodings([text], limit)
            return list(found.ids), list(found.type_ids)
        parts = (text,) if isinstance(text, str) else text
        rows = [self.tokenizer.encode(part, add_bos=False, add_eos=False) for part in parts]
        while limit is not None and sum(map(len, rows)) > limit:
            max(rows, key=len).pop()
        return [token for row in rows for token in row], [segment for segment, row in enumerate(rows) for _ in row]

    def _limit(self, max_length: int | None) -> int | None:
        found = self.model_max_length if max_length is None else max_length
        return None if found >= NO_LIMIT else found

    def _length(self, rows: Sequence[Any], padding: bool | str, max_length: int | None) -> int:
        """Tokens that each row is filled to."""
        if padding not in PADDINGS:
            expected = f"True, False, {', '.join(map(str, list(PADDINGS)[2:]))}"
            raise UsageError("E-OPTION", None, f"padding {padding!r} is unknown", expected=expected)
        kind = PADDINGS[padding]
        if kind == LONGEST:
            return max((len(ids) for ids, _ in rows), default=0)
        return (self._limit(max_length) or 0) if kind == TO_LIMIT else 0

    def _pad(self) -> int:
        pad = self._roles.get("pad")
        if pad is None:
            why = "texts are to be padded, but the vocabulary has no padding token"
            raise UsageError("E-TOKENIZER-ROLE", None, why, hint="Set tokenizer.pad_token = tokenizer.eos_token")
        return pad

    def _filled(self, row: list[int], value: int, missing: int) -> list[int]:
        filler = [value] * missing
        return filler + row if self.padding_side == SIDES[0] else row + filler

    def _tensor(self, lists: list[list[int]], kind: str) -> Any:
        if kind not in TENSORS:
            raise UsageError("E-OPTION", None, f"return_tensors {kind!r} is unknown", expected=", ".join(TENSORS))
        if len({len(row) for row in lists}) > 1:
            why = "the texts have different numbers of tokens, which do not make a tensor"
            raise UsageError("E-TENSOR-SHAPE", None, why, hint="Pass padding=True")
        return TENSORS[kind](np.array(lists, np.int64))


def _role_of(name: str) -> tuple[str, bool]:
    """The role that an attribute such as pad_token or pad_token_id is of, and whether it is the id; "" for others."""
    role, found, rest = name.partition("_token")
    return role if found and rest in ("", "_id") and "_" not in role else "", bool(rest)


@process_cache
def tokenizer_class(name: str) -> type[PretrainedTokenizer] | None:
    """The class that stands for a class of transformers; None for other names."""
    if not is_tokenizer(name):
        return None
    document = "A tokenizer as transformers' class of this name; see `from_pretrained`."
    return type(name, (PretrainedTokenizer,), {"class_name": name, "__doc__": document, "__module__": __name__})
