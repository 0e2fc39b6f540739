"""Tokens a second, latencies and memory of a server, alone or against llama-server in the same run.

    python benchmarks/serve.py MODEL [--clients 1,4,16] [--prompt 128] [--tokens 128] [--shared 512] [--rounds 3]
        [--embeddings MODEL] [--requests 200,2000] [--threads 2] [--peer URL | --llama-server PATH] [--options "..."]
    python benchmarks/serve.py MODEL --soak 1h

MODEL is a GGUF file or a directory with a tokenizer. Ours runs as `candle-convert serve` in a process of its own, with
the further words of `--options`; llama-server is started with as many slots, or answers at `--peer`. Prompts are token
ids drawn with a fixed seed, other ones in each round and for each number of clients; generation is greedy and ends at
`--tokens`; end tokens do not end it. Clients are threads that stream by HTTP/1.1. Both servers answer a round before
the measured ones, and take turns; medians of rounds are printed, and percentiles of all latencies of a case.

`--shared`: prompts of so many common tokens and 16 others, with the largest number of clients. `--embeddings`: texts of
2 to 120 words a second by 16 clients, one text a request, from a server of that model. `--requests`: resident memory
after so many requests of 8 tokens. `--soak`: 64 clients for that time (30s, 5m, 1h), of which some hang up, and others
send bodies that are too large or no JSON; it fails if a good request does, and prints memory by the tenth of the time.
"""

import argparse
import http.client
import itertools
import json
import random
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != HERE]  # onnx.py here would hide the package

OURS, PEER = "candle-convert", "llama-server"
WORDS = ("the of and", "it have", "to", "that for they with", "not on", "by this we", "you do but from")
UNITS = {"s": 1, "m": 60, "h": 3600}
RETRIES = 100


class Served:
    """A server that answers.

    Attributes:
        name: in tables.
        address: host and port.
        process: of the server, None for one at a given URL.
        ready: seconds from its start to its first answer.
    """

    def __init__(self, name, address, process=None, ready=None):
        self.name, self.address, self.process, self.ready = name, address, process, ready

    def memory(self):
        """Resident bytes."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) * 1024

    def connection(self):
        return http.client.HTTPConnection(self.address, timeout=600)

    def post(self, path, body):
        """Status and JSON of an answer."""
        connection = self.connection()
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, json.loads(content)

    def close(self):
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


def ours(model, clients, threads, options):
    """Our server."""
    words = ["serve", model, "--port", "0", "--json", "--parallel", str(clients), "--threads", str(threads), *options]
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "candle_convert.convert", *words], stdout=subprocess.PIPE, text=True
    )
    line = process.stdout.readline()
    if not line:
        sys.exit(f"candle-convert {' '.join(words)} ended with {process.wait()}")
    return Served(OURS, urlsplit(json.loads(line)["address"]).netloc, process, time.perf_counter() - begin)


def llama_server(program, model, clients, threads, length):
    """llama-server with a slot for each client."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    begin = time.perf_counter()
    process = subprocess.Popen(
        [program, "-m", model, "--port", str(port), "-t", str(threads), "-np", str(clients), "-c",
         str(clients * length)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )  # fmt: skip
    made = Served(PEER, f"127.0.0.1:{port}", process)
    while process.poll() is None:
        try:
            connection = made.connection()
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                made.ready = time.perf_counter() - begin
                return made
        except OSError:
            pass
        time.sleep(0.02)
    sys.exit(f"{program} ended with {process.returncode}")


def streamed(server, ids, count):
    """Seconds of each token's arrival since the request was sent."""
    begin = time.perf_counter()
    connection = server.connection()
    body = {"prompt": ids, "max_tokens": count, "temperature": 0, "stream": True, "logprobs": 0, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        sys.exit(f"{server.name}: {answer.status} {answer.read().decode(errors='replace')[:500]}")
    times = [
        time.perf_counter() - begin
        for line in answer
        if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0]["finish_reason"] is None
    ]
    connection.close()
    return times


def prompts(count, length, shared, vocabulary, seed):
    """Lists of token ids, the first `shared` of which are common."""
    draw = random.Random(seed)
    start = [draw.randrange(10, vocabulary) for _ in range(shared)]
    return [start + [draw.randrange(10, vocabulary) for _ in range(length - shared)] for _ in range(count)]


def at_once(server, asked, count):
    """Tokens a second in total, and the arrival times of each request."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(len(asked)) as pool:
        times = list(pool.map(lambda ids: streamed(server, ids, count), asked))
    return sum(map(len, times)) / (time.perf_counter() - begin), times


def percentile(values, share=0.95):
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def compared(servers, clients, rounds, make, count):
    """Rates and latencies of each server over rounds that take turns: tokens/s, first token, between tokens."""
    found = {server.name: ([], [], []) for server in servers}
    for seed in range(rounds + 1):
        for server in servers:
            rate, times = at_once(server, make(seed), count)
            if seed:
                rates, firsts, gaps = found[server.name]
                rates.append(rate)
                firsts += [each[0] for each in times if each]
                gaps += [later - earlier for each in times for earlier, later in itertools.pairwise(each)]
    return {
        name: (statistics.median(rates), percentile(firsts), percentile(gaps or [0]))
        for name, (rates, firsts, gaps) in found.items()
    }


def print_row(case, found):
    """A case of the table; the ratio is of tokens a second, ours to the other server's."""
    for name, (rate, first, gap) in found.items():
        ratio = f"{found[OURS][0] / rate:.2f}" if name != OURS else ""
        print(f"| {case} | {name} | {rate:.1f} | {first:.3f} | {gap:.3f} | {ratio} |", flush=True)


def embeddings(server, count=200):
    """Texts a second of 16 clients."""
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(2, 30))) for _ in range(count)]

    def one(text):
        status, answer = server.post("/v1/embeddings", {"input": text})
        if status != 200:
            sys.exit(f"{server.name}: {answer}")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, texts[:32]))
        begin = time.perf_counter()
        list(pool.map(one, texts))
    return count / (time.perf_counter() - begin)


