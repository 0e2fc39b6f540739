"""Beam search against transformers' `generate`, with a model whose logits both compute exactly alike."""

import itertools

import numpy as np
import pytest
from candle_convert import UnsupportedError, UsageError
from candle_convert.models.generation.beam_search import Beams, Limits, beam_search
from candle_convert.models.generation.token_constraints import TokenConstraints
from candle_convert.tests.oracles.transformers import transformers

VOCABULARY, PAD, END, LONGEST = 48, 1, 2, 14
SETTINGS = {
    "plain": {},
    "two_beams": {"num_beams": 2},
    "many": {"num_beams": 7, "num_return_sequences": 5},
    "penalty": {"length_penalty": 2.0},
    "short": {"length_penalty": 0.2, "num_return_sequences": 3},
    "negative": {"length_penalty": -1.0},
    "early": {"early_stopping": True, "num_return_sequences": 4},
    "early_short": {"early_stopping": True, "length_penalty": 0.0},
    "never": {"early_stopping": "never", "length_penalty": 1.5, "num_return_sequences": 2},
    "never_negative": {"early_stopping": "never", "length_penalty": -0.5},
    "canonical": {"early_stopping": "never", "length_penalty": 0.0},
    "ngram1": {"no_repeat_ngram_size": 1},
    "ngram2": {"no_repeat_ngram_size": 2, "early_stopping": True},
    "ngram3": {"no_repeat_ngram_size": 3, "num_return_sequences": 2},
    "forced": {"forced_bos_token_id": 7, "forced_eos_token_id": END},
    "forced_early": {"forced_bos_token_id": 9, "early_stopping": True, "num_return_sequences": 3},
    "min_length": {"min_length": 9, "early_stopping": True},
    "several_ends": {"eos_token_id": [2, 5, 11], "num_return_sequences": 2},
    "bad_words": {"bad_words_ids": [[PAD], [3, 4], [6, 1, 5], [END]]},
    "suppressed": {"suppress_tokens": [PAD, 8, 9], "begin_suppress_tokens": [END, 10]},
    "repetition": {"repetition_penalty": 1.7},
    "all": {"no_repeat_ngram_size": 2, "min_length": 5, "forced_bos_token_id": 3, "forced_eos_token_id": END,
            "bad_words_ids": [[PAD]], "suppress_tokens": [12], "begin_suppress_tokens": [13, 14],
            "length_penalty": 0.8, "num_beams": 5, "num_return_sequences": 5},
}  # fmt: skip
NAMES = {
    "forced_bos_token_id": "forced_bos",
    "suppress_tokens": "suppressed",
    "begin_suppress_tokens": "suppressed_at_begin",
    "bad_words_ids": "bad_words",
}


class Tables:
    """Logits [rows, vocabulary] from the first, the last two tokens and the length: sums of rows of tables."""

    def __init__(self, seed, spread):
        random = np.random.default_rng(seed)
        shape = (VOCABULARY, VOCABULARY)
        self.last, self.before, self.first = (
            (random.standard_normal(shape) * each).astype(np.float32) for each in (spread, spread, spread / 2)
        )
        self.length = (random.standard_normal((LONGEST + 1, VOCABULARY)) * spread / 2).astype(np.float32)

    def __call__(self, ids):
        before = ids[:, max(ids.shape[1] - 2, 0)]
        return self.last[ids[:, -1]] + self.before[before] + self.first[ids[:, 0]] + self.length[ids.shape[1]]


def oracle(tables, prompts, settings):
    """Sequences and their scores of transformers' `generate` with the same tables."""
    import torch

    library = transformers()

    class Model(library.PreTrainedModel, library.generation.GenerationMixin):
        config_class = library.PretrainedConfig
        main_input_name = "input_ids"

        def __init__(self, config):
            super().__init__(config)
            self.unused = torch.nn.Parameter(torch.zeros(1))
            self.post_init()

        def forward(self, input_ids, **_):
            logits = torch.from_numpy(tables(input_ids.numpy()))
            return library.modeling_outputs.CausalLMOutputWithPast(logits=logits[:, None])

        def prepare_inputs_for_generation(self, input_ids, **_):
            return {"input_ids": input_ids}

    model = Model(library.PretrainedConfig(vocab_size=VOCABULARY))
    options = {"num_beams": 4, "eos_token_id": END, "pad_token_id": PAD, "max_length": LONGEST} | settings
    options |= {"use_cache": False, "do_sample": False, "output_scores": True, "return_dict_in_generate": True}
    with torch.no_grad():
        found = model.generate(torch.tensor(prompts), **options)
    return found.sequences.numpy(), found.sequences_scores.numpy()


