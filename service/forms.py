"""Forms: the parameters of every estimator as a page can ask for them, from the registry's own signatures."""

from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import stream_dr

FORMS = "forms.json"


def forms() -> dict[str, Any]:
    """Key → {"about", "refines", "params": [{"name", "kind", "choices", "default"}]}; kind is "integer", "number",
    "boolean", "choice", or "json" for what has another form."""
    return {key: _form(kind) for key, kind in stream_dr.ESTIMATORS.items()}


def _form(kind: type) -> dict[str, Any]:
    first = (kind.__doc__ or "").strip().partition("\n")[0].partition(" [")[0]
    params = [
        {"name": name, "default": default} | _kind(hint) for name, hint, default in stream_dr.parameter_types(kind)
    ]
    return {"about": first, "refines": getattr(kind, "refined_by", None) is not None, "params": params}


def _kind(hint: Any) -> dict[str, Any]:
    if get_origin(hint) is Literal:
        return {"kind": "choice", "choices": list(get_args(hint))}
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    plain = [kind for kind in kinds if kind is not type(None)]
    if plain == [bool]:
        return {"kind": "boolean"}
    if plain == [int]:
        return {"kind": "integer"}
    return {"kind": "number" if plain and set(plain) <= {int, float} else "json"}
