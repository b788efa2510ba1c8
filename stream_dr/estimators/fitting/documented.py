"""Class docstrings that also list inherited parameters and attributes.

A class describes its own parameters and attributes in numpydoc's sections Parameters and
Attributes. `help`, tooltips and the reference show these descriptions and the inherited ones. If a
class and its base describe the same name, the description in the class is used.
"""

import inspect
import re

SECTION = re.compile(r"^(Parameters|Attributes)\n-+\n(.*?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^(\w+) : .*(?:\n    .*)*", re.MULTILINE)
NOTES = "Notes\n-----\n"


def collect_documented_entries(cls: type) -> dict[str, dict[str, str]]:
    """Return the descriptions of a class's parameters and attributes.

    The descriptions are read from the docstrings of the class and its base classes. The result has
    the text of each description, first by section ("Parameters" or "Attributes"), then by name.
    """
    sections: dict[str, dict[str, str]] = {"Parameters": {}, "Attributes": {}}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("stream_dr."):
            for section, entries in SECTION.findall(_own_text(base)):
                sections[section] |= {entry[1]: entry[0] for entry in ENTRY.finditer(entries)}
    return sections


def docstring_with_inherited(cls: type) -> str:
    """Return the class's docstring, with inherited parameters and attributes added.

    The order of the sections is purpose and example, Parameters, Attributes, Notes.
    """
    # Store the docstring without the inherited descriptions, because subclasses need it.
    cls._own_text = _own_text(cls)  # type: ignore[attr-defined]
    purpose, heading, notes = SECTION.sub("", _own_text(cls)).partition(NOTES)
    sections = [
        "\n".join([name, "-" * len(name), *entries.values()])
        for name, entries in collect_documented_entries(cls).items()
        if entries
    ]
    parts = [re.sub(r"\n{3,}", "\n\n", purpose).strip(), *sections, heading + notes]
    return "\n\n".join(part for part in parts if part)


def _own_text(cls: type) -> str:
    """Return the class's docstring without inherited parameters and attributes."""
    return vars(cls).get("_own_text") or inspect.cleandoc(vars(cls).get("__doc__") or "")
