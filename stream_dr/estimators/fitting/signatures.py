"""Signatures: an estimator's parameters as types, for whoever validates or documents them (the service's PUT /models).

Why this way: a parameter is written down once, as a field; its type, default and name are read from there.
"""

import inspect
from typing import Any, get_type_hints


def parameter_types(kind: type) -> list[tuple[str, Any, Any]]:
    """(name, type, default) of every parameter of an estimator class, in order; Any where none is annotated."""
    hints = get_type_hints(kind.__init__)  # type: ignore[misc]
    return [(p.name, hints.get(p.name, Any), p.default) for p in inspect.signature(kind).parameters.values()]
