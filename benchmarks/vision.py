"""Latency and peak memory of image models against onnxruntime, OpenVINO and torch, and of int8 against f32.

    python benchmarks/vision.py [--networks resnet50,...] [--batch 1,8] [--runs 7] [--threads 2] [--engines ours,...]
        [--patience SECONDS] [--folder DIR] [--json FILE]

The networks have their published sizes and random weights. timm (SAM: transformers, YOLO: ultralytics) makes a network
and saves its weights; `candle-convert convert` writes them as ONNX, and `candle-convert quantize` as int8 (QDQ, per
channel, one random picture of calibration). candle-convert, onnxruntime and OpenVINO run the same file; torch runs its
own module with channels_last, without gradients, and once more after torch.compile. Each engine has a process of its
own, which runs twice to warm up, then waits while the others run; one that fails or is not ready in time has empty
cells. Peak memory is that of the process, less what is resident after importing the engine. Difference: the largest of
the first outputs of candle-convert and onnxruntime, relative to the largest value. The floor is the longer of two
times: multiply-adds at the rate of the fastest product of two f32 matrices in NumPy, which Winograd's convolutions may
undercut, and weights at the bandwidth of memory.
"""

import argparse
import json
import math
import select
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != HERE]  # onnx.py here would hide the package

import numpy as np  # noqa: E402

sys.path.append(str(HERE))
from engines import timed_rounds  # noqa: E402

NETWORKS = {
    "resnet50": ("timm", "resnet50", 224),
    "vit-b16": ("timm", "vit_base_patch16_224", 224),
    "convnext-t": ("timm", "convnext_tiny", 224),
    "efficientnet-b0": ("timm", "efficientnet_b0", 224),
    "mobilenetv4-m": ("timm", "mobilenetv4_conv_medium", 224),
    "yolov8n": ("ultralytics", "yolov8n.yaml", 640),
    "sam-vit-b": ("transformers", "SamConfig", 1024),
}
"""Library, its name of the network, and the side of pictures."""
OURS, INT8, PEER, EAGER, COMPILED = "ours", "ours int8", "onnxruntime", "torch", "torch compiled"
OPENVINO = "openvino"
ENGINES = (OURS, PEER, OPENVINO, EAGER, COMPILED, INT8)
GOALS = {PEER: 1.0, OPENVINO: 0.9, EAGER: 1.3, COMPILED: 1.3}
"""Speedup over each peer."""
INT8_GOAL = 1.5
PAUSE = 0.1
"""Seconds before each run: threads of onnxruntime and torch spin for a while."""


def torch_model(network):
    """The network as a torch module with random weights; statistics of batch norms are random too."""
    import torch

    library, name, _ = NETWORKS[network]
    torch.manual_seed(0)
    if library == "timm":
        import timm

        model = timm.create_model(name)
    elif library == "ultralytics":
        from ultralytics.nn.tasks import DetectionModel

        model = DetectionModel(name, verbose=False)
    else:
        import transformers

        model = transformers.SamModel(getattr(transformers, name)())
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 1.5)
                module.weight.uniform_(0.5, 1.0)
        for key, weight in model.named_parameters():
            if "pos" in key and not weight.any():
                weight.normal_(0, 0.02)
    return model.eval()


def make(network, folder):
    """Write the files of a network: NAME.onnx and NAME.int8.onnx."""
    from safetensors.torch import save_file

    library, name, side = NETWORKS[network]
    model, source = torch_model(network), folder / network
    source.mkdir(exist_ok=True)
    target = folder / f"{network}.onnx"
    if library == "transformers":
        model.save_pretrained(source)
        made = folder / f"{network}-graphs"
        candle("convert", source, made, "-t", "onnx", "--force")
        (made / "vision_encoder.onnx").rename(target)
    else:
        weights = source / "model.safetensors"
        save_file({key: value.contiguous() for key, value in model.state_dict().items()}, weights)
        if library == "timm":
            config = {"architecture": name, "num_classes": model.num_classes, "pretrained_cfg": {}}
            (source / "config.json").write_text(json.dumps(config), encoding="utf-8")
        candle("convert", source if library == "timm" else weights, target, "--force")
    picture = folder / f"{network}.picture.npz"
    np.savez(picture, pixel_values=pictures(1, side))
    options = ("--per-channel", "--activation-type", "uint8", "--calib", picture, "--force")
    candle("quantize", target, folder / f"{network}.int8.onnx", "int8", *options)


