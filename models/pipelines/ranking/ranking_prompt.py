"""Ranking prompts: how a language model is asked whether a document fits a query, and which tokens are its answers.

Sources: the model card of Qwen3-Reranker (arXiv:2506.05176), the module LogitScore and the roles ``query`` and
``document`` of sentence-transformers, and the template ``rerank`` of llama.cpp's GGUF files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ....runtime.base.errors import UnsupportedError, UsageError
from ....runtime.contract.hyperparameter import SIZE, ParameterError, checked, flag, mapping, word
from ....runtime.ir.graph import Graph
from ...generation.chat_template import rendered_with
from ...tokenizer.core.tokenizer import Tokenizer
from ...tokenizer.readers.locate import json_value, settings, text
from ..sentence_modules import CODE, SETTINGS, TRANSFORMER_SETTINGS, module_config, module_list

Written = Callable[[str, str], str]
"""The prompt for a query and a document."""
SCORE = "LogitScore"
ANSWERS = ("yes", "no")
TEMPLATE = "rerank"
"""The template of GGUF files, with the placeholders ``{query}`` and ``{document}``."""
NAMED_TEMPLATES = ("reranker", TEMPLATE, "default")
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
TURN = "<|im_start|>"
"""The token that begins a turn in Qwen's prompts."""
QWEN3 = (
    f"{TURN}system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".<|im_end|>\n'
    f"{TURN}user\n<Instruct>: {{instruction}}\n<Query>: {{query}}\n<Document>: {{document}}<|im_end|>\n"
    f"{TURN}assistant\n<think>\n\n</think>\n\n"
)
QWEN3_NAME = "qwen3-reranker"
_ROLES = re.compile(r"['\"]query['\"].*['\"]document['\"]", re.DOTALL)
_PLACES = re.compile(r"\{(query|document)\}")
_MARKS = ("2f8c51QUERY", "7d0b93DOCUMENT")
"""Placeholders of the two texts, between tabs that show whether a template strips them."""


def ranks(source: Graph) -> bool:
    """Whether the files of a model say that it ranks documents by its answer: the module LogitScore, or the name of
    Qwen3-Reranker as llama.cpp's converter looks for it."""
    listed = module_list(source)
    if listed is not None:
        return any(kind == SCORE for kind, _ in listed)
    said = settings(source, "config.json")
    folder = re.split(r"[/\\]", source.files[0])[-2:-1] if source.files else []
    if any(QWEN3_NAME in str(name).lower() for name in (*folder, said.get("_name_or_path", ""))):
        return True
    return "README.md" in source.attachments and f"# {QWEN3_NAME}" in text(source, "README.md").lower()


def answers(source: Graph, tokenizer: Tokenizer) -> tuple[int, ...]:
    """The ids of the tokens for yes and for no, or for yes alone; raises UnsupportedError for a vocabulary that does
    not have them."""
    path = source.files[0] if source.files else None
    folder = _score_folder(source)
    if folder is not None:
        said = module_config(source, folder)
        try:
            ids = [
                checked(key, said[key], SIZE)
                for key in ("true_token_id", "false_token_id")
                if said.get(key) is not None
            ]
        except ParameterError as error:
            raise UnsupportedError(CODE, path, f"invalid {error.key}: {error}") from error
        if said.get("true_token_id") is None or any(token >= len(tokenizer) for token in ids):
            raise UnsupportedError(CODE, path, f"{folder} names no tokens of the vocabulary")
        return tuple(ids)
    found = [tokenizer.id_of(answer) for answer in ANSWERS]
    if None in found:
        raise UnsupportedError("E-RANK-TOKENS", path, "the vocabulary has no tokens 'yes' and 'no'")
    return tuple(token for token in found if token is not None)


def ranking_prompt(source: Graph, tokenizer: Tokenizer, instruction: str | None) -> Written:
    """The prompt of a ranking model.

    Args:
        instruction: what makes a document fit, None for what the model's files say.

    Raises UsageError if the model's prompt has no placeholder for it, UnsupportedError if no prompt is known.
    """
    path = source.files[0] if source.files else None
    template = tokenizer.templates.get(TEMPLATE, "")
    if {"query", "document"} <= set(_PLACES.findall(template)):
        if instruction is not None and INSTRUCTION not in template:
            raise UsageError("E-RANK-INSTRUCTION", path, "the prompt of the model has no place for an instruction")
        return _filled(template if instruction is None else template.replace(INSTRUCTION, instruction))
    scored = _score_folder(source) is not None
    chosen = next((tokenizer.templates[name] for name in NAMED_TEMPLATES if name in tokenizer.templates), None)
    if chosen is not None and (scored or _ROLES.search(chosen)):
        return _of_roles(source, tokenizer, chosen, instruction)
    if tokenizer.id_of(TURN) is None or scored:
        why = "no prompt is known that asks the model about a query and a document"
        raise UnsupportedError("E-RANK-PROMPT", path, why, expected=f"a chat template of roles, or the token {TURN}")
    return _filled(QWEN3.replace("{instruction}", INSTRUCTION if instruction is None else instruction))


def _filled(template: str) -> Written:
    return lambda query, document: _PLACES.sub(lambda match: query if match[1] == "query" else document, template)


def _of_roles(source: Graph, tokenizer: Tokenizer, template: str, instruction: str | None) -> Written:
    """The prompt of a chat template that takes a query and a document as messages, rendered once."""
    path = source.files[0] if source.files else None
    said = checked(SETTINGS, json_value(source, SETTINGS, CODE) or {}, mapping)
    prompts = checked("prompts", said.get("prompts") or {}, mapping)
    usual = prompts.get(said.get("default_prompt_name") or "")
    system = usual if instruction is None else instruction
    query, document = (f"\t{mark}\t" for mark in _MARKS)
    messages = [{"role": "query", "content": query}, {"role": "document", "content": document}]
    if system:
        messages.insert(0, {"role": "system", "content": checked("prompts", system, word)})
    rendered = rendered_with(template, tokenizer, messages, answer=_ends_with_answer(source), path=path)
    pieces = re.split(rf"(\t?)({'|'.join(_MARKS)})(\t?)", rendered)
    if sorted(pieces[2::4]) != sorted(_MARKS):
        why = "the chat template does not take a query and a document"
        raise UnsupportedError("E-RANK-PROMPT", path, why, expected="messages of the roles query and document")
    if instruction is not None and instruction not in rendered:
        raise UsageError("E-RANK-INSTRUCTION", path, "the prompt of the model has no place for an instruction")

    def written(query: str, document: str) -> str:
        found = []
        for index, piece in enumerate(pieces):
            if index % 4 == 0:
                found.append(piece)
            elif index % 4 == 2:
                given = query if piece == _MARKS[0] else document
                given = given if pieces[index - 1] else given.lstrip()
                found.append(given if pieces[index + 1] else given.rstrip())
        return "".join(found)

    return written


def _score_folder(source: Graph) -> str | None:
    return next((folder for kind, folder in module_list(source) or () if kind == SCORE), None)


def _ends_with_answer(source: Graph) -> bool:
    """Whether the files ask for the header of an answer at the end of a prompt."""
    own: Mapping[str, Any] = next(
        (each for name in TRANSFORMER_SETTINGS if isinstance(each := json_value(source, name, CODE), Mapping)), {}
    )
    said = checked("processing_kwargs", own.get("processing_kwargs") or {}, mapping)
    kind = checked("chat_template", said.get("chat_template") or {}, mapping)
    return bool(checked("add_generation_prompt", kind.get("add_generation_prompt", False), flag))
