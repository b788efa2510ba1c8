"""stream_dr: supervised dimensionality reduction on streams too large for memory.

Public names stand in `__init__.pyi`; each is loaded when first used, so `import stream_dr` is quick.
"""

from typing import Any

import lazy_loader

__version__ = "0.1.0"

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Load a public name. Raises AttributeError, which names the one that was meant."""
    if name in __all__:
        return _load(name)
    from stream_dr.errors import did_you_mean

    raise AttributeError(f"stream_dr has no {name!r}{did_you_mean(name, __all__)}")
