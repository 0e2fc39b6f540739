"""Multimodal models in llama.cpp's two files against mtmd, gguf-py's names and transformers."""

import json
import shutil

import candle_convert as cc
import gguf
import numpy as np
import pytest
import torch
import transformers
from candle_convert.convert.cli.main import run
from candle_convert.convert.write import pipeline
from candle_convert.convert.write import plan as planning
from candle_convert.convert.write.conversion_options import Options
from candle_convert.tests.builders import patch_models, vision_language
from candle_convert.tests.oracles.libllama import NAME
from candle_convert.tests.oracles.libmtmd import MARKER, Libmtmd
from PIL import Image
from safetensors.torch import load_file

LIBRARY = pytest.mark.skipif(NAME is None, reason="llama.cpp's library is missing")
QWEN = "<|vision_start|><|image_pad|><|vision_end|>"
CASES = {
    "llava": ("mlp", "<image>", 32, ""),
    "llava_siglip": ("mlp", "<image>", 32, ""),
    "gemma3": ("gemma3", "<start_of_image>", 32, "\n\n"),
    "smolvlm": ("idefics3", "<image>", 64, ""),
    "pixtral": ("pixtral", "[IMG]", 32, ""),
    "mistral3": ("pixtral", "[IMG]", 48, ""),
    "qwen2_vl": ("qwen2vl_merger", QWEN, 64, ""),
    "qwen2_5_vl": ("qwen2.5vl_merger", QWEN, 64, ""),
    "qwen3_vl": ("qwen3vl_merger", QWEN, 64, ""),
    "paddleocr_vl": ("paddleocr", "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>", 64, ""),
}
"""Kind of projector, what stands for a picture in a prompt, a side of pictures that no program resizes, and what
transformers' processor writes around a picture."""
RELATIVE = 2e-3
"""llama.cpp multiplies rows in f16 in places."""
WITHOUT_CLASS_TOKEN = {"vision_feature_select_strategy": "full"}
BLANK = ("\n\n",) * 40
"""Lines that give a vocabulary the token that SmolVLM has between the rows of a picture."""


def folder_of(family, folder, monkeypatch):
    if family in patch_models.FAMILIES:
        name, marks, text, vision = patch_models.FAMILIES[family]
        if "window_size" in vision:  # llama.cpp has windows of 112 pixels alone
            monkeypatch.setitem(patch_models.FAMILIES, family, (name, marks, text, {**vision, "window_size": 112}))
        return patch_models.patch_folder(family, folder)[0]
    if family == "llava_siglip":
        family, families = "llava", vision_language.FAMILIES
        name, mark, text, _, _ = families[family]
        monkeypatch.setitem(families, family, (name, mark, text, vision_language.SIGLIP, WITHOUT_CLASS_TOKEN))
    monkeypatch.setattr(vision_language, "CORPUS", (*vision_language.CORPUS, *BLANK))
    return vision_language.vision_language_folder(family, folder)[0]


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    """A family, its model in transformers, and the folder with its directory `hf` and both files `m.gguf`."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "hf").mkdir()
    with pytest.MonkeyPatch.context() as monkeypatch:
        model = folder_of(request.param, folder / "hf", monkeypatch)
    cc.convert(folder / "hf", folder / "m.gguf")
    return request.param, model, folder


def picture(side):
    small = Image.fromarray(np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8))
    return small.resize((side, side), Image.BICUBIC)


def prompted(case, source):
    """A loaded model with its prompt for a picture."""
    _, mark, side, _ = CASES[case[0]]
    loaded = cc.models.load(source, threads=1, activations="f32")
    return loaded, loaded.prompted(f"{mark}what is this?", [picture(side)])


def expected(case):
    """transformers' logits behind the prompt, and the ids that it generates."""
    _, prompt = prompted(case, case[2] / "hf")
    arrays = {name: torch.from_numpy(np.asarray(array)) for name, array in prompt.arrays.items()}
    if case[0] in ("pixtral", "mistral3"):
        arrays["image_sizes"] = torch.as_tensor(prompt.arrays["image_sizes"])
    if case[0] == "paddleocr_vl":
        arrays["pixel_values"] = arrays["pixel_values"].reshape(-1, 3, 8, 8)
    if case[0] == "smolvlm":
        arrays["pixel_values"] = arrays["pixel_values"][None]
    if "image_grid_thw" in arrays:
        token = CASES[case[0]][1].split("|><|")[1]
        ids = torch.tensor([prompt.ids])
        arrays["mm_token_type_ids"] = (ids == prompted_token(case, f"<|{token}|>")).long()
    with torch.no_grad():
        return case[1](input_ids=torch.tensor([prompt.ids]), **arrays).logits[0, -1].numpy()


