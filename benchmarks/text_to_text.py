"""Tokens a second of encoder-decoders against CTranslate2 and transformers, greedily and by beam search.

    python benchmarks/text_to_text.py [--models marian,t5] [--kinds f32,int8] [--batches 1,8] [--beams 1,4]
        [--tokens 48] [--rounds 5] [--threads 2] [--folder FOLDER]

The models have random weights of a fixed seed and the sizes of opus-mt-en-de (Marian) and flan-t5-small (T5). Sources
are sentences of Python's documentation. Every text gets exactly `--tokens` tokens: the end token is banned until then.
Each engine has a process of its own, which runs every case once to warm up and then waits while the others run. int8 is
Q8_0 with activations of 8 bits for ours, and the int8 of CTranslate2's converter. Times include the encoder, and for
ours the text of the tokens. Peak memory is that of a process that runs one case, less what it has after the imports.
The floor counts the bytes of weights that a step of the decoder reads, once for all rows, at the bandwidth of memory.
CPU: processor time of all threads, spinning included, and ours / this of its rates. `equal`: tokens before the first
that differs from transformers', of all.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from text import sentences  # which also removes this folder from sys.path: onnx.py here would hide the package

MODELS = ("marian", "t5")
OURS, PEER, REFERENCE = "candle-convert", "CTranslate2", "transformers"
ENGINES = {"f32": (OURS, PEER, REFERENCE), "int8": (OURS, PEER)}
PIECES = 8000
"""Pieces of the tokenizer that the sentences are split into; the vocabulary is filled up with others."""


def sentence_pieces(count, **tokens):
    """A SentencePiece model with `count` pieces."""
    import io

    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences()), model_writer=made, vocab_size=PIECES, hard_vocab_limit=False,
        minloglevel=2, bos_id=-1, **tokens
    )  # fmt: skip
    model = sentencepiece_model_pb2.ModelProto.FromString(made.getvalue())
    for number in range(count - len(model.pieces)):
        model.pieces.add(piece=f"▁unused{number}", score=-100.0)
    return model


def make(name, folder):
    """Write a model of random weights with its tokenizer."""
    import torch
    import transformers

    torch.manual_seed(0)
    folder = Path(folder)
    if name == "marian":
        config = transformers.MarianConfig(
            vocab_size=58101, d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
            decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, activation_function="swish",
            max_position_embeddings=512, scale_embedding=True, pad_token_id=58100, eos_token_id=0,
            decoder_start_token_id=58100, forced_eos_token_id=None
        )  # fmt: skip
        model = transformers.MarianMTModel(config)
        model.generation_config.bad_words_ids = [[58100]]
        pieces = sentence_pieces(58100, eos_id=0, unk_id=1)
        for side in ("source", "target"):
            (folder / f"{side}.spm").write_bytes(pieces.SerializeToString())
        vocabulary = {piece.piece: number for number, piece in enumerate(pieces.pieces)}
        (folder / "vocab.json").write_text(json.dumps({**vocabulary, "<pad>": 58100}), encoding="utf-8")
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "MarianTokenizer"}')
    else:
        config = transformers.T5Config(
            vocab_size=32128, d_model=512, d_kv=64, d_ff=1024, num_layers=8, num_heads=6,
            feed_forward_proj="gated-gelu", tie_word_embeddings=False, decoder_start_token_id=0
        )  # fmt: skip
        model = transformers.T5ForConditionalGeneration(config)
        model.lm_head.weight = torch.nn.Parameter(torch.randn(32128, 512))
        pieces = sentence_pieces(32000, pad_id=0, eos_id=1, unk_id=2)
        (folder / "spiece.model").write_bytes(pieces.SerializeToString())
        transformers.T5Tokenizer.from_pretrained(folder).save_pretrained(folder)
    model.eval().save_pretrained(folder)
    if name == "t5":  # as the published files have it; transformers 5 writes true
        stated = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        del stated["scale_decoder_outputs"]
        (folder / "config.json").write_text(json.dumps({**stated, "tie_word_embeddings": False}), encoding="utf-8")


def export(source):
    """Write the models of the other engines and kinds into the folder of a model."""
    import candle_convert as cc
    import ctranslate2

    for kind in ENGINES:
        converter = ctranslate2.converters.TransformersConverter(str(source))
        converter.convert(str(source / f"{PEER}-{kind}"), quantization=None if kind == "f32" else "int8", force=True)
    folder = source / f"{OURS}-int8"
    folder.mkdir(exist_ok=True)
    for file in source.iterdir():
        if file.is_file() and file.suffix != ".safetensors":
            shutil.copy(file, folder)
    cc.quantize(source, folder / "model.gguf", "Q8_0", weights_only=True, force=True)


def sources(folder):
    """Token ids of the sentences, and the text of each token."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [tokenizer(text).input_ids for text in sentences()]
    return [each for each in ids if 8 <= len(each) <= 64], tokenizer.convert_ids_to_tokens(range(len(tokenizer)))


