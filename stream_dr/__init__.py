"""stream_dr: supervised dimensionality reduction on streams too large for memory.

Public names are loaded when first used, so `import stream_dr` is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what the service uses, with its types
    from stream_dr import errors as errors
    from stream_dr.block import Block as Block
    from stream_dr.engine.directory import Directory as Directory
    from stream_dr.engine.draft import Receipt as Receipt
    from stream_dr.engine.draft import one_row as one_row
    from stream_dr.engine.draft import parse_rows as parse_rows
    from stream_dr.engine.draft import rows_draft as rows_draft
    from stream_dr.engine.jobs import Job as Job
    from stream_dr.engine.model import Model as Model
    from stream_dr.engine.model import PublishPolicy as PublishPolicy
    from stream_dr.engine.model import RefinePolicy as RefinePolicy
    from stream_dr.engine.predict import predict as predict
    from stream_dr.engine.query import export_projection as export_projection
    from stream_dr.engine.query import transform as transform
    from stream_dr.engine.running import Running as Running
    from stream_dr.engine.running import RunSettings as RunSettings
    from stream_dr.engine.schema import Limits as Limits
    from stream_dr.engine.warm_up import warm_up as warm_up
    from stream_dr.estimators import ESTIMATORS as ESTIMATORS
    from stream_dr.estimators.signatures import parameter_types as parameter_types

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
    "Limits": "engine.schema",
    "PublishPolicy": "engine.model",
    "RefinePolicy": "engine.model",
    "rows_draft": "engine.draft",
    "Receipt": "engine.draft",
    "Model": "engine.model",
    "Job": "engine.jobs",
    "transform": "engine.query",
    "predict": "engine.predict",
    "Client": "client",
    "export_projection": "engine.query",
    "parse_rows": "engine.draft",
    "one_row": "engine.draft",
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