def candle(*arguments):
    """Run the command of ours."""
    subprocess.run([sys.executable, "-m", "candle_convert.convert", *map(str, arguments)], check=True)


def pictures(batch, side):
    """Random pixels [batch, 3, side, side]."""
    return np.random.default_rng(0).normal(size=(batch, 3, side, side)).astype(np.float32)


def runner(engine, network, batch, arguments):
    """Resident bytes after imports, and a function that runs the network once and returns its first output."""
    side, path = NETWORKS[network][2], arguments.folder / f"{network}{'.int8' * (engine == INT8)}.onnx"
    if engine in (EAGER, COMPILED):
        import torch

        torch.set_num_threads(arguments.threads)
        before = status("VmRSS")
        model = torch_model(network)
        model = getattr(model, "vision_encoder", model).to(memory_format=torch.channels_last)
        x = torch.from_numpy(pictures(batch, side)).to(memory_format=torch.channels_last)
        if engine == COMPILED:
            model = torch.compile(model)

        def run():
            with torch.inference_mode():
                model(x)

        return before, run
    import engines

    name = engine if engine in (PEER, OPENVINO) else "candle-convert"
    __import__((engines.ENGINES | engines.OPTIONAL)[name])
    before = status("VmRSS")
    session, feeds = engines.open_session(name, path, arguments.threads), {"pixel_values": pictures(batch, side)}
    return before, lambda: session.run(None, feeds)[0]


def status(name):
    """A field of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(dict(line.split(":", 1) for line in lines)[name].split()[0]) * 1024


def serve(engine, network, batch, arguments):
    """Run the network for each line of standard input; print milliseconds and peak bytes."""
    before, run = runner(engine, network, batch, arguments)
    found = run()
    if found is not None:
        np.save(arguments.folder / f"{network}.{engine.replace(' ', '-')}.npy", found)
    run()
    print(json.dumps({}), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        run()
        milliseconds = 1e3 * (time.perf_counter() - start)
        print(json.dumps({"ms": milliseconds, "peak": status("VmHWM") - before}), flush=True)


def started(engine, network, batch, arguments):
    """A process that serves an engine, warmed up; None if it fails or is not ready in time."""
    command = [sys.executable, __file__, "--serve", engine, "--networks", network, "--batch", str(batch)]
    command += ["--threads", str(arguments.threads), "--folder", str(arguments.folder)]
    made = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    ready, _, _ = select.select([made.stdout], [], [], arguments.patience)
    if ready and made.stdout.readline():
        return made
    made.kill()
    why = "failed" if ready else f"was not ready in {arguments.patience} s"
    print(f"{engine} {why}; run it with: {shlex.join(command)} </dev/null", file=sys.stderr)
    return None


def measure(network, batch, arguments):
    """Milliseconds, and peak bytes, of each engine."""
    begun = {engine: started(engine, network, batch, arguments) for engine in arguments.engines}
    processes = {engine: process for engine, process in begun.items() if process is not None}
    found = timed_rounds(processes, arguments.runs, PAUSE)
    times = {engine: statistics.median(run["ms"] for run in runs) for engine, runs in found.items()}
    return times, {engine: max(run["peak"] for run in runs) for engine, runs in found.items()}


def work(network, batch, folder):
    """Multiply-adds of the convolutions and matrix products of one run, and bytes of the weights."""
    import candle_convert as cc
    from candle_convert.runtime.ir.cost import operations
    from candle_convert.runtime.ir.shape_inference import infer

    graph, side = cc.open(folder / f"{network}.onnx"), NETWORKS[network][2]
    for value in graph.inputs:
        value.shape = (batch, 3, side, side)
    infer(graph)
    heavy = ("Conv", "MatMul", "Gemm", "Attention")
    return sum(operations(node) for node in graph.nodes if any(name in node.op.name for name in heavy)), graph.nbytes


def rates():
    """Multiply-adds a second of the fastest product of two f32 matrices, and bytes a second that are read."""
    a, block = np.ones((1536, 1536), np.float32), np.ones(1 << 26, np.float32)
    products, reads = [], []
    for _ in range(7):
        for times, run in ((products, lambda: a @ a), (reads, block.sum)):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
    return 1536**3 / min(products), block.nbytes / min(reads)


def relative_difference(network, folder):
    """The largest difference of the first outputs of candle-convert and onnxruntime, relative to the largest value."""
    mine, theirs = (np.load(folder / f"{network}.{engine}.npy") for engine in (OURS, PEER))
    return float(np.abs(mine - theirs).max() / np.abs(theirs).max())


def row(network, batch, arguments, speed):
    """Cells of a table's row, and the same as a dictionary."""
    times, peaks = measure(network, batch, arguments)
    count, nbytes = work(network, batch, arguments.folder)
    floor = 1e3 * max(count / speed[0], nbytes / speed[1])
    mine = times.get(OURS, math.nan)
    found = {"network": network, "batch": batch, "floor ms": floor, "ms": times, "peak": peaks}
    found["speedup"] = {engine: times[engine] / mine for engine in GOALS if engine in times}
    if INT8 in times:
        found["speedup"][INT8] = mine / times[INT8]
    if OURS in times and PEER in times:
        found["difference"] = relative_difference(network, arguments.folder)
    cells = [network, str(batch), f"{floor:.1f}"]
    cells += [f"{times[engine]:.1f}" if engine in times else "" for engine in arguments.engines]
    cells += [marked(found["speedup"].get(engine), goal) for engine, goal in goals(arguments.engines).items()]
    cells += [
        f"{peaks[engine] / 1e6:.0f}" if engine in peaks else "" for engine in arguments.engines if engine != COMPILED
    ]
    return [*cells, f"{found['difference']:.0e}" if "difference" in found else ""], found


