"""Pipelines of diffusers whose components are ONNX files in Optimum's layout, run by onnxruntime.

The classes feed and read the files as optimum.onnxruntime.modeling_diffusion does: by the names of the files' inputs,
each of which is required, in their dtypes; timesteps of UNets have no dimension; hidden states are numbered.
"""

import contextlib
from types import SimpleNamespace

import diffusers
import onnxruntime
import torch

DTYPES = {"tensor(float)": torch.float32, "tensor(float16)": torch.float16, "tensor(int64)": torch.int64}


class Component(torch.nn.Module):
    """A component that onnxruntime runs.

    Args:
        folder: of ``model.onnx``.
        original: the component of diffusers or transformers, whose configuration it has.
    """

    dtype, device = torch.float32, torch.device("cpu")

    def __init__(self, folder, original):
        super().__init__()
        self.session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
        self.config = original.config

    def run(self, **given):
        """The outputs by name, f32."""
        feeds = {}
        for value in self.session.get_inputs():
            assert given.get(value.name) is not None, f"input {value.name} is required but not provided"
            feeds[value.name] = given[value.name].to(DTYPES[value.type]).numpy()
        names = [value.name for value in self.session.get_outputs()]
        return {
            name: torch.from_numpy(item).float()
            for name, item in zip(names, self.session.run(None, feeds), strict=True)
        }


class UNet(Component):
    """As ORTUnet."""

    @property
    def add_embedding(self):
        """What the pipeline of XL asks for the width of the added conditions."""
        return SimpleNamespace(linear_1=SimpleNamespace(in_features=self.config.projection_class_embeddings_input_dim))

    def forward(
        self, sample, timestep, encoder_hidden_states, timestep_cond=None, added_cond_kwargs=None, return_dict=True, **_
    ):
        """The prediction."""
        found = self.run(
            sample=sample,
            timestep=timestep,
            encoder_hidden_states=encoder_hidden_states,
            timestep_cond=timestep_cond,
            **(added_cond_kwargs or {}),
        )
        return (found["out_sample"],)


class Transformer(Component):
    """As ORTTransformer."""

    cache_context = staticmethod(contextlib.nullcontext)

    def forward(self, return_dict=True, **given):
        """The prediction."""
        return tuple(self.run(**{name: item for name, item in given.items() if torch.is_tensor(item)}).values())


class TextEncoder(Component):
    """As ORTTextEncoder."""

    def forward(self, input_ids, attention_mask=None, output_hidden_states=False):
        """The outputs in their order, and the hidden states as a list."""
        found = self.run(input_ids=input_ids, attention_mask=attention_mask)
        states = [found.pop(name) for name in list(found) if name.startswith("hidden_states.")][:-1]
        result = list(found.values())
        outputs = dict(found)
        if output_hidden_states:
            outputs["hidden_states"] = [*states, found["last_hidden_state"]]
        return Outputs(result, outputs)


class Outputs:
    """Outputs by position and by name."""

    def __init__(self, items, named):
        self.items = items
        self.__dict__.update(named)

    def __getitem__(self, index):
        return self.items[index]


class Autoencoder(torch.nn.Module):
    """As ORTVae: encoder and decoder."""

    dtype, device = torch.float32, torch.device("cpu")

    def __init__(self, folder, original):
        super().__init__()
        self.encoder = Component(folder / "vae_encoder", original)
        self.decoder = Component(folder / "vae_decoder", original)
        self.config = original.config

    def encode(self, sample):
        """The distribution of latents."""
        parameters = self.encoder.run(sample=sample)["latent_parameters"]
        kind = diffusers.models.autoencoders.vae.DiagonalGaussianDistribution
        return SimpleNamespace(latent_dist=kind(parameters))

    def decode(self, latent_sample, return_dict=True, generator=None):
        """Pictures."""
        return (self.decoder.run(latent_sample=latent_sample)["sample"],)


def of_files(pipeline, folder):
    """The components of a pipeline of diffusers, those that have weights run from the ONNX files in a folder."""
    found = dict(pipeline.components)
    for name, item in found.items():
        if name == "vae":
            found[name] = Autoencoder(folder, item)
        elif isinstance(item, torch.nn.Module):
            kind = UNet if name == "unet" else Transformer if name == "transformer" else TextEncoder
            found[name] = kind(folder / name, item)
    return found
