"""Every output of a reference case, computed through the public interface.

    python benchmarks/reference.py CASE_DIR OUT.npz [--threads 1]

CASE_DIR has a checkpoint (config.json and weights), `inputs.npz` with arrays named VARIANT/ARGUMENT, and `outputs.npz`,
whose names (VARIANT/OUTPUT) say what is computed. OUT.npz gets arrays of these names; `hidden_states.N` is left out,
and what the model does not compute.
Rows of padding are zero, as in the case. The variant `cache` runs through the cache, `greedy` through the generator.

A directory with several checkpoints is run from each: arrays of the further ones are named FILE:VARIANT/OUTPUT, and the
exit status is 1 if one of them differs from the first by more than the tolerance of the case.
"""

import argparse
import json
import re
import sys
from pathlib import Path

import candle_convert as cc
import numpy as np
from candle_convert.models.pipelines.audio.codec.codec_model import CodecModel
from candle_convert.models.pipelines.audio.speech_model import SpeechModel
from candle_convert.models.pipelines.audio.synthesis.codebook_model import CodebookModel
from candle_convert.models.pipelines.audio.synthesis.delay_pattern import UNKNOWN, DelayPattern
from candle_convert.models.pipelines.audio.synthesis.metavoice_stages import FirstStage, SecondStage
from candle_convert.models.pipelines.diffusion.control_network import ControlNetwork
from candle_convert.models.pipelines.image.image_feature_extraction import VECTORS
from candle_convert.models.pipelines.image.image_model import ImageModel
from candle_convert.models.pipelines.image.promptable_model import PromptableModel
from candle_convert.models.pipelines.multimodal.dual_encoders.dual_encoder_model import DualEncoderModel
from candle_convert.models.pipelines.multimodal.multimodal_language_model import MultimodalLanguageModel
from candle_convert.models.pipelines.multimodal.picture_text_model import PictureTextModel
from candle_convert.models.pipelines.pooling import mean_pooled, normalized
from candle_convert.models.postprocess.boxes import corners_of, scored, suppressed
from candle_convert.models.seq2seq.encoder_decoder_model import EncoderDecoderModel
from candle_convert.runtime.tensor.storage import Held
from reference_diffusion import has_parts, parts, scheduled

TASKS = {"embedding": "feature-extraction"}
"""Tasks of the cases that the checkpoint does not name."""
BIDIRECTIONAL = "non-causal"
"""Beginning of the note of cases whose tokens attend to all others, though the checkpoint does not say so."""
TIMM_NAMES = {"features": "last_hidden_state", "pooled": "pooler_output"}
"""Our names of what timm's methods ``forward_features`` and ``forward_head`` return."""
PROMPTS = {"points": "input_points", "labels": "input_labels", "boxes": "input_boxes"}
"""Our names of arguments of segment-anything, which has no dimension of prompts."""
PROMPT_OPTIONS = {"mask_input": "input_masks", "multimask": "multimask_output"}
PROMPT_OUTPUTS = {"low_res_masks": "pred_masks", "iou_predictions": "iou_scores"}
LATENTS = ("latents", "encoder_output")
"""Names in the cases of what a codec's quantizer takes."""
ENCODED = ("image_embeds", "vision_last_hidden_state", "question_hidden")
"""Names in the cases of the hidden states of an encoder of pictures."""
FEATURES = {"vision_features": "last_hidden_state", "image_embeds": "image_features"}
"""Our names of features of a picture, of cases that have no token in place of pictures."""
MOST_BOXES = 300
ARRAYS = {"inputs.npz", "outputs.npz"}
CHECKS = ("max_diff_to_full", "min_margin")
"""Outputs that tell how far others can be trusted."""
WEIGHTS = (".safetensors", ".bin", ".pth", ".pt", ".ckpt", ".npz", ".gguf", ".onnx", ".weights")


def checkpoints(case):
    """The weight files of a case; of a sharded checkpoint the index."""
    names = sorted(path.name for path in case.iterdir() if path.name.endswith((*WEIGHTS, ".index.json")))
    whole = [name for name in names if name not in ARRAYS and not re.search(r"-\d{5}-of-\d{5}\.", name)]
    return [case / name for name in sorted(whole, key=lambda name: not name.startswith("model."))]


