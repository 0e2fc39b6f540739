"""RoPE parameters as config.json states them: top-level keys of older files, or ``rope_parameters`` of transformers 5,
which may have one object for each kind of layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.architecture import HF, Config, Key, value_at
from ....runtime.contract.hyperparameter import ParameterError, checked, mapping

PARAMETERS, OLDER = "rope_parameters", "rope_scaling"


@dataclass(frozen=True)
class RopeSection:
    """The RoPE parameters of one kind of layer, or of all layers.

    Attributes:
        name: the kind of layer, whose parameters are ``rope_parameters.NAME``; "" for all layers.
        scaled: whether ``rope_scaling`` applies to this kind of layer.
        default: the parameters of a model whose config.json states none.
    """

    name: str = ""
    scaled: bool = True
    default: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Key of the parameters in transformers 5."""
        return f"{PARAMETERS}.{self.name}" if self.name else PARAMETERS

    def stated(self, source: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The stated parameters and their path. ``rope_scaling`` replaces the parameters of all layers, and is merged
        into those of a kind of layer, as transformers does."""
        checked(PARAMETERS, source.get(PARAMETERS) or {}, mapping)
        stated = checked(self.path, value_at(source, self.path) or {}, mapping)
        if not self.name and any(isinstance(value, Mapping) for value in stated.values()):
            raise ParameterError(PARAMETERS, "layers of this architecture do not differ in their RoPE parameters")
        older = checked(OLDER, source.get(OLDER) or {}, mapping) if self.scaled else {}
        if self.name:
            return (OLDER if older else self.path), {**stated, **older}
        return (OLDER, dict(older)) if older else (self.path, dict(stated or self.default))


ALL_LAYERS = RopeSection()
FULL_LAYERS, SLIDING_LAYERS = RopeSection("full_attention"), RopeSection("sliding_attention", scaled=False)
"""The sections of models whose sliding-window layers have RoPE parameters of their own."""


@dataclass(frozen=True)
class FrequencyBase(Key):
    """Hyper-parameter: the RoPE frequency base; `hf` has the top-level keys of older files.

    Attributes:
        section: the layers that it belongs to.
    """

    section: RopeSection = ALL_LAYERS

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> Any:
        if names == HF:
            path, stated = self.section.stated(source)
            if stated.get("rope_theta") is not None:
                return checked(f"{path}.rope_theta", stated["rope_theta"], self.kind)
        return super().read(names, source, config)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        nested = names == HF and self.section.name
        said = {f"{self.section.path}.rope_theta": getattr(config, self.name)} if nested else {}
        return {**super().write(names, config), **said}
