"""Signatures: an estimator's parameters as types.

The service's PUT /models validates and documents them. Name, type and default are read from the
fields.
"""

import inspect
from typing import Any, get_type_hints


def parameter_types(kind: type) -> list[tuple[str, Any, Any]]:
    """Return (name, type, default) of every parameter of an estimator class.

    In order. The type is Any if none is annotated.

    >>> import stream_dr
    >>> stream_dr.parameter_types(stream_dr.KNearest)[0]
    ('n_neighbors', <class 'int'>, 1)
    """
    hints = get_type_hints(kind.__init__)  # type: ignore[misc]
    return [(p.name, hints.get(p.name, Any), p.default) for p in inspect.signature(kind).parameters.values()]
