"""Specs: `NAME=KEY[:param=value,…]` from the command line; a value in braces is JSON, such as a feature map's spec."""

import json
import re
from typing import Annotated, Any

import typer

SkipDamaged = Annotated[bool, typer.Option("--skip-damaged", help="Pass over damaged shards, and say which.")]
Value = str | int | float | bool | None | dict[str, Any]

_WORDS: dict[str, Value] = {"true": True, "false": False, "none": None}


def parse_spec(text: str) -> tuple[str, str, dict[str, Value]]:
    """A model's name, estimator key and parameters. Raises typer.BadParameter (exit status 2)."""
    name, equals, rest = text.partition("=")
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