def cached(model, input_ids, prefill):
    """Logits of a prompt and of the tokens after it, one at a time, and their distance from those without a cache."""
    found, cache = model.step(input_ids[:, :prefill])
    steps = [found]
    for position in range(int(prefill), input_ids.shape[1]):
        found, cache = model.step(input_ids[:, position : position + 1], cache)
        steps.append(found)
    logits = np.concatenate(steps, 1)
    return {"logits": logits, "max_diff_to_full": np.abs(logits - model.logits(input_ids)).max()}


def decoded(model, decoder_input_ids, **source):
    """Logits of the decoder's tokens, one at a time, and their distance from those without a cache."""
    cache, steps = model.start(*source.values()), []
    for position in range(decoder_input_ids.shape[1]):
        found, cache = model.decoder.step(decoder_input_ids[:, position : position + 1], cache)
        steps.append(found)
    logits = np.concatenate(steps, 1)
    whole = model(**source, decoder_input_ids=decoder_input_ids)["logits"]
    return {"logits": logits, "max_diff_to_full": np.abs(logits - whole).max()}


def greedy(model, inputs, length):
    """A sequence of `length` tokens, the prompt included or the decoder's, and the smallest margin between the two most
    probable tokens of a step."""
    if isinstance(model, EncoderDecoderModel):
        source = next(inputs[name] for name in inputs if name != "input_ids" or len(inputs) == 1)
        start = int(inputs["input_ids"][0, 0]) if len(inputs) > 1 else None
        sequences, generated = np.array([model.greedy(source[0], length - 1, start)]), length - 1
        logits = model(source, decoder_input_ids=sequences)["logits"]
    else:
        input_ids = inputs["input_ids"]
        generated = length - input_ids.shape[1]
        sequences = np.concatenate([input_ids, [model.greedy(input_ids[0].tolist(), generated)]], 1)
        logits = model.logits(sequences)
    best = np.sort(logits[0, length - generated - 1 : -1])[:, -2:]
    return {"sequences": sequences, "min_margin": np.float32((best[:, 1] - best[:, 0]).min())}


def forward(model, inputs):
    """The outputs of one run by name, and the pooled hidden states."""
    found, mask = model(**inputs), inputs.get("attention_mask")
    if mask is not None:
        masked = {name for name, item in found.items() if item.ndim == 3 and item.shape[:2] == mask.shape}
        found = {name: item * mask[..., None] if name in masked else item for name, item in found.items()}
    hidden = found.get("last_hidden_state")
    if hidden is not None:
        found["last_token"] = normalized(hidden[:, -1])
        found["mean_pooled"] = mean_pooled(hidden, mask)
        found["mean_pooled_l2"] = normalized(found["mean_pooled"])
    return found


def image_outputs(path, model, inputs, wanted, threads):
    """The outputs of an image model by name; those of its layers are another task than those of its head."""
    limits = [float(inputs.pop(name)) for name in ("conf_thres", "iou_thres") if name in inputs]
    found = model(inputs["pixel_values"])
    if limits:
        return found | {f"nms.{row}": best_boxes(found, row, *limits) for row in range(len(found["scores"]))}
    others = {name: TIMM_NAMES.get(name, name) for name in wanted if name not in found}
    if others:
        layers = cc.models.load(path, task="image-feature-extraction", threads=threads)(inputs["pixel_values"])
        found |= {name: layers[ours].reshape(wanted[name].shape) for name, ours in others.items() if ours in layers}
    return found


def best_boxes(found, row, threshold, overlap):
    """Corners, scores and classes of the boxes of an image that overlap no better one."""
    boxes, scores = (found[name][row].T for name in ("boxes_xywh", "scores"))
    kept = suppressed(scored(corners_of(boxes), scores, threshold), overlap, MOST_BOXES)
    return np.concatenate([kept.corners, kept.scores[:, None], kept.classes[:, None]], 1)