def prompted_token(case, text):
    return transformers.AutoTokenizer.from_pretrained(case[2] / "hf").convert_tokens_to_ids(text)


@LIBRARY
def test_logits_of_mtmd_behind_a_picture(case):
    if case[0] == "llava":
        pytest.skip("llama.cpp puts the class token behind the patches: see test_llava_features_of_mtmd")
    family, _, folder = case
    _, _, side, around = CASES[family]
    mtmd = Libmtmd(folder / "m.gguf", folder / "mmproj-m.gguf")
    text = f"{around}{MARKER}{around}what is this?"
    found, want = mtmd.logits(text, [np.asarray(picture(side))]), expected(case)
    mtmd.close()
    assert np.abs(found - want).max() <= RELATIVE * np.abs(want).max()


@LIBRARY
def test_llava_features_of_mtmd(case):
    """mtmd computes the features of a sequence whose class token is the last one, and takes those from the second
    position on; in that order transformers' layers give the same ones."""
    family, model, folder = case
    if family != "llava":
        pytest.skip("of LLaVA alone")
    _, prompt = prompted(case, folder / "hf")
    mtmd = Libmtmd(folder / "m.gguf", folder / "mmproj-m.gguf")
    (found,) = mtmd.features(np.asarray(picture(32)))
    mtmd.close()
    tower = model.model.vision_tower
    tower = getattr(tower, "vision_model", tower)
    with torch.no_grad():
        embeddings = tower.embeddings
        x = embeddings.patch_embedding(torch.from_numpy(prompt.arrays["pixel_values"])).flatten(2).transpose(1, 2)
        x = torch.cat([x, embeddings.class_embedding.expand(1, 1, -1)], 1) + embeddings.position_embedding.weight
        x = tower.pre_layrnorm(x)
        for layer in tower.encoder.layers[:-1]:
            x = layer(x, attention_mask=None)
            x = x[0] if isinstance(x, tuple) else x
        want = model.model.multi_modal_projector(x[:, 1:])[0].numpy()
    assert np.abs(found - want).max() <= RELATIVE * np.abs(want).max()


def test_names_are_those_of_gguf_py(case):
    """Each tensor has the name that gguf-py's map gives transformers', and each key is one of its constants."""
    family, _, folder = case
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 8)
    reader = gguf.GGUFReader(folder / "mmproj-m.gguf")
    known = {names.mapping[key][1] for key in names.mapping}
    stems = {tensor.name.removesuffix(".1").rpartition(".")[0] or tensor.name for tensor in reader.tensors}
    stems = {"v.class_embd" if stem == "v" else stem for stem in stems}
    numbered = {stem for stem in stems if stem.startswith("v.token_embd")}
    assert stems - numbered - known - {"v.deepstack.0.norm"} <= {"v.token_embd"}
    fields = reader.fields
    assert fields["general.architecture"].contents() == "clip"
    assert fields["general.type"].contents() == "mmproj"
    assert fields["clip.projector_type"].contents() == CASES[family][0]
    keys = {
        value for holder in (gguf.Keys.Clip, gguf.Keys.ClipVision, gguf.Keys.ClipVision.Attention,
                             gguf.Keys.ClipVision.Projector)
        for value in vars(holder).values() if isinstance(value, str)
    } | {"clip.vision.feature_layer"}  # fmt: skip
    assert {key for key in fields if key.startswith("clip.")} <= keys