def ours(tables, prompts, settings):
    """The sequences of `beam_search` with prompt and padding, and their scores."""
    known = {"num_beams", "num_return_sequences", "length_penalty", "early_stopping", "eos_token_id"}
    rules = {NAMES.get(name, name): value for name, value in settings.items() if name not in known}
    rules = {name: tuple(map(tuple, value)) if name == "bad_words" else value for name, value in rules.items()}
    if "forced_eos_token_id" in rules:
        rules["forced_eos"] = (rules.pop("forced_eos_token_id"),)
    ends = settings.get("eos_token_id", END)
    limits = Limits(LONGEST, (ends,) if isinstance(ends, int) else tuple(ends), TokenConstraints(**rules))
    beams = Beams(
        settings.get("num_beams", 4), settings.get("length_penalty", 1.0), settings.get("early_stopping", False),
        settings.get("num_return_sequences", 1),
    )  # fmt: skip
    held = prompts

    def step(tokens, parents):
        nonlocal held
        held = np.concatenate([held if parents is None else held[parents], tokens[:, None]], 1)
        return tables(held)

    found = beam_search(step, tables(prompts), prompts, beams, limits)
    rows = [[*prompt, *one.tokens] for prompt, each in zip(prompts.tolist(), found, strict=True) for one in each]
    longest = max(map(len, rows))
    padded = np.array([row + [PAD] * (longest - len(row)) for row in rows])
    return padded, np.array([one.score for each in found for one in each])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("name", SETTINGS)
def test_sequences_as_in_transformers(name, length):
    ended = 0
    for seed, spread in itertools.product(range(2), (0.4, 1.5)):
        tables, random = Tables(seed, spread), np.random.default_rng(seed)
        tables.last[:, END] += (0, 3)[seed % 2]
        prompts = random.integers(15, VOCABULARY, (3, length))
        (got, scores), (want, expected) = (run(tables, prompts, SETTINGS[name]) for run in (ours, oracle))
        np.testing.assert_array_equal(got, want)
        np.testing.assert_allclose(scores, expected, rtol=1e-5)
        ended += want.shape[1] < LONGEST
    assert ended or name in {"min_length", "never", "penalty"}


def test_a_prompt_leaves_the_batch_and_beams_that_stay_are_not_reordered():
    """Prompt 0 ends at once, prompt 1 with one beam never."""
    seen = []

    def logits(tokens):
        found = np.zeros((len(tokens), VOCABULARY), np.float32)
        found[np.arange(len(tokens)), np.where(tokens == 20, END, tokens + 1)] = 9
        return found

    def step(tokens, parents):
        seen.append((tokens.tolist(), None if parents is None else parents.tolist()))
        return logits(tokens)

    prompts = np.array([[19], [30]])
    found = beam_search(step, logits(prompts[:, 0]), prompts, Beams(1), Limits(5, (END,)))
    assert [each[0].tokens for each in found] == [[20, END], [31, 32, 33, 34]]
    assert seen == [([20, 31], None), ([32], [1]), ([33], None)]


@pytest.mark.parametrize(
    "options",
    [{"count": 0}, {"count": 2000}, {"length_penalty": np.nan}, {"early_stopping": "soon"}, {"returned": 5}],
    ids=str,
)
def test_values_out_of_range_are_refused(options):
    with pytest.raises(UsageError, match="E-BEAMS"):
        Beams(**options)


def test_logits_that_are_not_finite_are_refused():
    logits = np.full((1, VOCABULARY), np.nan, np.float32)
    with pytest.raises(UnsupportedError, match="E-LM-NAN"):
        beam_search(lambda *_: logits, logits, np.array([[1]]), Beams(2), Limits(5))
