"""Tokens a second in total of the engine with 1, 4 and 16 requests at once, and of a lone stream without it.

    python benchmarks/batching.py MODEL [--parallel 1,4,16] [--prompt 128] [--tokens 128] [--shared N] [--rounds 3]
        [--threads N]

MODEL is a language model; `quantize_files.py --make DIR` writes one of random weights, which needs no tokenizer here.
Prompts are random tokens, of which the first `--shared` are the same in all requests. The first rate counts generated
tokens from the first submission to the last token; `decode` and `prompt` count the time of the runs for either.
Every case runs once to warm up, then all of them in turn, and medians are printed. The lone stream calls the model for
one token after another.
"""

import argparse
import statistics
import time
from collections import defaultdict

import numpy as np
from candle_convert import models
from candle_convert.models.generation.batching.engine import Engine
from candle_convert.models.generation.batching.request import Request
from candle_convert.models.generation.generate import Timing
from candle_convert.models.generation.sampling import GREEDY
from candle_convert.tests.builders.numbered_tokens import NumberedTokens


def lone(model, prompt, count):
    """Seconds of the prompt and of the tokens after it."""
    cache, begin = model.start(1), time.perf_counter()
    token = int(model.advance([prompt], cache)[0].argmax())
    first = time.perf_counter()
    for _ in range(count - 1):
        token = int(model.advance([[token]], cache)[0].argmax())
    return first - begin, time.perf_counter() - first


def together(engine, prompts, count):
    """Seconds from the first submission to the last token; tokens of prompts that were not computed."""
    begin = time.perf_counter()
    handles = [engine.submit(Request(prompt, count, GREEDY)) for prompt in prompts]
    for handle in handles:
        assert sum(1 for _ in handle) == count
    return time.perf_counter() - begin, sum(handle.usage.cached_tokens for handle in handles)


def prompts(count, length, shared, vocabulary, seed):
    rng = np.random.default_rng(seed)
    start = rng.integers(3, vocabulary, shared).tolist()
    return [start + rng.integers(3, vocabulary, length - shared).tolist() for _ in range(count)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--parallel", default="1,4,16")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--shared", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    model = models.load(arguments.model, threads=arguments.threads)
    vocabulary = model.vocabulary
    model.tokenizer = NumberedTokens(vocabulary)
    length, count = arguments.prompt, arguments.tokens
    cases = list(map(int, arguments.parallel.split(",")))
    engines = {parallel: Engine(model, parallel=parallel, context=length + count) for parallel in cases}
    for parallel, engine in engines.items():
        together(engine, prompts(parallel, length, arguments.shared, vocabulary, 0), 3)
    (prompt,) = prompts(1, length, 0, vocabulary, 0)
    lone(model, prompt, 3)
    rates, cached = defaultdict(list), {}
    for seed in range(1, arguments.rounds + 1):
        first, rest = lone(model, prompt, count)
        rates["lone stream"].append((count / (first + rest), (count - 1) / rest, length / first))
        for parallel, engine in engines.items():
            engine.timing = Timing()
            asked = prompts(parallel, length, arguments.shared, vocabulary, seed)
            seconds, cached[parallel] = together(engine, asked, count)
            said = engine.timing.to_json()
            rates[parallel].append(
                (parallel * count / seconds, said["generated_per_second"], said["prompt_per_second"])
            )
    for engine in engines.values():
        engine.close()
    print("| requests | tokens/s | decode tokens/s | prompt tokens/s | cached tokens |\n|---|---|---|---|---|")
    for case, rounds in rates.items():
        middle = " | ".join(f"{statistics.median(column):.1f}" for column in zip(*rounds, strict=True))
        print(f"| {case} | {middle} | {cached.get(case, '')} |")


if __name__ == "__main__":
    main()
