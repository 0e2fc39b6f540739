"""MetaVoice of a folder with the authors' checkpoints: greedy codes against both stages in torch, the sound against
transformers' EnCodec."""

import candle_convert as cc
import numpy as np
import pytest
import soundfile
import torch
from candle_convert.convert.cli.main import run
from candle_convert.models.generation.sampling import Sampling
from candle_convert.models.pipelines.audio.synthesis.synthesis_model import CodeRequest, Speech
from candle_convert.tests.builders.audio_codecs import ENCODEC, codec
from torch.nn import functional

SIZE, WIDTH, HEADS, LAYERS, VOICE, INNER, PLACES = 32, 128, 1, 2, 12, 256, 96
WORDS, END = {b"a" + b"b": 256}, 257
OFFSET = 2 * SIZE + 1
FIRST = {"n_layer": LAYERS, "n_head": HEADS, "n_embd": WIDTH, "block_size": PLACES, "vocab_sizes": [OFFSET + END + 1]}
SECOND = {
    "n_layer": LAYERS, "n_head": 2, "n_embd": WIDTH, "block_size": PLACES, "bias": False, "causal": False,
    "vocab_sizes": [SIZE + 1 + END + 1, SIZE + 1], "target_vocab_sizes": [SIZE + 1] * 3, "norm_type": "layernorm",
    "nonlinearity_type": "gelu",
}  # fmt: skip
TOKENS = [OFFSET + token for token in (256, 32, 256, 33, END)]
"""Of ``ab  ab!``."""


def layer(i, fused, mlp):
    name = f"transformer.h.{i}"
    return {
        f"{name}.ln_1.weight": (WIDTH,),
        f"{name}.attn.c_attn.weight": (fused, WIDTH),
        f"{name}.attn.c_proj.weight": (WIDTH, WIDTH),
        f"{name}.ln_2.weight": (WIDTH,),
    } | {f"{name}.mlp.{part}.weight": shape for part, shape in mlp.items()}


def stage(embeddings, heads, mlp):
    shapes = {"transformer.wpe.weight": (PLACES, WIDTH), "transformer.ln_f.weight": (WIDTH,)}
    shapes |= {"speaker_cond_pos.weight": (WIDTH, VOICE)}
    shapes |= {f"transformer.wtes.{i}.weight": (rows, WIDTH) for i, rows in enumerate(embeddings)}
    shapes |= {f"lm_heads.{i}.weight": (rows, WIDTH) for i, rows in enumerate(heads)}
    for i in range(LAYERS):
        shapes |= layer(i, 3 * WIDTH, mlp)
    return {
        name: torch.randn(shape) / shape[-1] ** 0.5 if len(shape) > 1 else 1 + torch.randn(shape) / 5
        for name, shape in shapes.items()
    }


