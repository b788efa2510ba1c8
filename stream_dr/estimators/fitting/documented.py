"""documented: docstrings in which the parameters and attributes that a class inherits stand beside its own.

A class describes what is its own, in numpydoc's sections Parameters and Attributes; `help`, tooltips and the reference show
all of them. What a class describes anew is as the class says.
"""

import inspect
import re

SECTION = re.compile(r"^(Parameters|Attributes)\n-+\n(.*?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^(\w+) : .*(?:\n    .*)*", re.MULTILINE)


def described(cls: type) -> dict[str, dict[str, str]]:
    """Section → name → its entry, as numpydoc has them, of a class and its bases."""
    found: dict[str, dict[str, str]] = {"Parameters": {}, "Attributes": {}}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("stream_dr."):
            for section, entries in SECTION.findall(_own_text(base)):
                found[section] |= {entry[1]: entry[0] for entry in ENTRY.finditer(entries)}
    return found


def documented(cls: type) -> str:
    """The class's docstring with every parameter and attribute; its own text is kept for the classes made of it."""
    cls._own_text = _own_text(cls)  # type: ignore[attr-defined]
    head, example, rest = SECTION.sub("", _own_text(cls)).partition(">>>")
    sections = [
        "\n".join([name, "-" * len(name), *entries.values()]) for name, entries in described(cls).items() if entries
    ]
    return "\n\n".join([re.sub(r"\n{3,}", "\n\n", head).strip(), *sections, *([example + rest] if example else [])])


def _own_text(cls: type) -> str:
    return vars(cls).get("_own_text") or inspect.cleandoc(vars(cls).get("__doc__") or "")