def generator(engine, kind, folder, arguments):
    """Imports an engine; then a function that loads the model and returns a function from ids [texts][length] and the
    number of beams to generated ids [texts][tokens]."""
    count, threads = arguments.tokens, arguments.threads
    path = folder if engine == REFERENCE or (engine, kind) == (OURS, "f32") else folder / f"{engine}-{kind}"
    if engine == OURS:
        import candle_convert as cc

        load = cc.models.load

        def ours():
            model = load(path, threads=threads)
            return lambda ids, beams: [
                made.tokens for made in model.generate_batch(ids, beams=beams, max_tokens=count, min_length=count + 1)
            ]

        return ours
    if engine == PEER:
        import ctranslate2

        texts = json.loads((folder / "tokens.json").read_text(encoding="utf-8"))
        number = {text: number for number, text in enumerate(texts)}

        def peer():
            compute = "float32" if kind == "f32" else "int8"
            model = ctranslate2.Translator(str(path), compute_type=compute, intra_threads=threads, inter_threads=1)

            def run(ids, beams):
                found = model.translate_batch(
                    [[texts[token] for token in row] for row in ids], beam_size=beams, max_decoding_length=count,
                    min_decoding_length=count
                )  # fmt: skip
                return [[number[text] for text in made.hypotheses[0]] for made in found]

            return run

        return peer
    import torch
    import transformers

    torch.set_num_threads(threads)

    def reference():
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(path).eval()
        pad = model.config.pad_token_id

        def run(ids, beams):
            longest = max(map(len, ids))
            rows = torch.tensor([row + [pad] * (longest - len(row)) for row in ids])
            mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids])
            made = model.generate(
                input_ids=rows, attention_mask=mask, num_beams=beams, do_sample=False, min_new_tokens=count,
                max_new_tokens=count
            )  # fmt: skip
            return made[:, 1:].tolist()

        return run

    return reference


def status(key):
    """Bytes of a row of /proc/self/status."""
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(rows[key].split()[0]) * 1024


def serve(engine, kind, folder, arguments):
    """For each line of standard input, batch and beams, generate; print seconds, those of the processor, ids and peak
    bytes."""
    load = generator(engine, kind, folder, arguments)
    ids = json.loads((folder / "ids.json").read_text())
    before = status("VmRSS")
    run = load()
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        batch, beams = json.loads(line)
        start, worked = time.perf_counter(), time.process_time()
        made = run(ids[:batch], beams)
        found = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - worked, "ids": made}
        print(json.dumps({**found, "peak": status("VmHWM") - before}), flush=True)


