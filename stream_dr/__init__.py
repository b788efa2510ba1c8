"""stream_dr: supervised dimensionality reduction on streams too large for memory.

`__init__.pyi` lists the public names. Each is loaded when it is first used, so `import stream_dr`
is quick. `dir(stream_dr)` lists the names for use in Python. The other public names (ENGINE) are
parts of the service's engine. They can be imported from stream_dr, but `dir` does not list them.
"""

from typing import Any

import lazy_loader

__version__ = "0.1.0"

_load, _, __all__ = lazy_loader.attach_stub(__name__, __file__)

ENGINE = frozenset(
    {
        "DryRunReceipt",
        "FigureOptions",
        "Job",
        "Limits",
        "LiveFigures",
        "Model",
        "PublishPolicy",
        "Receipt",
        "ReleaseEntry",
        "RefinePolicy",
        "RunSettings",
        "Running",
        "ServedArray",
        "export_model",
        "export_projection",
        "one_row",
        "parameter_types",
        "parse_rows",
        "predict",
        "rows_draft",
        "transform",
        "warm_up",
    }
)
"""Names that the service is built from. `dir` does not list them."""


def __dir__() -> list[str]:
    """Return the public names without those of the service's engine."""
    return sorted({*__all__, "__version__", "__doc__"} - ENGINE)


def __getattr__(name: str) -> Any:
    """Load a public name.

    Raises AttributeError for an unknown name. The message suggests the closest public name.
    """
    if name in __all__:
        return _load(name)
    from stream_dr.errors import did_you_mean

    raise AttributeError(f"stream_dr has no {name!r}{did_you_mean(name, __all__)}")
