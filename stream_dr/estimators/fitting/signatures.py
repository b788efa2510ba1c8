"""Names, types and defaults of an estimator's parameters.

The service uses them to validate and document the parameters of PUT /models.
"""

import inspect
from typing import Any, get_type_hints


def parameter_types(estimator_class: type) -> list[tuple[str, Any, Any]]:
    """Return name, type and default of an estimator class's parameters.

    The parameters come in the order of the signature. A parameter without annotation has the type
    Any.

    >>> import stream_dr
    >>> stream_dr.parameter_types(stream_dr.KNearest)[0]
    ('n_neighbors', <class 'int'>, 1)
    """
    hints = get_type_hints(estimator_class.__init__)  # type: ignore[misc]
    return [(p.name, hints.get(p.name, Any), p.default) for p in inspect.signature(estimator_class).parameters.values()]