def memories(server, counts, vocabulary):
    """Resident bytes after numbers of requests."""
    found, sent = {}, 0
    for count in counts:
        asked = prompts(count - sent, 24, 0, vocabulary, count)
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda ids: streamed(server, ids, 8), asked))
        sent = count
        found[count] = server.memory()
    return found


def soak(server, seconds, vocabulary, clients=64):
    """Requests of all kinds for so many seconds: counts by kind, and memory by the tenth of the time."""
    end = time.monotonic() + seconds
    counts, failures, lock = {}, [], threading.Lock()

    def noted(kind):
        with lock:
            counts[kind] = counts.get(kind, 0) + 1

    def good(draw):
        ids = [draw.randrange(10, vocabulary) for _ in range(draw.randint(1, 100))]
        for _ in range(RETRIES):
            status, answer = server.post("/v1/completions", {"prompt": ids, "max_tokens": 8, "temperature": 0})
            if status != 429:
                break
            time.sleep(1)
        if status != 200 or answer["choices"][0]["finish_reason"] not in ("stop", "length"):
            failures.append((status, answer))

    def hangs_up(draw):
        connection = server.connection()
        body = {"prompt": [draw.randrange(10, vocabulary)] * 8, "max_tokens": 200, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        time.sleep(draw.random())
        connection.close()

    def oversize(draw):
        connection = server.connection()
        connection.putrequest("POST", "/v1/completions")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(1 << 40))
        connection.endheaders(b"{")
        status = connection.getresponse().status
        if status != 413:
            failures.append(f"a body that is too large is answered with {status}")
        connection.close()

    def malformed(draw):
        connection = server.connection()
        connection.request("POST", "/v1/completions", draw.randbytes(200), {"Content-Type": "application/json"})
        if not 400 <= connection.getresponse().status < 500:
            failures.append("a malformed body is taken")
        connection.close()

    def client(seed):
        draw = random.Random(seed)
        while time.monotonic() < end:
            kind = draw.choices((good, hangs_up, oversize, malformed), (6, 2, 1, 1))[0]
            try:
                kind(draw)
            except (OSError, http.client.HTTPException) as error:
                failures.append(f"{kind.__name__}: {error!r}")
            noted(kind.__name__)

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(clients)]
    for thread in threads:
        thread.start()
    memory = []
    for _ in range(10):
        time.sleep(seconds / 10)
        memory.append(server.memory())
    for thread in threads:
        thread.join()
    print(", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items())))
    print("MB:", " ".join(f"{each / 1e6:.0f}" for each in memory))
    if failures:
        sys.exit(f"{len(failures)} failures, such as {failures[0]}")


def main():
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # servers end with it
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--clients", default="1,4,16")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--shared", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--embeddings")
    parser.add_argument("--requests", default="200,2000")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vocabulary", type=int, default=500, help="token ids that prompts are drawn from")
    parser.add_argument("--peer")
    parser.add_argument("--llama-server")
    parser.add_argument("--options", default="")
    parser.add_argument("--soak")
    arguments = parser.parse_args()
    clients, vocabulary = list(map(int, arguments.clients.split(","))), arguments.vocabulary
    options = shlex.split(arguments.options)
    own = ours(arguments.model, max(clients), arguments.threads, options)
    servers = [own]
    try:
        if arguments.soak:
            soak(own, float(arguments.soak[:-1]) * UNITS[arguments.soak[-1]], vocabulary)
            return
        if arguments.peer:
            servers.append(Served(PEER, urlsplit(arguments.peer).netloc))
        elif arguments.llama_server:
            length = max(arguments.prompt, arguments.shared + 16) + arguments.tokens
            servers.append(
                llama_server(arguments.llama_server, arguments.model, max(clients), arguments.threads, length)
            )
        for server in servers:
            if server.ready is not None:
                print(f"{server.name}: ready after {server.ready:.2f} s")
        print(
            "| case | server | tokens/s | p95 first token s | p95 between tokens s | ratio |\n|---|---|---|---|---|---|"
        )
        for count in clients:

            def make(seed, count=count):
                return prompts(count, arguments.prompt, 0, vocabulary, f"{count}/{seed}")

            print_row(f"{count} clients", compared(servers, count, arguments.rounds, make, arguments.tokens))
        if arguments.shared:

            def shared(seed):
                return prompts(max(clients), arguments.shared + 16, arguments.shared, vocabulary, f"shared/{seed}")

            case = f"{max(clients)} clients, {arguments.shared} shared tokens"
            print_row(case, compared(servers, max(clients), arguments.rounds, shared, arguments.tokens))
        for count, memory in memories(own, list(map(int, arguments.requests.split(","))), vocabulary).items():
            print(f"{OURS}: {memory / 1e6:.0f} MB after {count:,} requests", flush=True)
    finally:
        for server in servers:
            server.close()
    if arguments.embeddings:
        server = ours(arguments.embeddings, 16, arguments.threads, [])
        try:
            print(f"{OURS}: {embeddings(server):.1f} embeddings/s by 16 clients")
        finally:
            server.close()


if __name__ == "__main__":
    main()
