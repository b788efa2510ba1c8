"""Description of every estimator's parameters, for the forms of the dashboard."""

from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import stream_dr
from service.json_types import JsonDict

FORMS = "forms.json"
"""Name of the file that the dashboard loads."""


def estimator_forms() -> JsonDict:
    """Return the description of each estimator, by its key.

    A description has these fields:

    - `about`: one sentence.
    - `refines`: true if the estimator can be refined.
    - `params`: list of {"name", "kind", "choices", "default"}. The kind is "integer", "number",
      "boolean", "choice", or "json" for any other type.
    """
    return {key: _estimator_form(kind) for key, kind in stream_dr.ESTIMATORS.items()}


def _estimator_form(kind: type) -> JsonDict:
    about = (kind.__doc__ or "").strip().partition("\n")[0].partition(" [")[0]
    params = [
        {"name": name, "default": default} | _field_kind(hint)
        for name, hint, default in stream_dr.parameter_types(kind)
    ]
    return {"about": about, "refines": getattr(kind, "refined_by", None) is not None, "params": params}


def _field_kind(hint: Any) -> JsonDict:
    """Return the kind and the choices of a parameter with this type hint."""
    if get_origin(hint) is Literal:
        return {"kind": "choice", "choices": list(get_args(hint))}
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    plain = [kind for kind in kinds if kind is not type(None)]
    if plain == [bool]:
        return {"kind": "boolean"}
    if plain == [int]:
        return {"kind": "integer"}
    return {"kind": "number" if plain and set(plain) <= {int, float} else "json"}