def reference(state, ids, voice, *, heads, norm, mlp, causal):
    """Hidden states of one sequence, ids [codebooks, length]."""
    x = sum(state[f"transformer.wtes.{i}.weight"][row] for i, row in enumerate(ids))
    x = x + state["transformer.wpe.weight"][: len(x)] + state["speaker_cond_pos.weight"] @ voice
    for i in range(LAYERS):
        name = f"transformer.h.{i}"
        fused = norm(x, state[f"{name}.ln_1.weight"]) @ state[f"{name}.attn.c_attn.weight"].T
        q, k, v = (part.view(len(x), heads, -1).transpose(0, 1) for part in fused.split(WIDTH, -1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        x = x + y.transpose(0, 1).reshape(len(x), WIDTH) @ state[f"{name}.attn.c_proj.weight"].T
        x = x + mlp(norm(x, state[f"{name}.ln_2.weight"]), lambda part, n=name: state[f"{n}.mlp.{part}.weight"].T)
    return norm(x, state["transformer.ln_f.weight"])


def first_logits(state, ids, voice):
    hidden = reference(
        state, torch.tensor([ids]), voice, heads=HEADS, causal=True,
        norm=lambda x, weight: functional.rms_norm(x, (WIDTH,), weight, 1e-5),
        mlp=lambda x, w: (functional.silu(x @ w("swiglu.w1")) * (x @ w("swiglu.w3"))) @ w("c_proj"),
    )  # fmt: skip
    return hidden[-1] @ state["lm_heads.0.weight"].T


def second_logits(state, ids, voice):
    hidden = reference(
        state, ids, voice, heads=2, causal=False,
        norm=lambda x, weight: functional.layer_norm(x, (WIDTH,), weight, None, 1e-5),
        mlp=lambda x, w: functional.gelu(x @ w("c_fc")) @ w("c_proj"),
    )  # fmt: skip
    return [hidden @ state[f"lm_heads.{i}.weight"].T for i in range(3)]


def speaker_encoder():
    lstm, linear = torch.nn.LSTM(40, 16, 3, batch_first=True), torch.nn.Linear(16, VOICE)
    state = {f"lstm.{name}": tensor for name, tensor in lstm.state_dict().items()}
    return state | {"linear.weight": linear.weight.detach(), "linear.bias": linear.bias.detach().abs()}


def expected_codes(first, second, voice, frames, scale=3.0):
    """Greedy codes [5, frames] as the authors' code writes them."""
    ids, sides = list(TOKENS), ([], [])
    for _ in range(2 * frames):
        with_voice, without = first_logits(first, ids, voice), first_logits(first, ids, torch.zeros(VOICE))
        token = int((scale * with_voice + (1 - scale) * without).argmax())
        if token == 2 * SIZE:
            break
        if token < 2 * SIZE:
            sides[token // SIZE].append(token % SIZE)
        ids.append(token)
    count = min(map(len, sides))
    known = torch.full((2, PLACES), SIZE)
    known[0, : len(TOKENS)] = torch.tensor(TOKENS) - SIZE
    for row, side in zip(known, sides, strict=True):
        row[len(TOKENS) : len(TOKENS) + count] = torch.tensor(side[:count])
    span = slice(len(TOKENS), len(TOKENS) + count)
    others = [logits[span, :SIZE].argmax(-1) for logits in second_logits(second, known, voice)]
    return torch.stack([*known[:, span], *others])


@pytest.fixture(scope="module")
def parts():
    torch.manual_seed(1)
    gated = {"swiglu.w1": (INNER, WIDTH), "swiglu.w3": (INNER, WIDTH), "c_proj": (WIDTH, INNER)}
    first = stage(FIRST["vocab_sizes"], FIRST["vocab_sizes"], gated)
    for text in range(2 * SIZE, len(first["lm_heads.0.weight"])):
        first["lm_heads.0.weight"][text] = 0  # codes alone are probable
    plain = {"c_fc": (4 * WIDTH, WIDTH), "c_proj": (WIDTH, 4 * WIDTH)}
    second = stage(SECOND["vocab_sizes"], SECOND["target_vocab_sizes"], plain)
    return first, second, codec("Encodec", **ENCODEC)


@pytest.fixture(scope="module")
def folder(parts, tmp_path_factory):
    first, second, sound = parts
    path = tmp_path_factory.mktemp("metavoice")
    ranks = {bytes([byte]): byte for byte in range(256)} | WORDS
    tokenizer = {"name": "bpe", "pat_str": r"\w+|[^\s\w]+|\s+", "mergeable_ranks": ranks, "offset": OFFSET}
    meta = {"tokenizer": {**tokenizer, "special_tokens": {"<|endoftext|>": END}}}
    named = {f"_orig_mod.{name}": tensor for name, tensor in first.items()}
    torch.save({"model": named, "model_args": FIRST, "config": {"causal": True}, "meta": meta}, path / "first_stage.pt")
    torch.save(
        {"model": second, "model_args": SECOND, "config": {"causal": False}, "meta": {}}, path / "second_stage.pt"
    )
    torch.save({"model_state": speaker_encoder(), "step": 1}, path / "speaker_encoder.pt")
    sound.save_pretrained(path / "encodec")
    noise = np.random.default_rng(0).standard_normal(24000).astype(np.float32)
    soundfile.write(path / "voice.wav", noise * np.hanning(24000) / 4, 16000)
    return path


@torch.no_grad()
def test_greedy_codes_and_sound(parts, folder):
    first, second, sound = parts
    ours = cc.models.load(folder, activations="f32")
    assert ours.tokens.encode("ab  ab!\t") == TOKENS
    voice = ours._voice(str(folder / "voice.wav"))
    assert abs(np.linalg.norm(voice) - 1) < 1e-5
    speech = Speech(speaker=str(folder / "voice.wav"))
    found = ours.codes(CodeRequest("ab ab!", speech, Sampling(temperature=0), 3.0, 12))
    expected = expected_codes(first, second, torch.tensor(voice), 12)
    assert expected.shape[1] > 3
    assert np.array_equal(found, expected.numpy())
    samples, rate = ours.speak(
        "ab ab!", speaker=str(folder / "voice.wav"), temperature=0.0, max_seconds=11.5 * 24 / 16000
    )
    decoded = sound.decode(expected[None, None], [None]).audio_values[0, 0].clamp(-1, 1).numpy()
    assert rate == 16000
    assert np.abs(samples - decoded).max() <= 1e-4 * np.abs(decoded).max()


def test_commands(folder, tmp_path, capsys):
    out = tmp_path / "a.wav"
    words = ["speak", str(folder), "-p", "ab ab!", "--speaker", str(folder / "voice.wav"), "--max-seconds", "0.01"]
    assert run([*words, "--seed", "1", "-o", str(out)]) == 0
    assert len(soundfile.read(out)[0])
    assert run(["inspect", str(folder)]) == 0
    assert "first_stage/" in capsys.readouterr().out
    for options, why in ((["--speaker", "absent.wav"], "absent.wav"), (["-p", "日本"], "English")):
        assert run([*words, *options, "-o", str(tmp_path / "b.wav")]) != 0
        said = capsys.readouterr().err
        assert why in said
        assert said.count("✗") == 1


def test_copies(folder, tmp_path):
    """A copy of the whole makes the same sound, and so does a copy of that."""
    cc.convert(folder, tmp_path / "copy", to="safetensors")
    cc.convert(tmp_path / "copy", tmp_path / "again", to="pytorch")
    speech = {"speaker": str(folder / "voice.wav"), "temperature": 0.0, "max_seconds": 0.01}
    expected, _ = cc.models.load(folder, activations="f32").speak("ab ab!", **speech)
    assert len(expected)
    for path in (tmp_path / "copy", tmp_path / "again"):
        found, _ = cc.models.load(path, activations="f32").speak("ab ab!", **speech)
        assert np.array_equal(found, expected)


def refused(words, why, capsys):
    assert run(list(map(str, words))) != 0
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith(("! W-", " note "))]
    assert why in said[0]
    assert len(said) == 1


@pytest.mark.parametrize(
    ("seconds", "loudness", "why"), [(2.0, 0.0, "the sound is silent"), (0.3, 0.5, "the voice is too short")]
)
def test_voices_that_are_none(seconds, loudness, why, folder, tmp_path, capsys):
    noise = np.random.default_rng(0).uniform(-1, 1, int(seconds * 16000))
    soundfile.write(tmp_path / "voice.wav", loudness * noise, 16000)
    words = ["speak", folder, "-p", "ab", "--speaker", tmp_path / "voice.wav", "-o", tmp_path / "a.wav"]
    refused(words, why, capsys)


def test_long_texts(folder, tmp_path, capsys):
    words = ["speak", folder, "-p", "ab " * PLACES, "-o", tmp_path / "a.wav"]
    refused(words, "the text is longer than the model's positions", capsys)


@pytest.mark.parametrize("part", ["second_stage.pt", "speaker_encoder.pt", "encodec"])
def test_missing_parts(part, folder, tmp_path, capsys):
    names = {"first_stage.pt", "second_stage.pt", "speaker_encoder.pt", "encodec"} - {part}
    for name in names:
        (tmp_path / name).symlink_to(folder / name)
    words = ["speak", tmp_path, "-p", "ab", "-o", tmp_path / "a.wav"]
    refused(words, f"the model is without its {part.removesuffix('.pt')}", capsys)


def test_outputs_that_hold_one_model(folder, tmp_path, capsys):
    why = "the model is 4 models"
    refused(["convert", folder, tmp_path / "a.gguf"], why, capsys)
    refused(["convert", folder, tmp_path / "a", "--to", "onnx"], why, capsys)
    refused(["quantize", folder, tmp_path / "a.gguf", "Q8_0"], why, capsys)
    words = ["convert", folder, tmp_path / "a", "--to", "safetensors", "--shard-size", "10000"]
    refused(words, "shards are several", capsys)
    assert not any(tmp_path.iterdir())
