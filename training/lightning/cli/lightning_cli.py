"""LightningCLI: fit, validate, test and predict from the command line, with settings as options or in a YAML file."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from ....runtime.base.errors import FormatError, UsageError
from ....runtime.base.nearest_name import did_you_mean
from ...loop.random_state import seed_everything
from ..data_module import LightningDataModule
from ..lightning_module import LightningModule
from ..settings import Settings
from ..trainer import Trainer

STAGES = ("fit", "validate", "test", "predict")
SECTIONS = ("model", "data", "trainer")
SEED, CHECKPOINT = "seed_everything", "ckpt_path"
PLAIN = (SEED, CHECKPOINT)
"""Settings outside of the sections."""
OPTIONAL_TEXT = ("str | None", "None | str", "Optional[str]")
NULL = ("null", "~", "")


class LightningCLI:
    """A command line whose options are the arguments of a module, a data module and a trainer.

        cc.LightningCLI(Net, Digits)
        # python script.py fit --config run.yaml --model.width 64 --trainer.max_epochs 3 --data.batch_size 32

    Options win over the file, of several files the later one. Values are read as YAML, with YAML 1.2's floats;
    options of arguments annotated as `str` are text as they are.

    Args:
        model_class, datamodule_class: what is made and run; without a data module the module has the loaders.
        trainer_class: Trainer, or a class derived from it.
        trainer_defaults: settings of the trainer that options replace.
        seed_everything_default: the seed; True for 0, False for none.
        args: the words of the command line, by default those of the process.
        run: whether the subcommand is run; otherwise there is none, and objects are only made.

    Attributes:
        model, datamodule, trainer: the objects.
        config: all settings, by section.
        result: what the subcommand returned.
    """

    def __init__(
        self,
        model_class: type[LightningModule],
        datamodule_class: type[LightningDataModule] | None = None,
        trainer_class: type[Trainer] = Trainer,
        trainer_defaults: Mapping[str, Any] | None = None,
        seed_everything_default: bool | int = True,
        args: Sequence[str] | None = None,
        run: bool = True,
    ) -> None:
        self.config: dict[str, Any] = {}
        self.result: Any = None
        self._classes: dict[str, Any] = {"model": model_class, "trainer": trainer_class}
        if datamodule_class is not None:
            self._classes["data"] = datamodule_class
        self._seed = seed_everything_default
        self._defaults = dict(trainer_defaults or {})
        command: click.Command
        if run:
            command = click.Group(help=f"Train and evaluate {model_class.__name__}.")
            for stage in STAGES:
                command.add_command(self._command(stage, stage))
        else:
            command = self._command(model_class.__name__, None)
        try:
            command.main(args=None if args is None else list(args), standalone_mode=False)
        except click.ClickException as error:
            if args is not None:
                raise
            error.show()
            sys.exit(error.exit_code)
        if args is None and not self.config:  # the help was shown
            sys.exit(0)

    def _command(self, name: str, stage: str | None) -> click.Command:
        options = [
            click.Option(["--config", "-c"], multiple=True, type=click.Path(), help="YAML file of settings."),
            click.Option([f"--{SEED}", SEED], help="Seed of all random numbers; false for none."),
            click.Option([f"--{CHECKPOINT}", CHECKPOINT], help="Checkpoint to go on from or to evaluate."),
        ]
        for section, made in self._classes.items():
            for parameter in _parameters(section, made):
                words = [f"--{section}.{parameter.name}", f"{section}__{parameter.name}"]
                required = parameter.default is inspect.Parameter.empty
                shown = "required" if required else f"default: {parameter.default}"
                options.append(click.Option(words, help=shown))
        return click.Command(name, params=list(options), callback=self._callback(stage), help=f"Run {name}.")

    def _callback(self, stage: str | None) -> Callable[..., None]:
        def called(config: Sequence[str], **given: Any) -> None:
            settings: dict[str, Any] = {"trainer": dict(self._defaults)}
            for path in config:
                _merge(settings, _read(path, self._classes))
            for name, text in given.items():
                if text is not None:
                    section, _, key = name.partition("__")
                    if key:
                        takes_text = _takes_text(_parameters(section, self._classes[section]), key, text)
                        _merge(settings, {section: {key: text if takes_text else _value(name, text)}})
                    else:
                        _merge(settings, {section: text if section == CHECKPOINT else _value(name, text)})
            self._run(stage, settings)

        return called

    def _run(self, stage: str | None, settings: dict[str, Any]) -> None:
        self.config = settings
        seed, checkpoint = settings.get(SEED, self._seed), settings.get(CHECKPOINT)
        if not isinstance(seed, bool | int | None) or (seed is not None and seed < 0):
            raise UsageError(
                "E-OPTION", None, f"{SEED} is {seed!r}", expected="an integer of at least 0, true or false"
            )
        if not isinstance(checkpoint, str | None):
            raise UsageError("E-OPTION", None, f"{CHECKPOINT} is {checkpoint!r}", expected="a path")
        if seed is not False and seed is not None:
            seed_everything(0 if seed is True else seed)
        made = {}
        for section, kind in self._classes.items():
            arguments = settings.get(section) or {}
            missing = [
                each.name
                for each in _parameters(section, kind)
                if each.default is inspect.Parameter.empty and each.name not in arguments
            ]
            if missing:
                why = f"missing option --{section}.{missing[0]}"
                raise UsageError("E-OPTION", None, why, hint="Pass it, or name it in the file of --config")
            made[section] = kind(**arguments)
        self.model, self.datamodule, self.trainer = made["model"], made.get("data"), made["trainer"]
        if stage is not None:
            options = {"datamodule": self.datamodule, CHECKPOINT: checkpoint}
            self.result = getattr(self.trainer, stage)(self.model, **options)


def _parameters(section: str, made: Any) -> list[inspect.Parameter]:
    """The parameters of a class; of a trainer its settings."""
    signature = inspect.signature(Settings if section == "trainer" else made)
    return [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def _read(path: str, classes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a YAML file. FormatError for what is not a mapping, UsageError for unknown names."""
    try:
        found = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_Loader) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError) as error:
        raise FormatError("E-TRAIN-CONFIG", path, f"cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(found, dict):
        raise FormatError("E-TRAIN-CONFIG", path, "is not a mapping of settings", expected=", ".join(SECTIONS))
    for name, value in found.items():
        if name not in (*classes, *PLAIN):
            known = [*classes, *PLAIN]
            raise UsageError("E-OPTION", path, f"unknown setting {name!r}", hint=did_you_mean(str(name), known, ""))
        if name in PLAIN:
            continue
        if value is not None and not isinstance(value, dict):
            raise UsageError("E-OPTION", path, f"{name} is {value!r}", expected="settings by name")
        parameters = _parameters(name, classes[name])
        known = [parameter.name for parameter in parameters]
        for key in value or ():
            if key not in known:
                hint = did_you_mean(str(key), known, f"Settings: {', '.join(known)}")
                raise UsageError("E-OPTION", path, f"unknown setting {name}.{key}", hint=hint)
    return found


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML whose floats are those of YAML 1.2, so that 1e-3 is a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"), list("-+.0123456789")
)


def _takes_text(parameters: Sequence[inspect.Parameter], name: str, text: str) -> bool:
    """Whether a word is the value itself: the parameter is annotated as text, or as text or None and it is not null."""
    annotation = next(parameter.annotation for parameter in parameters if parameter.name == name)
    words = str(getattr(annotation, "__name__", annotation) if isinstance(annotation, type) else annotation)
    return words == "str" or (words.removeprefix("typing.") in OPTIONAL_TEXT and text not in NULL)


def _value(name: str, text: str) -> Any:
    """A word of the command line, read as YAML."""
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:
        why = f"--{name.replace('__', '.')} is {text!r}, which is not YAML"
        raise UsageError("E-OPTION", None, why, hint="Put the value in quotes") from error


def _merge(settings: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add settings, section by section."""
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(settings.get(name), dict):
            settings[name] |= value
        else:
            settings[name] = value
