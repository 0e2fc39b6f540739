"""Transcription by Whisper: seconds of audio a second, processor time, the first segment of a short file, peak memory.

    python benchmarks/audio.py AUDIO --short SHORT --engine NAME=PATH ... [--rounds 3] [--threads 2] [--beams 1]

NAME is `candle-convert` (a directory or a file of any format), `faster-whisper` (a directory of CTranslate2), with
`:COMPUTE_TYPE` behind it if not `int8`, `whisper.cpp` (a file, by pywhispercpp) or `transformers` (a directory). A name
may be given twice. Engines are processes that take turns; each has read both files once before it is timed. Figures are
medians, the first segment is of a warm process, and memory is the most that a process had. Processor time with one
thread tells something where other programs run beside.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

LANGUAGE = "en"


def candle_convert(path, threads, beams, kind):
    """A function of a file and of what is called with each segment's text."""
    import candle_convert as cc

    model = cc.models.load(path, threads=threads)

    def transcribe(audio, told):
        model.transcribe(
            audio, language=LANGUAGE, beams=beams, temperature=0.0, on_segment=lambda segment: told(segment.text)
        )

    return transcribe


def faster_whisper(path, threads, beams, kind):
    """As `candle_convert`; `kind`: the dtype that is computed with."""
    from faster_whisper import WhisperModel

    model = WhisperModel(path, device="cpu", compute_type=kind or "int8", cpu_threads=threads)

    def transcribe(audio, told):
        segments, _ = model.transcribe(audio, language=LANGUAGE, beam_size=beams, temperature=0.0)
        for segment in segments:
            told(segment.text)

    return transcribe


def whisper_cpp(path, threads, beams, kind):
    """As `candle_convert`."""
    from pywhispercpp.model import Model

    searched = {"params_sampling_strategy": 1} if beams > 1 else {}
    model = Model(path, n_threads=threads, print_progress=False, print_realtime=False, language=LANGUAGE, **searched)

    def transcribe(audio, told):
        options = {"beam_search": {"beam_size": beams, "patience": -1.0}} if beams > 1 else {}
        model.transcribe(
            audio, temperature=0.0, temperature_inc=0.0, new_segment_callback=lambda found: told(found.text), **options
        )

    return transcribe


def transformers(path, threads, beams, kind):
    """As `candle_convert`; all segments come at the end."""
    import soundfile
    import torch
    from transformers import AutoFeatureExtractor, AutoTokenizer, WhisperForConditionalGeneration

    torch.set_num_threads(threads)
    model = WhisperForConditionalGeneration.from_pretrained(path, dtype=torch.float32).eval()
    tokenizer, extract = AutoTokenizer.from_pretrained(path), AutoFeatureExtractor.from_pretrained(path)
    number, settings = tokenizer.convert_tokens_to_ids, model.generation_config
    if getattr(settings, "no_timestamps_token_id", None) is None:  # there is no generation_config.json
        settings.no_timestamps_token_id, settings.max_initial_timestamp_index = number("<|notimestamps|>"), 50
        settings.is_multilingual, settings.lang_to_id = True, {f"<|{LANGUAGE}|>": number(f"<|{LANGUAGE}|>")}
        settings.task_to_id = {"transcribe": number("<|transcribe|>")}
        settings.max_length = model.config.max_target_positions
        for name in ("suppress_tokens", "begin_suppress_tokens"):
            setattr(settings, name, getattr(model.config, name, None) or getattr(settings, name, None))

    def transcribe(audio, told):
        samples, rate = soundfile.read(audio, dtype="float32")
        given = extract(
            samples, sampling_rate=rate, return_tensors="pt", truncation=False, padding="longest",
            return_attention_mask=True,
        ) if len(samples) > 30 * rate else extract(samples, sampling_rate=rate, return_tensors="pt")  # fmt: skip
        with torch.no_grad():
            found = model.generate(
                **given, num_beams=beams, do_sample=False, return_timestamps=True, language=LANGUAGE, task="transcribe"
            )
        told(tokenizer.decode(found[0], skip_special_tokens=True))

    return transcribe


ENGINES = {
    "candle-convert": candle_convert,
    "faster-whisper": faster_whisper,
    "whisper.cpp": whisper_cpp,
    "transformers": transformers,
}


def work(arguments):
    """A process of one engine: a line of results for each line of input that names a file."""
    name, _, path = arguments.worker.partition("=")
    engine, _, kind = name.partition(":")
    transcribe = ENGINES[engine](path, arguments.threads, arguments.beams, kind)
    for line in sys.stdin:
        texts, times = [], []
        began, used = time.perf_counter(), time.process_time()

        def told(text, began=began, texts=texts, times=times):
            texts.append(text.strip())
            times.append(time.perf_counter() - began)

        transcribe(line.strip(), told)
        seconds = time.perf_counter() - began
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        used = time.process_time() - used
        row = {
            "seconds": seconds,
            "cpu": used,
            "first": times[0] if times else None,
            "mib": memory,
            "text": " ".join(texts),
        }
        print("@" + json.dumps({**row, "text": " ".join(texts)}), flush=True)


def asked(process, audio):
    """The results of a worker for a file."""
    process.stdin.write(f"{audio}\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith("@"):
            return json.loads(line[1:])
    raise SystemExit("an engine failed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("audio", type=Path, nargs="?")
    parser.add_argument("--short", type=Path, help="a file of a few seconds, for the first segment")
    parser.add_argument("--engine", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--beams", type=int, default=1)
    parser.add_argument("--texts", action="store_true", help="also what each engine heard")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return work(arguments)
    import soundfile

    length = soundfile.info(str(arguments.audio)).duration
    options = ["--threads", str(arguments.threads), "--beams", str(arguments.beams)]
    processes = {
        engine: subprocess.Popen(
            [sys.executable, __file__, "--worker", engine, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )
        for engine in arguments.engine
    }  # fmt: skip
    files = [arguments.audio, *([arguments.short] if arguments.short else [])]
    heard = {engine: [] for engine in processes}
    for turn in range(arguments.rounds + 1):
        for engine, process in processes.items():
            rows = [asked(process, file) for file in files]
            if turn:
                heard[engine].append(rows)
    print(f"{'engine':<44} {'audio s/s':>9} {'cpu s':>7} {'first s':>8} {'MiB':>7}")
    for engine, rounds in heard.items():
        speed = length / statistics.median(rows[0]["seconds"] for rows in rounds)
        first = statistics.median(rows[-1]["first"] or 0.0 for rows in rounds)
        used = statistics.median(rows[0]["cpu"] for rows in rounds)
        memory = max(rows[0]["mib"] for rows in rounds)
        print(f"{engine:<44} {speed:>9.1f} {used:>7.2f} {first:>8.2f} {memory:>7.0f}")
        if arguments.texts:
            print(f"  {rounds[0][0]['text']}")
    for process in processes.values():
        process.stdin.close()
        process.wait()
    return None


if __name__ == "__main__":
    main()
