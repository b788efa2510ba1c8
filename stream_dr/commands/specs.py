"""Specs: `NAME=KEY[:param=value,…]` from the command line; a value in braces is JSON, such as a feature map's spec. In the
place of KEY may stand the file of a saved estimator, `NAME=FILE.safetensors`."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from stream_dr.directory.directory import Directory
    from stream_dr.models.model import Model

Dir = Annotated[
    Path,
    typer.Option(
        "--dir", envvar="STREAM_DR_DIR", help="The directory: log, models, snapshots. Made if it is not there."
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="NAME=KEY[:param=value,…]",
        help="A model; may be given several times. NAME=FILE.safetensors goes on from a saved estimator.",
    ),
]


def path_or_uri(text: str) -> Path:
    """A path, or a URI of an object store as something with a Path's methods. Raises InvalidParameter."""
    if "://" not in text:
        return Path(text)
    from stream_dr.shards.uri import path_of

    return cast(Path, path_of(text))


Sources = Annotated[
    list[Path],
    typer.Argument(
        metavar="SRC…", parser=path_or_uri, help="Files, packed or not, shards, folders of shards, or URIs of shards."
    ),
]
SkipDamaged = Annotated[bool, typer.Option("--skip-damaged", help="Pass over damaged shards, and say which.")]
Specs = list[tuple[str, str, dict[str, Any]]]
"""Models' names, estimators' keys (or saved estimators' files) and parameters."""
SAVED = ".safetensors"
Value = str | int | float | bool | None | dict[str, Any]

_WORDS: dict[str, Value] = {"true": True, "false": False, "none": None}


def parse_spec(text: str) -> tuple[str, str, dict[str, Value]]:
    """A model's name, estimator key or file, and parameters. Raises typer.BadParameter (exit status 2)."""
    name, equals, rest = text.partition("=")
    if name and rest.endswith(SAVED):
        return name.strip(), rest.strip(), {}
    key, _, given = rest.partition(":")
    if not (name and equals and key):
        raise typer.BadParameter(f"{text!r}; give NAME=KEY[:param=value,…], for example lda=lda:n_components=9.")
    params: dict[str, Value] = {}
    for part in filter(None, re.split(r",(?![^{]*\})", given)):
        param, sign, value = part.partition("=")
        if not (param and sign):
            raise typer.BadParameter(f"{part!r} in {text!r}; give param=value.")
        params[param.strip()] = parse_value(value.strip())
    return name.strip(), key.strip(), params


def parse_value(text: str) -> Value:
    """A number, true, false, none, JSON in braces, or else the text itself. Raises typer.BadParameter."""
    if text.startswith("{"):
        try:
            found: dict[str, Any] = json.loads(text)
            return found
        except ValueError as e:
            raise typer.BadParameter(f"{text!r} is not JSON ({e}).") from e
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def check_specs(specs: Specs, dir: Path) -> None:
    """Raise what is wrong with the models that are named, before the directory is made."""
    from stream_dr.directory.model_table import check_name
    from stream_dr.estimators import make
    from stream_dr.models.saved import load

    for name, key, params in specs:
        check_name(name)
        load(key, max_bytes=None) if key.endswith(SAVED) else make(key, params)
    if not specs and not dir.exists():
        raise no_model(dir)


def add_model(directory: "Directory", name: str, key: str, params: dict[str, Any]) -> tuple["Model", bool]:
    """The model in the directory, and whether it is new. Raises as Directory.add_model, add_saved, and load."""
    from stream_dr.models.saved import load

    if not key.endswith(SAVED):
        return directory.add_model(name, key, params)
    return directory.add_saved(name, load(key, directory.limits.max_state_bytes))


def no_model(dir: Path) -> typer.BadParameter:
    """What says that there is no model to learn with."""
    return typer.BadParameter(f"{dir} has no model yet; name one with --model NAME=KEY.", param_hint="--model")