def test_the_files_give_the_model_back(case):
    """Through both files and back to a directory: transformers loads it without missing weights, and computes the
    same."""
    family, model, folder = case
    cc.convert(folder / "m.gguf", folder / "back", to="safetensors")
    cls = type(model)
    again, info = cls.from_pretrained(folder / "back", output_loading_info=True, attn_implementation="eager")
    assert not any(info.values()), info
    loaded, prompt = prompted(case, folder / "hf")
    for source in (folder / "m.gguf", folder / "back"):
        other, same = prompted(case, source)
        assert same.ids == prompt.ids
        assert all(np.allclose(same.arrays[name], array, atol=1e-6) for name, array in prompt.arrays.items())
        ids = np.array([prompt.ids])
        want = loaded(input_ids=ids, **prompt.arrays)["logits"]
        found = other(input_ids=ids, **prompt.arrays)["logits"]
        assert np.abs(found - want).max() <= 1e-5 * np.abs(want).max()
    want = expected(case)
    found = expected((family, again.eval(), folder))
    assert np.abs(found - want).max() <= 1e-5 * np.abs(want).max()


def test_verify_compares_the_whole_model(case, capsys):
    assert run(["verify", str(case[2] / "hf"), str(case[2] / "m.gguf")]) == 0
    assert "failed" not in capsys.readouterr().out


def test_quantized_text_next_to_an_encoder_in_f16(case, tmp_path, capsys):
    _, _, folder = case
    made = tmp_path / "q.gguf"
    assert run(["convert", str(folder / "hf"), str(made), "--quantize", "Q8_0", "--dry-run"]) == 0
    assert "mmproj-q.gguf" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    assert run(["convert", str(folder / "hf"), str(made), "--quantize", "Q8_0"]) == 0
    assert f"{made}, {tmp_path / 'mmproj-q.gguf'}" in capsys.readouterr().out
    types = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(tmp_path / "mmproj-q.gguf").tensors}
    assert types["v.patch_embd.weight"] == "F16"
    assert all(kind == "F32" for name, kind in types.items() if name.endswith((".bias", "ln1.weight")))
    if "v.position_embd.weight" in types:
        assert types["v.position_embd.weight"] == "F32"
    text = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(made).tensors}
    assert text["blk.0.attn_q.weight"] == "Q8_0"
    loaded, prompt = prompted(case, made)
    whole, _ = prompted(case, folder / "hf")
    ids = np.array([prompt.ids])
    want = whole(input_ids=ids, **prompt.arrays)["logits"]
    assert np.abs(loaded(input_ids=ids, **prompt.arrays)["logits"] - want).max() <= 0.1 * np.abs(want).max()


def test_generate_with_a_picture(case, capsys):
    family, _, folder = case
    picture(CASES[family][2]).save(folder / "p.png")
    answers = set()
    for source in ("hf", "m.gguf"):
        words = ["generate", str(folder / source), "-p", f"{CASES[family][1]}what is this?"]
        assert run([*words, "--image", str(folder / "p.png"), "--temperature", "0", "-n", "6"]) == 0
        answers.add(capsys.readouterr().out)
    assert len(answers) == 1


def test_an_mmproj_of_another_model(case, tmp_path, capsys):
    """Another width of features and another vocabulary are one line, and nothing is written."""
    _, _, folder = case
    metadata = {field.name: field for field in gguf.GGUFReader(folder / "mmproj-m.gguf").fields.values()}
    assert metadata["clip.projector_type"].contents()
    graph = cc.open(folder / "mmproj-m.gguf")
    graph.metadata["clip.projector_type"] = "unheard_of"
    cc.convert(folder / "mmproj-m.gguf", tmp_path / "mmproj-m.gguf", metadata={"clip.projector_type": "unheard_of"})
    shutil.copy(folder / "m.gguf", tmp_path / "m.gguf")
    assert run(["convert", str(tmp_path / "m.gguf"), str(tmp_path / "out"), "--to", "safetensors"]) != 0
    assert "E-MMPROJ-KIND" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def damaged(folder, made, change):
    """The files of a model whose mmproj file `change` has changed as a graph."""
    graph = cc.open(folder / "mmproj-m.gguf")
    change(graph)
    made.mkdir()
    pipeline.execute(planning.plan_graph(graph, made / "mmproj-m.gguf", Options()))
    shutil.copy(folder / "m.gguf", made / "m.gguf")
    return made / "m.gguf"


