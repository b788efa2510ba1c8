"""Real data for tests: rows (n, d) float64 and one label or list of labels a row.

What scikit-learn and river ship needs nothing; the others are read where STREAM_DR_DATA points at them.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets as shipped

SHIPPED = ("wine", "digits", "iris", "breast_cancer", "river_yeast")
FOLDER = ("yeast", "scene", "usps", "ionosphere", "optdigits")


def available() -> list[str]:
    """Names that `load` can read here."""
    folder = os.environ.get("STREAM_DR_DATA")
    return [*SHIPPED, *(FOLDER if folder and Path(folder).is_dir() else ())]


def load(name: str) -> tuple[np.ndarray, list[Any]]:
    """Rows and labels of the data set."""
    if name == "river_yeast":
        return _river_yeast()
    if name in SHIPPED:
        X, y = getattr(shipped, f"load_{name}")(return_X_y=True)
        return np.asarray(X, dtype=float), np.asarray(y).tolist()
    folder = Path(os.environ["STREAM_DR_DATA"])
    if name in ("yeast", "scene"):
        return _arff(folder / name / f"{name}-train.arff", 14 if name == "yeast" else 6)
    if name == "usps":
        return _usps(folder / "usps" / "usps.h5")
    file = {"ionosphere": "uci.ionosphere.data", "optdigits": "optdigits.tra"}[name]
    table = np.loadtxt(folder / "uci" / file, delimiter=",")
    return table[:, :-1], table[:, -1].astype(int).tolist()


def _river_yeast() -> tuple[np.ndarray, list[Any]]:
    from river.datasets import Yeast

    X, labels = [], []
    for x, y in Yeast():
        X.append(list(x.values()))
        labels.append([name for name, there in y.items() if there])
    return np.array(X), labels


def _arff(path: Path, k: int) -> tuple[np.ndarray, list[Any]]:
    """A dense MULAN file whose last k columns are labels."""
    lines = path.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.lower().startswith("@data"))
    names = [line.split()[1] for line in lines[:at] if line.lower().startswith("@attribute")][-k:]
    table = np.array([[float(v) for v in line.split(",")] for line in lines[at + 1 :] if line.strip()])
    return table[:, :-k], [[names[j] for j in np.flatnonzero(row)] for row in table[:, -k:]]


def _usps(path: Path) -> tuple[np.ndarray, list[Any]]:
    import pytest

    h5py = pytest.importorskip("h5py", reason="usps.h5 needs h5py")
    with h5py.File(path) as file:
        return np.asarray(file["train/data"], dtype=float), np.asarray(file["train/target"]).tolist()
