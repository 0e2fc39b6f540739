"""GGUF files of denoising networks: diffusers loads what we write, and folders draw with them."""

import shutil

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.diffusion_transformers import FLUX_MODULES, original
from candle_convert.tests.builders.limited_memory import run_limited
from candle_convert.tests.builders.text_to_image import flux, stable_diffusion, stable_diffusion_3

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")
gguf = pytest.importorskip("gguf")
safetensors = pytest.importorskip("safetensors.torch")
BUILDERS = {
    "sd1": (lambda folder: stable_diffusion(folder, published=True), "unet"),
    "sdxl": (lambda folder: stable_diffusion(folder, xl=True, published=True), "unet"),
    "flux": (lambda folder: flux(folder, guidance=True, dynamic=True), "transformer"),
    "sd3": (stable_diffusion_3, "transformer"),
}
"""By general.architecture: what makes the folder, and the denoiser's folder in it."""
DETECTED = {
    "sd1": ["input_blocks.2.0.op.weight", "output_blocks.1.1.conv.weight"],
    "sdxl": ["label_emb.0.0.weight"],
    "flux": ["double_blocks.0.img_attn.proj.weight"],
    "sd3": ["joint_blocks.0.x_block.attn.qkv.weight"],
}
"""By which ComfyUI-GGUF's converter tells architectures apart; a stage of the small UNets has one block less."""
SETTINGS = {"steps": 2, "seed": 5, "size": (32, 32)}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What makes a pipeline, its folder, and the denoiser's file, once for each architecture."""
    known = {}

    def of(word):
        if word not in known:
            folder, path = tmp_path_factory.mktemp(word), tmp_path_factory.mktemp("file") / f"{word}.gguf"
            make, part = BUILDERS[word]
            pipeline = make(folder)
            assert run(["convert", str(folder / part), str(path)]) == 0
            known[word] = pipeline, folder, path
        return known[word]

    return of


def with_denoiser(folder, part, path, out):
    """A copy of a folder whose denoiser is a GGUF file."""
    shutil.copytree(folder, out)
    for weights in (out / part).glob("*.safetensors"):
        weights.unlink()
    shutil.copy(path, out / part / path.name)
    return out


@pytest.mark.parametrize("word", BUILDERS)
def test_names_and_keys(word, made):
    _, _, path = made(word)
    reader = gguf.GGUFReader(path)
    assert reader.fields["general.architecture"].contents() == word
    names = {tensor.name for tensor in reader.tensors}
    assert names >= set(DETECTED[word])
    assert not any(name.startswith("model.diffusion_model.") for name in names)
    assert all(tensor.tensor_type.name == "F32" for tensor in reader.tensors)


@pytest.mark.parametrize("word", ["sd3"])
@pytest.mark.parametrize("kind", ["f32", "q8_0"])
def test_diffusers_loads_transformers(word, kind, made, tmp_path):
    pipeline, folder, path = made(word)
    if kind != "f32":
        path = tmp_path / "q.gguf"
        assert run(["quantize", str(folder / "transformer"), str(path), kind]) == 0
    read = type(pipeline.transformer).from_single_file(
        str(path), config=str(folder / "transformer"), local_files_only=True, torch_dtype=torch.float32,
        quantization_config=diffusers.GGUFQuantizationConfig(compute_dtype=torch.float32),
    )  # fmt: skip
    components = {**pipeline.components, "transformer": read}
    other = type(pipeline)(**components)
    other.set_progress_bar_config(disable=True)
    expected = other(
        "a fox", generator=torch.Generator().manual_seed(5), num_inference_steps=2, height=32, width=32,
        output_type="np",
    ).images[0]  # fmt: skip
    drawn = cc.models.load(with_denoiser(folder, "transformer", path, tmp_path / "copy")).draw("a fox", **SETTINGS)
    assert np.abs(np.asarray(drawn) / 255 - expected).max() <= 0.51 / 255 + 1e-3


def test_tensors_of_flux_are_those_of_its_authors(made):
    pipeline, _, path = made("flux")
    expected = original(pipeline.transformer.state_dict(), FLUX_MODULES)
    found = {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], tensor.numpy()) for name, tensor in expected.items())


@pytest.mark.parametrize("word", ["sd1", "sdxl"])
def test_diffusers_loads_unets(word, made):
    pipeline, folder, path = made(word)
    weights = {
        f"model.diffusion_model.{tensor.name}": torch.from_numpy(tensor.data.copy())
        for tensor in gguf.GGUFReader(path).tensors
    }
    read = diffusers.UNet2DConditionModel.from_single_file(
        weights, config=str(folder / "unet"), local_files_only=True, torch_dtype=torch.float32
    )
    expected, found = pipeline.unet.state_dict(), read.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in expected)


@pytest.mark.parametrize("word", BUILDERS)
def test_folders_draw_with_files(word, made, tmp_path):
    _, folder, path = made(word)
    part = BUILDERS[word][1]
    expected = cc.models.load(folder).draw("a fox", **SETTINGS).latents
    drawn = cc.models.load(with_denoiser(folder, part, path, tmp_path / "copy")).draw("a fox", **SETTINGS).latents
    assert np.abs(drawn - expected).max() <= 1e-4 * np.abs(expected).max()


