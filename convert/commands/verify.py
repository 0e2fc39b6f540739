"""``verify``: checks that a model is a faithful conversion of another, and writes a certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import UsageError, printable
from ...runtime.base.units import counted
from ..cli import option_values, shared_options
from ..cluster import cluster_option
from ..console.output import current

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...runtime.ir.graph import Graph
    from ..cluster.workers.opening import Opening
    from ..compare.certificate import Verification
    from ..evaluate.same_tokens import OutputDistance
    from ..run.compare_outputs import Compared

GROUP = "Inspect and check"
EPILOG = """\b
Examples
  candle-convert verify model.gguf q4.gguf --certificate q4.verify.json
  candle-convert verify model-dir/ q4.gguf --prompt "The capital of France is"
  candle-convert verify model.onnx half.onnx --input x=1x3x48x320 --nodes
"""
SHOWN, FEW = 20, 5
"""Tensors that are listed where some fail, and where none does."""


NETWORKS = (
    click.option(
        "--input", "inputs", multiple=True, metavar="NAME=VALUE", help="Networks: FILE.npy, 1x3x48x320, random ..."
    ),
    click.option(
        "--rtol", type=float, default=1e-4, metavar="X", help="Networks: relative tolerance, by the largest magnitude."
    ),
    click.option("--atol", type=float, default=1e-6, metavar="X", help="Networks: absolute tolerance."),
    click.option("--nodes", is_flag=True, help="Networks: show the first value that differs."),
    click.option(
        "--device",
        metavar="DEVICE",
        default="cpu",
        help="Networks: device of DST: cpu (default), cuda or cuda:N; SRC runs on the CPU.",
    ),
    *shared_options.DEVICE[1:],
)


@click.command("verify", epilog=EPILOG)
@click.argument("source", metavar="SRC", type=shared_options.PATH)
@click.argument("made", metavar="DST", type=shared_options.PATH)
@click.option(
    "--level",
    default="full",
    type=click.Choice(["full", "sample", "none"]),
    help="Compare all values, samples of each tensor, or only outputs.",
)
@click.option(
    "--certificate",
    metavar="FILE.json",
    type=shared_options.TEXT_OUT,
    help="Write a certificate with the SHA-256 of all files.",
)
@click.option("-p", "--prompt", "prompts", multiple=True, metavar="TEXT", help="Also run both models on a text.")
@click.option(
    "--prompt-file",
    metavar="FILE",
    type=shared_options.PATH,
    help="Also run both models on each line of a file; - reads standard input.",
)
@shared_options.PROMPT_IMAGES
@click.option("-f", "--force", is_flag=True, help="Replace an existing certificate.")
@click.option("--all", "all_rows", is_flag=True, help="List all tensors, not only those with the largest errors.")
@click.option("--threads", type=click.IntRange(1), help="Comparison threads (default: the number of cores, at most 4).")
@click.option("--from-dst", metavar="FMT", type=shared_options.FORMAT, help="Format of DST; --from is that of SRC.")
@shared_options.options(
    NETWORKS, shared_options.CHOOSING, shared_options.PROGRESS, cluster_option.RUNS, shared_options.READING
)
@cluster_option.connected
def COMMAND(source: str, made: str, **values: Any) -> int:  # noqa: N802
    """Check that DST matches SRC within the error of its types.

    Floats may be rounded to their dtype; quantized types have error bounds per block and per tensor. If names follow
    two conventions, as in a Hugging Face directory and a GGUF file, tensors are matched by the architecture of both
    models. Two networks are run on the same inputs, and their outputs compared; so are a checkpoint of an image model
    and a network, with batch norms and branches as the checkpoint has them. With --prompt, both models are run on the
    same tokens (and pictures, with --image), a network against a checkpoint too, and of text-to-image models the first
    denoising step. Exits with 1 if a tensor is missing, changed or beyond its bound, if the names cannot be matched, or
    if outputs differ by a tenth of their power.
    """
    from ..compare.certificate import verify
    from ..compare.network_pairs import network_pairs

    placed = option_values.device(values)
    asked = bool(values["prompts"] or values["prompt_file"])
    how = {"running": True} if values["level"] == "none" else {"parts": True}
    before = option_values.open_input(source, values, **how)
    after = option_values.open_input(made, values | {"source_format": values["from_dst"]}, **how)
    if values["level"] == "none" and not asked:
        raise UsageError("E-OPTION", None, "--level none compares outputs only", hint="Add --prompt or --prompt-file")
    if values["images"] and not asked:
        raise UsageError("E-OPTION", None, "--image needs a prompt", hint='Add --prompt "What is this?"')
    pairs = network_pairs(before, after)
    if pairs and not asked:
        return _networks(pairs, [source, made], values, placed)
    if placed["device"] != "cpu":
        raise UsageError("E-OPTION", None, "--device only applies to networks; tensors are compared on the CPU")
    found, payload = None, {}
    if values["level"] != "none":
        found = verify(
            before,
            after,
            level=values["level"],
            select=option_values.selection(values),
            threads=values["threads"],
            progress=option_values.progress(values),
            crew=_crew(source, made, values),
        )
        show(found, all_rows=values["all_rows"])
        payload = found.to_json()
    distances = _on_prompts(before, after, [source, made], values) if asked else []
    if distances:
        payload["outputs"] = [item.to_json() for item in distances]
    if found is not None:
        _write(found, values)
    ok = (found is None or found.ok) and all(item.ok for item in distances)
    current().emit({"inputs": [source, made], **payload}, ok=ok)
    return 0 if ok else 1


def _crew(source: str, made: str, values: dict[str, Any]) -> Any:
    """Comparison on the workers of a cluster; None without one."""
    if values["cluster"] is None:
        return None
    from ..cluster.tensor_reports import Comparison, checks_on

    cluster_option.check(values["cluster"], [source, made])
    before, after = _openings([source, made], values)
    return checks_on(values["cluster"], Comparison(before, after, values["level"], option_values.selection(values)))


def _openings(paths: Sequence[str], values: dict[str, Any]) -> list[Opening]:
    """How workers open SRC and DST."""
    source, made = paths
    after = cluster_option.opening(made, values | {"source_format": values["from_dst"]})
    return [cluster_option.opening(source, values), after]


def _on_prompts(before: Graph, after: Graph, paths: Sequence[str], values: dict[str, Any]) -> list[OutputDistance]:
    """Run both models on the same tokens, or one denoising step of both, and show how far their outputs are apart."""
    from ..evaluate.prompt_distances import prompt_distances
    from ..run.text_lines import texts_of

    prompts = [text for text in texts_of(values["prompts"], values["prompt_file"], "--prompt") if text.strip()]
    if values["cluster"] is None:
        found = prompt_distances(before, after, prompts, values["threads"], values["images"])
    else:
        from ..cluster.output_reports import PromptOutputs
        from ..open.hub import absolute

        cluster_option.check(values["cluster"], paths)
        first, second = _openings(paths, values)
        images = [absolute(path) for path in values["images"]]
        work = PromptOutputs(first, second, values["level"] == "none", images)
        found = next(values["cluster"].in_order(work, [prompts]))
    for item in found:
        line = f"NMSE {item.nmse:.2g} ({item.grade}), least cosine {item.cosine:.6f}"
        if item.kld is not None and item.same_top is not None:
            line += f", KL {item.kld:.2g}, same top {item.same_top:.1%}"
        current().say(f"{'✓' if item.ok else '✗'} {printable(item.name)} on {counted(item.rows, 'row')}: {line}")
    return found


def _networks(
    pairs: dict[str, tuple[Graph, Graph]], paths: list[str], values: dict[str, Any], placed: dict[str, Any]
) -> int:
    """Run both and compare outputs, and on request the values between."""
    found = []
    for name, (before, after) in pairs.items():
        if name:
            current().say(printable(name))
        found.append(_network(name, (before, after), paths, values, placed))
    ok = all(each["ok"] for each in found)
    named = dict(zip(pairs, found, strict=True))
    current().emit({"inputs": paths, **(found[0] if "" in pairs else {"graphs": named})}, ok=ok)
    return 0 if ok else 1


def _network(
    name: str, pair: tuple[Graph, Graph], paths: list[str], values: dict[str, Any], placed: dict[str, Any]
) -> dict[str, Any]:
    """One graph of each model on the same inputs, as JSON."""
    from ..run.feeds import feeds, hint_at_shapes

    fed, generated = feeds(pair[0], values["inputs"])
    with hint_at_shapes(pair[0], generated):
        rows, first = _compared(name, pair, fed, paths, values, placed)
    out = current()
    for line in generated:
        out.say(f"input {printable(line)}")
    marks = ("✗", "✓")
    cells = [
        (
            marks[row.same],
            f"{row.max_abs:.3g}",
            f"{row.max_rel:.3g}",
            f"{row.snr_db:.1f}",
            f"{row.cosine:.6f}",
            row.name,
        )
        for row in rows
    ]
    out.table(("", "max abs", "max rel", "SNR dB", "cosine", "output"), cells, right=(1, 2, 3, 4))
    ok = all(row.same for row in rows)
    if first is not None:
        out.say(f"first difference: {printable(first.name)} (max abs {first.max_abs:.3g}, SNR {first.snr_db:.1f} dB)")
    out.say(f"{'✓' if ok else '✗'} {counted(len(rows), 'output')}: {sum(row.same for row in rows)} agree")
    found = [row.to_json() for row in rows]
    return {"outputs": found, "first_difference": None if first is None else first.to_json(), "ok": ok}


def _compared(
    name: str,
    pair: tuple[Graph, Graph],
    fed: dict[str, Any],
    paths: list[str],
    values: dict[str, Any],
    placed: dict[str, Any],
) -> tuple[list[Compared], Compared | None]:
    """The comparison of each output, and on request the first value that differs, in this process or by a worker."""
    from ..run.compare_outputs import first_difference, outputs

    allowed = {"rtol": values["rtol"], "atol": values["atol"], "placed": placed}
    if values["cluster"] is not None:
        from ..cluster.output_reports import NetworkOutputs

        cluster_option.check(values["cluster"], paths)
        first, second = _openings(paths, values)
        work = NetworkOutputs(first, second, values["nodes"], allowed)
        found: tuple[list[Compared], Compared | None] = next(values["cluster"].in_order(work, [(name, fed)]))
        return found
    allowed["threads"] = values["threads"]
    rows = outputs(*pair, fed, **allowed)
    differs = values["nodes"] and not all(row.same for row in rows)
    return rows, first_difference(*pair, fed, **allowed) if differs else None


def _write(found: Verification, values: dict[str, Any]) -> None:
    path = values["certificate"]
    if path is not None:
        import json

        from ..console.atomic_replace import replacing

        with replacing(path, force=values["force"]) as file:
            file.write(
                json.dumps(found.certificate(), indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace")
                + b"\n"
            )
        current().say(f"  certificate {path}")


def show(found: Verification, *, all_rows: bool) -> None:
    """The worst tensors and the verdict."""
    worst = [row for row in found.worst(SHOWN if found.failed else FEW) if row.snr_db is not None or not row.ok]
    rows = found.tensors if all_rows else worst
    if rows:
        current().lines(found.table(rows))
    count = len(found.tensors)
    equal = sum(row.status == "equal" for row in found.tensors)
    within = sum(row.status == "within" for row in found.tensors)
    looked = "" if found.level == "full" else ", by samples"
    failed = f", {len(found.failed)} failed" if found.failed else ""
    by = "" if found.architecture is None else f", by the names of the architecture {found.architecture}"
    verdict = (
        f"{counted(count, 'tensor')}: {equal} equal, {within} within the bounds of their types{failed}{looked}{by}"
    )
    current().say(f"{'✓' if found.ok else '✗'} {verdict}")
