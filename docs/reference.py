"""The reference: a page for every public name, from its signature and docstrings; docs/build.py puts them into the site."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

from sklearn.base import BaseEstimator

import stream_dr
from stream_dr import errors

FACE = (
    *("fit", "partial_fit", "fit_transform", "transform", "inverse_transform", "get_feature_names_out", "set_params"),
    *("predict", "predict_proba", "predict_log_proba", "decision_function", "score", "score_samples", "kneighbors"),
    *("get_covariance", "get_precision", "merge", "unlearn", "refine", "save"),
)
"""The methods of an estimator that are for its users; the others are for the engine."""


def pages() -> Iterator[tuple[str, str]]:
    """(file name, Markdown) of every page."""
    groups: dict[str, list[str]] = {"Estimators": [], "Classes": [], "Functions": []}
    estimators = {kind.__name__ for kind in stream_dr.ESTIMATORS.values()} | {"KNearest"}
    for name in stream_dr.__all__:
        thing = getattr(stream_dr, name)
        if name in estimators or inspect.isclass(thing):
            yield f"{name}.md", of_class(name, thing)
            groups["Estimators" if name in estimators else "Classes"].append(name)
        elif inspect.isfunction(thing):
            yield f"{name}.md", f"# {name}\n\n{of_function(f'stream_dr.{name}', thing)}"
            groups["Functions"].append(name)
    yield "errors.md", of_errors()
    yield "index.md", index(groups)


def index(groups: dict[str, list[str]]) -> str:
    """The list of all pages, each with the first sentence of what it describes."""
    lines = ["# Reference", "", "Every public name of `stream_dr`, its parameters and what it offers.", ""]
    for group, names in groups.items():
        lines += [f"## {group}", "", "| name | what it is |", "|---|---|"]
        lines += [f"| [`{name}`]({name}.md) | {_first(getattr(stream_dr, name))} |" for name in names] + [""]
    return "\n".join(
        [*lines, "`stream_dr.ESTIMATORS` maps every key to its class. [Errors](errors.md) have a page of their own."]
    )


def of_class(name: str, kind: Any) -> str:
    """A class: how it is made, what it is, its parameters, attributes and methods."""
    parts = [f"# {name}", _code(f"stream_dr.{name}", kind), text(inspect.getdoc(kind) or "")]
    ours, theirs = _members(kind)
    properties = [(n, m) for n, m in ours if isinstance(m, property)]
    if properties and "\nAttributes\n---" not in (kind.__doc__ or ""):
        parts += ["## Attributes", "\n".join(f"- `{n}`: {_first(m)}" for n, m in properties)]
    methods = [(n, m) for n, m in ours if callable(m) and (n in FACE or not issubclass(kind, BaseEstimator))]
    if methods:
        parts += ["## Methods", *(f"### {n}\n\n{of_function(n, m)}" for n, m in methods)]
    if theirs:
        parts.append(f"From scikit-learn: {', '.join(f'`{n}`' for n in theirs)}.")
    return "\n\n".join(parts) + "\n"


def of_function(name: str, function: Any) -> str:
    """A function or method: its signature and what it does."""
    return f"{_code(name, function)}\n\n{text(inspect.getdoc(function) or '')}"


def of_errors() -> str:
    """Every error by its class and code."""
    rows = ["# Errors", "", text(inspect.getdoc(errors) or ""), "", "| class | code | meaning |", "|---|---|---|"]
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.StreamDRError):
            rows.append(f"| `stream_dr.errors.{name}` | `{kind.code}` | {_first(kind)} |")
    return "\n".join(rows) + "\n"


def text(docstring: str) -> str:
    """A docstring as Markdown: headings become headings, what they list a list, examples code; formulas are linked."""
    docstring = re.sub(r"mathematics(?= §|, section)", "[mathematics](../mathematics.md)", docstring)
    docstring = re.sub(r"^(\w+)\n-{3,}$", r"## \1\n", docstring, flags=re.MULTILINE)
    docstring = re.sub(r"^(\w+) : (.*)\n((?:    .*\n?)+)", _listed, docstring, flags=re.MULTILINE)
    paragraphs = docstring.split("\n\n")
    return "\n\n".join(f"```pycon\n{p}\n```" if p.startswith(">>>") else p for p in paragraphs)


def _listed(entry: re.Match[str]) -> str:
    name, kind, meaning = entry.groups()
    meaning = " ".join(meaning.split())
    return "" if "Internal;" in meaning else f"- **`{name}`** ({kind}): {meaning}\n"


def _members(kind: Any) -> tuple[list[tuple[str, Any]], list[str]]:
    """Public members that our classes define, described ones, and the names of those that scikit-learn's do."""
    ours, theirs = [], []
    for name, member in inspect.getmembers_static(kind):
        owner = next(base for base in kind.__mro__ if name in vars(base))
        plain = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if name.startswith("_") or not (callable(plain) or isinstance(plain, property)) or not inspect.getdoc(plain):
            continue
        if owner.__module__.startswith("stream_dr"):
            ours.append((name, plain))
        elif owner.__module__.startswith("sklearn"):
            theirs.append(name)
    return ours, theirs


def _code(name: str, thing: Any) -> str:
    """The call, a parameter a line where it is long."""
    signature = inspect.signature(thing)
    kept = [p for p in signature.parameters.values() if p.name != "self"]
    shown = re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=\w)", "", str(signature.replace(parameters=kept))).replace(" -> None", "")
    if len(name) + len(shown) > 100:
        inner = "".join(
            f"    {line},\n" for line in re.split(r", (?=\w+:|\*,|\w+=)|, (?=\w+[,)])", shown[1 : shown.rindex(")")])
        )
        shown = f"(\n{inner}){shown[shown.rindex(')') + 1 :]}"
    return f"```text\n{name}{shown}\n```"


def _first(thing: Any) -> str:
    """The first sentence of what describes a thing, in one line."""
    paragraph = " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
    return re.split(r"(?<!\beq)(?<=[.])\s", paragraph)[0].replace("|", "\\|")