def comfy(path, out, word, changes=()):
    """The tensors of a file as ComfyUI-GGUF's converter stores convolutions: in rows of 256, with their shape as a key.

    Args:
        changes: shapes that are stated instead, by name.
    """
    writer = gguf.GGUFWriter(out, word)
    for tensor in gguf.GGUFReader(path).tensors:
        data = tensor.data.copy()
        if data.ndim == 4 and data.size % 256 == 0:
            writer.add_array(f"comfy.gguf.orig_shape.{tensor.name}", [int(length) for length in data.shape])
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(tensor.name, gguf.quants.quantize(data.reshape(-1, 256), kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, data)
    for name, shape in dict(changes).items():
        writer.add_array(f"comfy.gguf.orig_shape.{name}", shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def test_reshaped_convolutions(made, tmp_path):
    pipeline, folder, path = made("sd1")
    with_denoiser(folder, "unet", comfy(path, tmp_path / "comfy.gguf", "sd1"), tmp_path / "copy")
    drawn = cc.models.load(tmp_path / "copy").draw("a fox", **SETTINGS).latents
    expected = cc.models.load(folder).draw("a fox", **SETTINGS).latents
    assert 0 < np.abs(drawn - expected).max() <= 0.1 * np.abs(expected).max()
    assert run(["convert", str(tmp_path / "comfy.gguf"), str(tmp_path / "unet/"), "--to", "safetensors"]) == 0
    found, own = safetensors.load_file(tmp_path / "unet/model.safetensors"), pipeline.unet.state_dict()
    assert found.keys() == own.keys()
    assert all((found[key] - own[key]).abs().max() <= 0.01 * own[key].abs().max() for key in own)


@pytest.mark.parametrize(
    ("name", "shape", "why"),
    [
        ("out.2.bias", [3], "does not fit the tensor"),
        ("out.2.bias", [2**30, 2**30, 2**30], "does not fit the tensor"),
        ("out.2.bias", [-4], "not a list of lengths"),
        ("out.2.bias", [0], "not a list of lengths"),
        ("out.2.bias", [4] + [1] * 20, "not a list of lengths"),
        ("out.2.bias", ["4"], "not a list of lengths"),
    ],
)
def test_shapes_that_do_not_fit(name, shape, why, made, tmp_path, capsys):
    _, folder, path = made("sd1")
    with_denoiser(folder, "unet", comfy(path, tmp_path / "c.gguf", "sd1", {name: shape}), tmp_path / "copy")
    assert run(["draw", str(tmp_path / "copy"), "-p", "a", "-o", str(tmp_path / "a.png"), "--steps", "1"]) == 3
    said = capsys.readouterr().err
    assert why in said
    assert "Traceback" not in said


def stored(path, word, tensors):
    """A file of that architecture with tensors of another one."""
    writer = gguf.GGUFWriter(path, word)
    for name, data in tensors:
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_numbers_of_blocks_take_no_memory(tmp_path):
    path = stored(tmp_path / "x.gguf", "sd1", [("input_blocks.4000000000.0.weight", np.zeros(32, np.float32))])
    code, said = run_limited("convert", path, f"{tmp_path}/out/", "--to", "safetensors")
    assert code == 3, said
    assert "✗ E-GGUF-PICTURE " in said
    assert "not those of the architecture sd1" in said


KEPT = {"half": lambda tensors: tensors[len(tensors) // 2 :], "all": list, "first": lambda tensors: tensors[:1]}
INCOMPLETE, OTHER = "✗ E-ARCH-MISSING ", "✗ E-GGUF-PICTURE "
DAMAGED = [
    ("sd1", "half", "sd1", 3, OTHER, "the weights are not those of the architecture sd1"),
    ("sd1", "first", "sd1", 3, INCOMPLETE, "missing a weight of a unet_2d_condition model: conv_in.weight"),
    ("sd1", "all", "sdxl", 0, "", ""),
    ("flux", "half", "flux", 3, INCOMPLETE, "of a flux_transformer model: "),
    ("flux", "first", "flux", 3, INCOMPLETE, "missing 66 weights of a flux_transformer model"),
    ("flux", "all", "sdxl", 3, OTHER, "the weights are not those of the architecture sdxl"),
    ("sd3", "half", "sd3", 3, INCOMPLETE, "of a sd3_transformer model: "),
    ("sd3", "first", "sd3", 3, INCOMPLETE, "missing 67 weights of a sd3_transformer model"),
    ("sd3", "all", "sdxl", 3, OTHER, "the weights are not those of the architecture sdxl"),
]
"""Whose tensors a file has, which of them, its architecture, and the exit code, the code and the message."""


@pytest.mark.parametrize(("word", "kept", "named", "code", "error", "why"), DAMAGED)
def test_files_without_a_tensor_or_of_another_kind(word, kept, named, code, error, why, made, tmp_path, capsys):
    _, folder, path = made(word)
    tensors = KEPT[kept]([(tensor.name, tensor.data.copy()) for tensor in gguf.GGUFReader(path).tensors])
    copy = with_denoiser(folder, BUILDERS[word][1], stored(tmp_path / "x.gguf", named, tensors), tmp_path / "copy")
    out = tmp_path / "a.png"
    assert run(["draw", str(copy), "-p", "a", "-o", str(out), "--steps", "1", "--size", "32x32"]) == code
    said = capsys.readouterr().err
    assert error in said
    assert why in said
    assert "Traceback" not in said
    assert out.exists() == (code == 0)
