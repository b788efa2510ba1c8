"""stream_dr: supervised dimensionality reduction on streams too large for memory.

Public names are loaded when first used, so `import stream_dr` is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what the service uses, with its types
    from stream_dr import errors
    from stream_dr.block import Block
    from stream_dr.engine.directory import Directory
    from stream_dr.engine.draft import Receipt, one_row, parse_rows, rows_draft
    from stream_dr.engine.jobs import Job
    from stream_dr.engine.model import Model, PublishPolicy, RefinePolicy
    from stream_dr.engine.predict import predict
    from stream_dr.engine.query import export_projection, transform
    from stream_dr.engine.running import Running, RunSettings
    from stream_dr.engine.schema import Limits
    from stream_dr.engine.warm_up import warm_up
    from stream_dr.estimators import ESTIMATORS
    from stream_dr.estimators.signatures import parameter_types

__version__ = "0.1.0"

_MODULES = {
    "estimators": "ESTIMATORS",
    "estimators.lda": "LDA",
    "estimators.skm": "SKM",
    "estimators.opls": "OPLS",
    "estimators.cca": "CCA",
    "estimators.hsl": "HSL",
    "estimators.pca": "PCA",
    "estimators.mmc": "MMC",
    "estimators.wmv": "WMV",
    "estimators.spca": "SPCA",
    "estimators.srp": "SRP",
    "estimators.plsda": "PLSDA",
    "estimators.ccipca": "CCIPCA",
    "estimators.class_means": "ClassMeans",
    "estimators.iskm": "IncrementalSKM",
    "block": "Block",
    "errors": "errors",
    "engine.directory": "Directory",
    "engine.running": "Running RunSettings",
    "engine.schema": "Limits",
    "engine.model": "PublishPolicy RefinePolicy Model",
    "engine.draft": "rows_draft Receipt parse_rows one_row",
    "engine.jobs": "Job",
    "engine.query": "transform export_projection",
    "engine.predict": "predict",
    "client": "Client",
    "estimators.signatures": "parameter_types",
    "engine.warm_up": "warm_up",
    "adapters.river": "to_river",
    "engine.snapshot": "load save",
    "estimators.information_gain": "InformationGain",
    "estimators.k_nearest": "KNearest",
    "estimators.lpp": "LPP",
    "estimators.npe": "NPE",
    "estimators.laplacian_eigenmaps": "LaplacianEigenmaps",
    "estimators.lle": "LLE",
    "feature_maps": "random_fourier hashing",
}
"""Public names by their modules."""
_NAMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = ["__version__", *sorted(_NAMES)]


def __getattr__(name: str) -> Any:
    """Load a public name's module the first time it is asked for (PEP 562)."""
    if name not in _NAMES:
        raise AttributeError(f"module 'stream_dr' has no attribute {name!r}")
    module = importlib.import_module(f"stream_dr.{_NAMES[name]}")
    found = globals()[name] = module if name == _NAMES[name] else getattr(module, name)
    return found


def __dir__() -> list[str]:
    """Public names."""
    return sorted(__all__)