def test_features_of_another_width(case, tmp_path, capsys):
    """One line, and nothing written, for a projector of a language model of another width."""
    if case[0] not in ("llava", "llava_siglip", "qwen2_vl"):
        pytest.skip("projectors of two matrices called mm.0 and mm.2")

    def narrow(graph):
        for name in ("mm.2.weight", "mm.2.bias"):
            graph.weights[name] = graph.weights[name][:32]
        graph.metadata["clip.vision.projection_dim"] = np.uint32(32)

    path = damaged(case[2], tmp_path / "narrow", narrow)
    assert run(["generate", str(path), "-p", "hello"]) != 0
    assert "E-MMPROJ-WIDTH" in capsys.readouterr().err
    assert run(["convert", str(path), str(tmp_path / "out"), "--to", "safetensors"]) != 0
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("count", [0, 1 << 30])
def test_a_number_of_layers_beyond_the_file(case, tmp_path, capsys, count):
    def change(graph):
        graph.metadata["clip.vision.block_count"] = np.uint32(count)
        graph.weights = {name: tensor for name, tensor in graph.weights.items() if not name.startswith("v.blk.")}

    path = damaged(case[2], tmp_path / "deep", change)
    assert run(["generate", str(path), "-p", "hello"]) != 0
    assert "clip" in (told := capsys.readouterr().err) or "block_count" in told
    assert "Traceback" not in told


def test_as_a_second_input(case, tmp_path, capsys):
    _, _, folder = case
    for name, place in (("m.gguf", "a"), ("mmproj-m.gguf", "b")):
        (tmp_path / place).mkdir()
        shutil.copy(folder / name, tmp_path / place / name)
    cc.convert([tmp_path / "a" / "m.gguf", tmp_path / "b" / "mmproj-m.gguf"], tmp_path / "out", to="safetensors")
    cc.convert(folder / "m.gguf", tmp_path / "both", to="safetensors")
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("out", "both"))
    assert one.keys() == other.keys()
    assert json.loads((tmp_path / "out" / "config.json").read_text())["text_config"]
    picture(CASES[case[0]][2]).save(tmp_path / "p.png")
    answers = set()
    given = [str(tmp_path / "a" / "m.gguf"), "--mmproj", str(tmp_path / "b" / "mmproj-m.gguf")]
    for words in (given, [str(folder / "hf")]):
        prompt = ["-p", f"{CASES[case[0]][1]}what is this?", "--image", str(tmp_path / "p.png")]
        assert run(["generate", *words, *prompt, "--temperature", "0", "-n", "4"]) == 0
        answers.add(capsys.readouterr().out)
    assert len(answers) == 1
    assert run(["generate", str(folder / "hf"), "--mmproj", str(folder / "m.gguf"), "-p", "hello"]) != 0
    assert "E-MMPROJ-INPUTS" in capsys.readouterr().err


@pytest.mark.parametrize("family", ["pixtral", "mistral3"])
def test_the_last_layer_by_its_number(tmp_path, family):
    """The hidden states 2 of an encoder of 2 layers are transformers' last ones."""
    (tmp_path / "hf").mkdir()
    vision_language.vision_language_folder(family, tmp_path / "hf")
    cc.convert(tmp_path / "hf", tmp_path / "m.gguf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    for layer, refused in ((config["vision_config"]["num_hidden_layers"], False), (1, True)):
        (tmp_path / "hf" / "config.json").write_text(json.dumps({**config, "vision_feature_layer": layer}))
        if refused:
            with pytest.raises(cc.UnsupportedError, match="the last layer, not of layer 1"):
                cc.convert(tmp_path / "hf", tmp_path / "other.gguf")
        else:
            cc.convert(tmp_path / "hf", tmp_path / "same.gguf")
            same, first = (cc.load_file(tmp_path / f"mmproj-{name}.gguf") for name in ("same", "m"))
            assert all(np.array_equal(same[name], first[name]) for name in first)