def prompted(model, inputs, wanted):
    """The outputs of a model for prompts; of some the case has every n-th element along some axes."""
    given = {PROMPTS[name]: item[:, None] for name, item in inputs.items() if name in PROMPTS}
    given |= {PROMPT_OPTIONS.get(name, name): item for name, item in inputs.items() if name not in PROMPTS}
    several = any(item.shape[-3] > 1 for name, item in wanted.items() if name.endswith("masks"))
    found = model(**given | {"multimask_output": several})
    results = {}
    for name, item in wanted.items():
        array = found[PROMPT_OUTPUTS.get(name, name)]
        array = array[:, 0] if array.ndim > item.ndim else array
        steps = (slice(None, None, ours // theirs) for ours, theirs in zip(array.shape, item.shape, strict=True))
        results[name] = array[tuple(steps)]
    return results


def paired(model, inputs):
    """The outputs of a model of texts and pictures, and those of its towers."""
    found = model(**inputs)
    texts = {name: item for name, item in inputs.items() if name != "pixel_values"}
    hidden = model.text_model(**texts)["last_hidden_state"]
    mask = inputs.get("attention_mask")
    vision = model.vision_model(inputs["pixel_values"])
    return found | {
        "text_last_hidden_state": hidden if mask is None else hidden * mask[..., None],
        "vision_last_hidden_state": vision["last_hidden_state"],
        "vision_pooled": next(vision[name] for name in VECTORS if name in vision),
    }


def after_first(path, model, inputs, threads):
    """The outputs of a model of texts and pictures whose features stand after the first token, and these features."""
    found = cc.models.load(path, task="image-feature-extraction", threads=threads)(inputs["pixel_values"])
    features = {name: found[ours] for name, ours in FEATURES.items()}
    count = features["image_embeds"].shape[1]
    ids = np.insert(inputs["input_ids"], [1] * count, model.options.config.image_token, axis=1)
    return model(ids, pixel_values=inputs["pixel_values"]) | features


def codec_outputs(model, inputs, wanted):
    """The outputs of a codec: codes of audio, or audio of given codes; latents under their name in the case."""
    if "audio" in inputs:
        audio = inputs["audio"]
        made = model.encode(audio)
        codes, scales = made.codes, made.scales
        found = numbered("codes", codes) if isinstance(codes, list) else {"codes": codes, "audio_codes": codes}
        found |= numbered("audio_scales", scales) if scales is not None else {}
        found |= {name: model.latents(audio) for name in LATENTS if name in wanted}
    else:
        found, codes = {}, next(inputs[name] for name in ("audio_codes", "codes") if name in inputs)
        scales = [item for name, item in inputs.items() if name.startswith("audio_scales")] or None
    if "quantized" in wanted:
        found["quantized"] = model.quantized(codes)
    if "audio_values" in wanted:
        found["audio_values"] = model.decode(codes, scales).reshape(wanted["audio_values"].shape)
    return found


def numbered(name, items):
    """Items by a name with their number."""
    return {f"{name}.{i}": item for i, item in enumerate(items)}


def embeddings(model, input_ids, attention_mask):
    """Vectors of length 1 by pooling and further layers, as the checkpoint has them."""
    texts = [row[mask != 0].tolist() for row, mask in zip(input_ids, attention_mask, strict=True)]
    return model.embed(texts, normalize=True)


def coded(model, variant, inputs, wanted):
    """The outputs of a variant of a model that writes audio codes."""
    if variant == "delay_pattern":
        codes, (start, pad) = inputs["input_ids"], inputs["bos_pad"]
        mask = DelayPattern(len(codes), 1, start, pad).laid_out(codes, int(inputs["max_length"])).T
        first = np.argmax(mask[0] == UNKNOWN)
        return {"input_ids": mask[:, :first], "pattern_mask": mask}
    if variant == "greedy":
        return greedy_codes(model, inputs, wanted["sequences"].shape[1])
    found = model(**inputs)
    found["encoder_last_hidden_state"] = found["encoder_last_hidden_state"] * inputs["attention_mask"][..., None]
    return found


def greedy_codes(model, inputs, length):
    """The most probable codes without delays, and the smallest margin between the two most probable ones."""
    cache, margins = model.start(**inputs), []
    sequences = np.full((model.pattern.codebooks, 1), model.pattern.start)
    while sequences.shape[1] < length:
        logits = model.advance(sequences[:, -1][None, None], cache)[0]
        best = np.sort(logits)[:, -2:]
        margins.append((best[:, 1] - best[:, 0]).min())
        sequences = np.concatenate([sequences, logits.argmax(1)[:, None]], 1)
    return {"sequences": sequences, "min_margin": np.float32(min(margins))}


def staged(model, inputs):
    """The outputs of a stage of MetaVoice; rows beyond those of the speaker are without one."""
    speaker = inputs.pop("speaker_embedding", None)
    if speaker is not None:
        missing = len(inputs["input_ids"]) - len(speaker)
        inputs["speaker_embedding"] = np.concatenate([speaker, np.zeros((missing, speaker.shape[1]), speaker.dtype)])
    return model(**inputs)


def computed(model, variant, inputs, wanted):
    """The outputs of a variant by name."""
    if variant == "cache":
        return decoded(model, **inputs) if isinstance(model, EncoderDecoderModel) else cached(model, **inputs)
    if variant == "greedy":
        return greedy(model, inputs, wanted["sequences"].shape[1])
    if isinstance(model, SpeechModel) and "audio" in inputs:
        return {"input_features": model.features(inputs["audio"])}
    if isinstance(model, PictureTextModel):
        found = model(**inputs)
        return found | dict.fromkeys(ENCODED, found["encoder_last_hidden_state"])
    return forward(model, inputs) | ({"embedding": embeddings(model, **inputs)} if "embedding" in wanted else {})


def residuals(model, inputs):
    """The outputs of a ControlNet by their names in the case."""
    found = model(**inputs)
    return numbered("down", found["down_block_res_samples"]) | {"mid": found["mid_block_res_sample"]}


def opened(path, meta):
    """What `load` takes: the path of a checkpoint, or its graph with the `is_causal` in config.json that the case
    passes to the reference as a mask."""
    if not (meta.get("note") or "").startswith(BIDIRECTIONAL):
        return path
    graph = cc.open(path)
    config = json.loads((path.parent / "config.json").read_text()) | {"is_causal": False}
    graph.attachments["config.json"] = Held(json.dumps(config).encode())
    return graph


def results_of(path, meta, inputs, outputs, threads):
    """The arrays of the outputs, computed from one checkpoint."""
    task = TASKS.get(meta["task"])
    model = cc.models.load(opened(path, meta), task=task, threads=threads, activations="f32")
    results = {}
    for variant in dict.fromkeys(name.partition("/")[0] for name in outputs):
        feeds, wanted = (
            {name.partition("/")[2]: item for name, item in arrays.items() if name.startswith(f"{variant}/")}
            for arrays in (inputs, outputs)
        )
        if isinstance(model, DualEncoderModel):
            found = paired(model, feeds)
        elif isinstance(model, ImageModel):
            found = image_outputs(path, model, feeds, wanted, threads)
        elif isinstance(model, MultimodalLanguageModel) and FEATURES.keys() <= wanted.keys():
            found = after_first(path, model, feeds, threads)
        elif isinstance(model, ControlNetwork):
            found = residuals(model, feeds)
        elif isinstance(model, CodecModel):
            found = codec_outputs(model, feeds, wanted)
        elif isinstance(model, PromptableModel):
            found = prompted(model, feeds, wanted)
        elif isinstance(model, (FirstStage, SecondStage)):
            found = staged(model, feeds)
        elif isinstance(model, CodebookModel):
            found = coded(model, variant, feeds, wanted)
        else:
            found = computed(model, variant, feeds, wanted)
        names = [name for name in wanted if name in found and not name.startswith("hidden_states.")]
        results |= {f"{variant}/{name}": found[name] for name in names}
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", type=Path, metavar="CASE_DIR")
    parser.add_argument("out", type=Path, metavar="OUT.npz")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    inputs, outputs = (dict(np.load(arguments.case / name)) for name in ("inputs.npz", "outputs.npz"))
    meta = json.loads((arguments.case / "meta.json").read_text())
    first, further = {}, {}
    if meta["task"] == "scheduler":
        first = scheduled(arguments.case, inputs)
    elif has_parts(arguments.case):
        first = parts(arguments.case, inputs, outputs, arguments.threads)
    for path in checkpoints(arguments.case):
        found = results_of(path, meta, inputs, outputs, arguments.threads)
        if first:
            further |= {f"{path.name}:{name}": item for name, item in found.items() if not name.endswith(CHECKS)}
        else:
            first = found
    bounds = {name: meta["tolerance"]["relative_to_max"] * np.abs(item).max() for name, item in first.items()}
    differ = [
        name
        for name, item in further.items()
        if np.abs(item - first[name.partition(":")[2]]).max() > bounds[name.partition(":")[2]]
    ]
    np.savez(arguments.out, **first, **further)
    print(f"{len(first | further)} arrays in {arguments.out}", *(f"differs: {name}" for name in differ), sep="\n")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