def goals(engines):
    """The speedups that are asked for, over the peers and of int8."""
    return {engine: goal for engine, goal in (*GOALS.items(), (INT8, INT8_GOAL)) if engine in engines}


def marked(ratio, goal):
    """A ratio, bold if it misses its goal; empty for None."""
    if ratio is None:
        return ""
    return f"{ratio:.2f}" if ratio >= goal else f"**{ratio:.2f}**"


def heads(engines):
    """Names of the columns."""
    names = ["network", "batch", "floor ms", *(f"{engine} ms" for engine in engines)]
    pairs = goals(engines).items()
    names += [f"ours / int8 ({goal})" if engine == INT8 else f"{engine} / ours ({goal})" for engine, goal in pairs]
    return [*names, *(f"{engine} MB" for engine in engines if engine != COMPILED), "difference"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS), help="comma-separated networks")
    parser.add_argument("--batch", default="1,8", help="comma-separated numbers of pictures of a run")
    parser.add_argument("--runs", type=int, default=7, help="timed runs of each engine")
    parser.add_argument("--threads", type=int, default=2, help="threads of each engine")
    parser.add_argument("--engines", default=",".join(ENGINES), help="comma-separated engines")
    parser.add_argument(
        "--patience", type=float, default=240, help="seconds for an engine to start, compile and run twice"
    )
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm/vision"), help="folder of the models")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE too")
    parser.add_argument("--make", action="store_true", help="only write the models")
    parser.add_argument("--serve", choices=ENGINES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    networks, batches = arguments.networks.split(","), [int(batch) for batch in arguments.batch.split(",")]
    arguments.engines = arguments.engines.split(",")
    if arguments.serve:
        serve(arguments.serve, networks[0], batches[0], arguments)
        return
    arguments.folder.mkdir(exist_ok=True)
    for network in networks:
        if not (arguments.folder / f"{network}.int8.onnx").exists():
            make(network, arguments.folder)
    if arguments.make:
        return
    speed, found, columns = rates(), [], heads(arguments.engines)
    import engines

    print(f"{engines.machine()}, {arguments.threads} threads")
    print(f"f32 products reach {speed[0] / 1e9:.0f} G multiply-adds/s, reads {speed[1] / 1e9:.1f} GB/s\n")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    for network in networks:
        for batch in batches:
            cells, figures = row(network, batch, arguments, speed)
            found.append(figures)
            print(f"| {' | '.join(cells)} |", flush=True)
    for engine in (*GOALS, INT8):
        ratios = [each["speedup"][engine] for each in found if engine in each["speedup"]]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            print(f"\n{engine}: geometric mean of the speedups {mean:.2f}, lowest {min(ratios):.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