class Engine:
    """A process that serves an engine."""

    def __init__(self, engine, kind, folder, arguments):
        self.command = [sys.executable, __file__, "--serve", engine, kind, str(folder)]
        self.command += ["--tokens", str(arguments.tokens), "--threads", str(arguments.threads)]
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"an engine failed; run it with: {' '.join(self.command)}")
        return json.loads(line)

    def run(self, batch, beams):
        self.process.stdin.write(json.dumps([batch, beams]) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def bandwidth(threads):
    """Bytes a second of memory, read by some threads at once."""
    import concurrent.futures

    array = np.ones(1 << 26, np.float32)
    parts = np.array_split(array, threads)
    times = []
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for _ in range(9):
            start = time.perf_counter()
            list(pool.map(np.max, parts))
            times.append(time.perf_counter() - start)
    return array.nbytes / min(times)


def step_bytes(folder, kind):
    """Bytes of the weights that a step of the decoder reads."""
    import candle_convert as cc

    weights = cc.models.load(folder if kind == "f32" else folder / f"{OURS}-int8").graph.weights
    rows = {"embed.weight", "decoder.positions.weight"} if "head.weight" in weights else {"decoder.positions.weight"}
    return sum(tensor.nbytes for name, tensor in weights.items() if name not in rows)


def before_difference(made, wanted):
    """Tokens before the first that differs, of all texts."""
    total = 0
    for one, other in zip(made, wanted, strict=True):
        total += next((at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))
    return total


def compare(name, kind, folder, arguments, rate, wanted):
    """Print the rows of a model and kind."""
    cases = [(batch, beams) for batch in numbers(arguments.batches) for beams in numbers(arguments.beams)]
    floor = rate / step_bytes(folder, kind)
    chosen = [engine for engine in ENGINES[kind] if engine in arguments.engines.split(",")]
    Engine(OURS, kind, folder, arguments).run(*cases[-1])  # compiles kernels
    engines = {engine: Engine(engine, kind, folder, arguments) for engine in chosen}
    for batch, beams in cases:
        warm = {engine: process.run(batch, beams) for engine, process in engines.items()}
        runs = {engine: [] for engine in chosen}
        for _ in range(arguments.rounds):
            for engine, process in engines.items():
                time.sleep(0.05)
                runs[engine].append(process.run(batch, beams))
        if REFERENCE in warm:
            wanted[batch, beams] = warm[REFERENCE]["ids"]
        total = batch * arguments.tokens
        medians = {
            key: {engine: statistics.median(run[key] for run in each) for engine, each in runs.items()}
            for key in ("seconds", "cpu")
        }
        rates, cpu = ({engine: total / each for engine, each in medians[key].items()} for key in medians)
        for engine in chosen:
            peak = alone(engine, kind, folder, arguments, batch, beams)
            equal = before_difference(warm[engine]["ids"], wanted[batch, beams]) if (batch, beams) in wanted else "-"
            cells = [name, kind, batch, beams, engine, f"{rates[engine]:.0f}", f"{rates[OURS] / rates[engine]:.2f}"]
            cells += [f"{1000 / cpu[engine]:.2f}", f"{cpu[OURS] / cpu[engine]:.2f}"]
            cells += [f"{rates[engine] / batch / floor:.2f}", f"{peak / 1e6:.0f}", f"{equal} of {total}"]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    for process in engines.values():
        process.close()


def alone(engine, kind, folder, arguments, batch, beams):
    """Peak bytes of a process that runs one case."""
    process = Engine(engine, kind, folder, arguments)
    peak = process.run(batch, beams)["peak"]
    process.close()
    return peak


def numbers(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--kinds", default=",".join(ENGINES), help="f32, int8 or both")
    parser.add_argument("--engines", default=",".join(ENGINES["f32"]))
    parser.add_argument("--batches", default="1,8", help="texts of a batch")
    parser.add_argument("--beams", default="1,4")
    parser.add_argument("--tokens", type=int, default=48, help="generated tokens of each text")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of all engines")
    parser.add_argument("--threads", type=int, default=2, help="threads of each engine")
    parser.add_argument("--folder", help="where the models are kept; made if they are missing")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        engine, kind, folder = arguments.serve
        serve(engine, kind, Path(folder), arguments)
        return
    rate = bandwidth(arguments.threads)
    print(f"memory is read at {rate / 1e9:.1f} GB/s\n")
    heads = (
        "model",
        "kind",
        "texts",
        "beams",
        "engine",
        "tokens/s",
        "ours / this",
        "CPU ms/token",
        "ours / this in CPU",
    )
    heads += ("of floor", "peak MB", "equal")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        for name in arguments.models.split(","):
            folder = Path(arguments.folder or temporary, name)
            if not (folder / "ids.json").exists():
                folder.mkdir(parents=True, exist_ok=True)
                make(name, folder)
                export(folder)
                ids, texts = sources(folder)
                (folder / "tokens.json").write_text(json.dumps(texts), encoding="utf-8")
                (folder / "ids.json").write_text(json.dumps(ids))
            wanted = {}
            for kind in arguments.kinds.split(","):
                compare(name, kind, folder, arguments, rate, wanted)


if __name__ == "__main__":
    main()
