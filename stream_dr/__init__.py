"""stream_dr: supervised dimensionality reduction on streams too large for memory.

Public names stand in `__init__.pyi`; each is loaded when first used, so `import stream_dr` is quick.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
