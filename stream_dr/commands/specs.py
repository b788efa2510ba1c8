"""Specs: parse models of a command line, such as lda=lda:n_components=9.

A model is written as `NAME=KEY[:param=value,…]` or `NAME=FILE.safetensors`. KEY is the key of an
estimator in ESTIMATORS, and FILE.safetensors is a saved estimator. A value in braces or brackets
is JSON. A feature map without parameters may be given by its name (feature_map=text).
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

from stream_dr.aliases import JsonDict
from stream_dr.commands.output import say

if TYPE_CHECKING:
    from stream_dr.batch.block import Block
    from stream_dr.directory.directory import Directory
    from stream_dr.models.model import Model

_DIR = typer.Option(
    "--dir",
    envvar="STREAM_DR_DIR",
    file_okay=False,
    help="Directory with the log, models and snapshots. It is created if missing.",
)
Dir = Annotated[Path, _DIR]
AnyDir = Annotated[Path | None, _DIR]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="NAME=KEY[:param=value,…]",
        help="Name and estimator of a model. NAME=FILE.safetensors continues a saved estimator. May be repeated.",
    ),
]


def path_or_uri(text: str) -> Path:
    """Return a Path, or a RemotePath for a URI.

    A URI names shards in an object store. A RemotePath has the methods of Path that the readers of
    shards need. Raises InvalidParameter.
    """
    if "://" not in text:
        return Path(text)
    from stream_dr.shards.file import parse_path_or_uri

    return cast(Path, parse_path_or_uri(text))


def _files_of_folders(paths: list[Path]) -> list[Path]:
    """Return paths, with each folder replaced by its files."""
    from stream_dr.datasets.sources import files_of_folder

    files: list[Path] = []
    for path in paths:
        # A RemotePath (address in an object store) is no Path. It names shards, opened together.
        if isinstance(path, Path) and path.is_dir():
            files += map(Path, files_of_folder(path))
        else:
            files.append(path)
    return files


Sources = Annotated[
    list[Path],
    typer.Argument(
        metavar="SRC…",
        parser=path_or_uri,
        callback=_files_of_folders,
        help="Files (compressed or not), folders of files, shards, folders of shards, or URIs of shards.",
    ),
]
SkipDamaged = Annotated[bool, typer.Option("--skip-damaged", help="Skip damaged shards, and print their names.")]


class NamedSpec(NamedTuple):
    """Model that a command line names.

    Attributes
    ----------
    name : str
        Name of the model.
    key_or_file : str
        Key of an estimator, or path of the file of a saved estimator.
    params : dict
        Parameters of the estimator. Empty for a saved estimator.
    """

    name: str
    key_or_file: str
    params: JsonDict


ModelSpecs = list[NamedSpec]
"""Models that a command line names."""

SAVED_SUFFIX = ".safetensors"
"""Suffix of the files of saved estimators."""

Value = str | int | float | bool | None | JsonDict | list[Any]

_WORDS: dict[str, Value] = {"true": True, "false": False, "none": None}


def parse_model_spec(text: str) -> NamedSpec:
    """Parse one value of the option --model.

    text: NAME=KEY[:param=value,…] or NAME=FILE.safetensors.

    Raises typer.BadParameter for other texts. The command then ends with exit status 2.
    """
    name, equals, rest = text.partition("=")
    if name and rest.endswith(SAVED_SUFFIX):
        return NamedSpec(name.strip(), rest.strip(), {})

    # The text lda:gamma=1 lacks NAME=. Its part before the first = has a colon, unlike a name.
    key, _, assignments = rest.partition(":")
    if not (name and equals and key) or ":" in name:
        raise typer.BadParameter(f"{text!r}; give NAME=KEY[:param=value,…], for example lda=lda:n_components=9.")

    params: dict[str, Value] = {}
    for part in _split_at_outer_commas(assignments):
        if not part:
            continue
        param, sign, value = part.partition("=")
        if not (param and sign):
            raise typer.BadParameter(f"{part!r} in {text!r}; give param=value.")
        params[param.strip()] = parse_param_value(value.strip())

    # The text feature_map=text is short for the JSON feature_map={"map": "text"}.
    feature_map = params.get("feature_map")
    if isinstance(feature_map, str):
        params["feature_map"] = {"map": feature_map}
    return NamedSpec(name.strip(), key.strip(), params)


def _split_at_outer_commas(text: str) -> list[str]:
    """Split a text at its commas, but not at commas in braces or brackets."""
    parts = [""]
    depth = 0  # number of braces and brackets that are open
    for character in text:
        if character in "{[":
            depth += 1
        elif character in "}]":
            depth -= 1
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def parse_param_value(text: str) -> Value:
    """Convert a parameter's text to a Python value.

    The text may be a number, true, false, none, or JSON in braces or brackets. Any other text is
    returned as a string. Raises typer.BadParameter for invalid JSON.
    """
    if text.startswith(("{", "[")):
        try:
            return cast(Value, json.loads(text))
        except ValueError as e:
            raise typer.BadParameter(f"{text!r} is not JSON ({e}).") from e

    # `_WORDS` has the values of true, false and none.
    word = text.lower()
    if word in _WORDS:
        return _WORDS[word]

    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def format_spec(name: str, key: str, params: JsonDict) -> str:
    """Return a model as a value of --model.

    `parse_model_spec` can parse the value.

    name: name of the model.
    key: key of the model's estimator.
    params: parameters of the model's estimator.
    """
    spec = f"{name}={key}"
    assignments = []
    for param, value in params.items():
        # The feature map {"map": "text"} without further keys is written as feature_map=text.
        if isinstance(value, dict) and value.keys() == {"map"}:
            value = value["map"]
        if not isinstance(value, str):
            value = json.dumps(value)
        assignments.append(f"{param}={value}")
    if not assignments:
        return spec
    return f"{spec}:{','.join(assignments)}"


def parse_model_specs(texts: list[str] | None) -> ModelSpecs:
    """Parse and check the models that a command line names.

    texts: values of the option --model. None: no models.
    """
    specs = [parse_model_spec(text) for text in texts or []]
    check_model_specs(specs)
    return specs


def check_model_specs(specs: ModelSpecs) -> None:
    """Raise an error if a model's spec is invalid.

    Names, estimator keys and parameters are checked. Two models must not have the same name, and
    files of saved estimators must be readable.
    """
    from stream_dr.directory.model_table import check_name
    from stream_dr.estimators import make
    from stream_dr.models.saved import load

    names = [name for name, _, _ in specs]
    for name, key, params in specs:
        check_name("model", name)
        if names.count(name) > 1:
            message = f"two models are called {name!r}; give each a name of its own."
            raise typer.BadParameter(message, param_hint="--model")
        # Load or make the estimator only for the errors this raises. A file may have any size here.
        if key.endswith(SAVED_SUFFIX):
            load(key, max_bytes=None)
        else:
            make(key, params)


def complete_specs(
    specs: ModelSpecs, first_block: "Block", default_map: JsonDict, table_map_from_options: JsonDict
) -> ModelSpecs:
    """Add a feature map to models that learn a table.

    A feature map encodes the table's columns as numbers. If the table has words, LDA also gets a
    ridge (a regularisation), and a message is printed. Saved estimators are not changed.

    Parameters
    ----------
    specs : ModelSpecs
        The models.
    first_block : Block
        First batch of the table.
    default_map : dict
        Feature map for models whose parameters have no "feature_map".
    table_map_from_options : dict
        Feature map with the options of the command line, for models whose "feature_map" is
        {"map": "table"}, without options.
    """
    from stream_dr.evaluation.comparison import RIDGES, ridge_row_kind

    mapped = []
    for spec in specs:
        name, key, params = spec
        if key.endswith(SAVED_SUFFIX):
            mapped.append(spec)
            continue

        feature_map = params.get("feature_map", default_map)
        if feature_map == {"map": "table"}:
            feature_map = table_map_from_options
        # Only LDA without a regularisation of its own (gamma or shrinkage) gets a ridge.
        ridge: JsonDict = {}
        if key == "lda" and not {"gamma", "shrinkage"} & params.keys():
            # Kinds of rows are "words", "words beside columns", "many numbers" and "numbers".
            # RIDGES has the parameters of the ridge by kind. Only rows with words get one here.
            kind = ridge_row_kind(first_block, feature_map)
            if "words" in kind:
                ridge = RIDGES[kind]
                shown = format_spec(name, key, params | ridge)
                say(f"{name} learns {kind}, with a ridge: --model {shown}.")
        mapped.append(NamedSpec(name, key, {**params, "feature_map": feature_map, **ridge}))
    return mapped


def has_models(dir: Path) -> bool:
    """True if the directory exists and has a model."""
    from stream_dr.directory.directory import Directory

    if not (dir / "log").exists():
        return False
    with Directory(dir, writable=False) as directory:
        return bool(directory.models)


def add_model(directory: "Directory", name: str, key_or_file: str, params: JsonDict) -> tuple["Model", bool]:
    """Add a model, unless the directory has the same model.

    key_or_file: key of an estimator, or path of the file of a saved estimator.

    Returns the model, and True if this call has added the model. Raises the errors of
    Directory.add_model, Directory.add_saved and load.
    """
    from stream_dr.models.saved import load

    if not key_or_file.endswith(SAVED_SUFFIX):
        return directory.add_model(name, key_or_file, params)
    return directory.add_saved(name, load(key_or_file, directory.limits.max_state_bytes))
