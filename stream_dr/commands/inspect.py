"""Command `stream-dr inspect`, which shows log, schema and models."""

import json
from pathlib import Path
from typing import Annotated

import typer

from stream_dr.aliases import JsonDict
from stream_dr.commands.output import print_result


def inspect(
    directory: Annotated[Path, typer.Argument(metavar="D", envvar="STREAM_DR_DIR", help="Directory to show.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show a directory's log, schema and models.

    The models are shown as they are in their newest snapshots. A service may use the directory at
    the same time.
    """
    from stream_dr.directory.inspect import inspect as describe

    description = describe(directory)
    if as_json:
        print_result(json.dumps(description, indent=2))
        return

    schema = description["schema"]
    kind = schema["target_kind"] or "no"
    layout = schema["layout"] or "no"
    log = f"position {description['position']}, {description['rows']} rows"
    print_result(f"{log}, {layout} rows of {schema['features']} features")
    print_result(f"{kind} targets, {len(schema['labels'])} labels, weights: {schema['weighted']}")
    for name, model in description["models"].items():
        _print_model(name, model)


def _print_model(name: str, model: JsonDict) -> None:
    stale = f", {model['stale_rows']} stale rows" if model["stale_rows"] else ""
    params = ", ".join(f"{k}={v}" for k, v in model["params"].items())
    learned = f"{model['state']}, {model['rows']} rows, position {model['position']}"
    version = f"version {model['version']}, {model['components']} components, {model['solution']}{stale}"
    digest = f"sha256 {model['state_sha256'][:16]}"
    print_result(f"{name}: {model['estimator']}({params}), {learned}, {version}, {digest}")
    failure = model["failure"]
    if failure:
        print_result(f"  failed at position {failure['position']} ({failure['code']}): {failure['message']}")
