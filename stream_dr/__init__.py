"""stream_dr: supervised dimensionality reduction on streams too large for memory.

Public names are loaded when first used, so `import stream_dr` is quick.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_NAMES = {
    "ESTIMATORS": "estimators",
    "LDA": "estimators.lda",
    "SKM": "estimators.skm",
    "OPLS": "estimators.opls",
    "CCA": "estimators.cca",
    "HSL": "estimators.hsl",
    "PCA": "estimators.pca",
    "MMC": "estimators.mmc",
    "WMV": "estimators.wmv",
    "SPCA": "estimators.spca",
    "SRP": "estimators.srp",
    "PLSDA": "estimators.plsda",
    "CCIPCA": "estimators.ccipca",
    "ClassMeans": "estimators.class_means",
    "IncrementalSKM": "estimators.iskm",
    "Block": "block",
    "errors": "errors",
    "Directory": "engine.directory",
    "Running": "engine.running",
    "RunSettings": "engine.running",
    "Limits": "engine.limits",
    "PublishPolicy": "engine.model",
    "rows_draft": "engine.draft",
    "transform": "engine.transform",
    "Client": "client",
    "export_projection": "engine.export",
    "parse_rows": "engine.decode",
    "one_row": "engine.one_row",
    "parameter_types": "estimators.signatures",
    "warm_up": "engine.warm_up",
    "to_river": "adapters.river",
    "load": "engine.snapshot",
    "save": "engine.snapshot",
    "InformationGain": "estimators.information_gain",
    "KNearest": "estimators.k_nearest",
    "LPP": "estimators.lpp",
    "NPE": "estimators.npe",
    "LaplacianEigenmaps": "estimators.laplacian_eigenmaps",
    "LLE": "estimators.lle",
    "random_fourier": "feature_maps",
    "hashing": "feature_maps",
}

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
