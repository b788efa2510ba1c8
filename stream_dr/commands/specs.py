"""Specs: `NAME=KEY[:param=value,…]` from the command line; a value in braces is JSON, such as a feature map's spec, of which
the name alone will do (feature_map=text). In the place of KEY may stand the file of a saved estimator,
`NAME=FILE.safetensors`."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from stream_dr.commands.output import say

if TYPE_CHECKING:
    from stream_dr.directory.directory import Directory
    from stream_dr.models.model import Model
    from stream_dr.rows.block import Block

_DIR = typer.Option(
    "--dir",
    envvar="STREAM_DR_DIR",
    file_okay=False,
    help="The directory: log, models, snapshots. Made if it is not there.",
)
Dir = Annotated[Path, _DIR]
AnyDir = Annotated[Path | None, _DIR]
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
Params = dict[str, Any]
Specs = list[tuple[str, str, dict[str, Any]]]
"""Models' names, estimators' keys (or saved estimators' files) and parameters."""
SAVED = ".safetensors"
Value = str | int | float | bool | None | dict[str, Any] | list[Any]

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
    for part in filter(None, re.split(r",(?![^{]*\}|[^\[]*\])", given)):
        param, sign, value = part.partition("=")
        if not (param and sign):
            raise typer.BadParameter(f"{part!r} in {text!r}; give param=value.")
        params[param.strip()] = parse_value(value.strip())
    if isinstance(params.get("feature_map"), str):
        params["feature_map"] = {"map": params["feature_map"]}
    return name.strip(), key.strip(), params


def parse_value(text: str) -> Value:
    """A number, true, false, none, JSON in braces or brackets, or else the text itself. Raises typer.BadParameter."""
    if text.startswith(("{", "[")):
        try:
            found: dict[str, Any] | list[Any] = json.loads(text)
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


def spec_text(name: str, key: str, params: dict[str, Any]) -> str:
    """What parse_spec reads."""
    params = {k: v["map"] if isinstance(v, dict) and v.keys() == {"map"} else v for k, v in params.items()}
    told = (f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in params.items())
    return f"{name}={key}{':' if params else ''}{','.join(told)}"


def parse_specs(texts: list[str] | None) -> Specs:
    """The models that are named. Raises what is wrong with one, before a row is read."""
    specs = [parse_spec(text) for text in texts or []]
    check_specs(specs)
    return specs


def check_specs(specs: Specs) -> None:
    """Raise what is wrong with models."""
    from stream_dr.directory.model_table import check_name
    from stream_dr.estimators import make
    from stream_dr.models.saved import load

    names = [name for name, _, _ in specs]
    for name, key, params in specs:
        check_name(name)
        if names.count(name) > 1:
            raise typer.BadParameter(
                f"two models are called {name!r}; give each a name of its own.", param_hint="--model"
            )
        load(key, max_bytes=None) if key.endswith(SAVED) else make(key, params)


def through_map(specs: Specs, first: "Block", chosen: dict[str, Any], table: dict[str, Any]) -> Specs:
    """Return models as they learn a table: with a feature map, and LDA of words with a ridge, said on stderr.

    first: the first batch. chosen: map of models without one. table: the map of models that name it and say no more.
    """
    mapped = []
    for name, key, given in specs:
        params = given
        if not key.endswith(SAVED):
            params = {**given, "feature_map": given.get("feature_map", chosen)}
            params["feature_map"] = table if params["feature_map"] == {"map": "table"} else params["feature_map"]
            params |= _ridge(name, key, given, params["feature_map"], first)
        mapped.append((name, key, params))
    return mapped


def _ridge(name: str, key: str, given: Params, feature_map: Params | None, first: "Block") -> Params:
    """Return the ridge of LDA where its map makes words and the command gives none."""
    from stream_dr.evaluation.comparison import RIDGES, kind_of_rows

    if key != "lda" or {"gamma", "shrinkage"} & given.keys():
        return {}
    kind = kind_of_rows(first, feature_map)
    if "words" not in kind:
        return {}
    say(f"{name} learns {kind}, with a ridge: --model {spec_text(name, key, given | RIDGES[kind])}.")
    return RIDGES[kind]


def has_models(dir: Path) -> bool:
    """Whether a directory is there and has models."""
    from stream_dr.directory.directory import Directory

    if not (dir / "log").exists():
        return False
    with Directory(dir, writable=False) as directory:
        return bool(directory.models)


def add_model(directory: "Directory", name: str, key: str, params: dict[str, Any]) -> tuple["Model", bool]:
    """The model in the directory, and whether it is new. Raises as Directory.add_model, add_saved, and load."""
    from stream_dr.models.saved import load

    if not key.endswith(SAVED):
        return directory.add_model(name, key, params)
    return directory.add_saved(name, load(key, directory.limits.max_state_bytes))
