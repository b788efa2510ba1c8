"""Saved estimators that are nearly right: arrays, and what stands in JSON, changed, and the checksum made right again.

`bases` are files of every estimator, without a feature map and behind each; `mutant(whole, seed, number)` is one of them,
changed up to three times: shapes, types, values that are not finite, negative or huge, CSR arrays out of order, arrays
exchanged, missing or added, numbers of the description, labels, parameters; or the sizes that its header declares.
"""

import copy
import json
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import stream_dr
from stream_dr import ESTIMATORS, KNearest
from stream_dr.errors import StreamDRError
from stream_dr.models.saved import saved_file_bytes
from stream_dr.models.snapshot_file import read_bytes, safetensors_bytes

Draw = np.random.Generator
Arrays = dict[str, np.ndarray]

NUMBERS = (
    *range(-2, 12),
    63,
    64,
    65,
    2**15,
    2**31 - 1,
    2**31,
    2**40,
    2**53,
    2**62,
    2**63 - 1,
    -(2**31),
    -(2**63),
    2**80,
)
REALS = (0.0, -0.0, -1.0, 1e-320, 1e-30, 0.5, 1.5, 1e30, 1e200, 1e308, float("nan"), float("inf"), -float("inf"))
OTHERS: tuple[Any, ...] = (None, True, False, "", "a", "exact", "class", [], {}, [[]])
OTHERS = (*OTHERS, {"tuple": [1, "a"]}, {"tuple": [[0, 9]]}, {"map": ["table"]})
TYPES = ("f4", "f8", "i1", "i4", "i8", "u8", "?")

ROWS = 24


class Base(NamedTuple):
    """A saved estimator: its content, and rows and targets that it may learn on."""

    name: str
    content: bytes
    X: Any
    y: Any


MAPS: dict[str, Any] = {
    "plain": None,
    "random_fourier": stream_dr.random_fourier(8),
    "polynomial": stream_dr.polynomial(n_features=16),
    "nystroem": stream_dr.nystroem(5),
    "hashing": stream_dr.hashing(8),
    "table": stream_dr.table(max_categories=3, n_hashed=2, n_words=4, as_={"t": "text"}),
    "text": stream_dr.text(n_features=16, column="t"),
}
"""The feature maps that every estimator is tried behind."""


def bases() -> list[Base]:
    """Files of every estimator by every feature map, of dense and of sparse rows, and of KNearest."""
    draw = np.random.default_rng(0)
    out: list[Base] = []
    for key in ESTIMATORS:
        for name, spec in MAPS.items():
            for form in (
                ("dense", "sparse") if spec is None else ("table",) if name in ("table", "text") else ("dense",)
            ):
                params: dict[str, Any] = {} if spec is None else {"feature_map": spec}
                params |= {"reservoir": 16, "n_neighbors": 3} if hasattr(ESTIMATORS[key], "reservoir") else {}
                base = _base(f"{key} {name} {form}", ESTIMATORS[key](**params), _rows(form, draw), draw)
                out += [base] if base is not None else []
    for form in ("dense", "sparse"):
        base = _base(f"k_nearest {form}", KNearest(n_neighbors=2, reservoir=16), _rows(form, draw), draw)
        out += [base] if base is not None else []
    return out


def _rows(form: str, draw: Draw) -> Any:
    if form == "table":
        import pandas as pd

        numbers = np.where(draw.random(ROWS) < 0.2, np.nan, draw.normal(size=ROWS))
        words = draw.choice(["red", "green", "blue", "grey"], ROWS)
        days = pd.date_range("2020-01-01", periods=ROWS, freq="36h")
        texts = [" ".join(draw.choice(["one", "two", "three", "four"], 3)) for _ in range(ROWS)]
        return pd.DataFrame({"a": numbers, "c": words, "d": days, "t": texts})
    X = draw.normal(size=(ROWS, 4))
    return X if form == "dense" else sp.csr_matrix(np.where(X > 0.0, X, 0.0))


def _base(name: str, estimator: Any, X: Any, draw: Draw) -> Base | None:
    """The file of an estimator that has learned, removed and shown something; None where it takes no such rows."""
    kinds = getattr(estimator, "target_kinds", ("class",))
    labels = draw.choice(["a", "b", "c"], ROWS)
    y: Any = labels if "class" in kinds else draw.normal(size=(ROWS, 2)) if kinds else None
    if "continuous" in kinds and len(name) % 3 == 0:
        y = draw.normal(size=(ROWS, 2))
    elif "multilabel" in kinds and len(name) % 2:
        y = [sorted({label, str(draw.choice(["a", "d"]))}) for label in labels]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator.fit(X, y) if y is not None else estimator.fit(X)
            with suppress(StreamDRError, AttributeError):  # no recurrence can, nor a table whose means filled something
                estimator.unlearn(X[:4], None if y is None else y[:4])
            used(estimator, X, y)
        return Base(name, saved_file_bytes(estimator), X, y)
    except StreamDRError:
        return None


def used(estimator: Any, X: Any, y: Any) -> None:
    """What is done with an estimator that was loaded: it projects or predicts, learns, projects again, and is saved."""
    for _ in range(2):
        if isinstance(estimator, KNearest):
            estimator.predict(X)
            estimator.kneighbors(X)
        else:
            estimator.transform(X)
            if hasattr(estimator, "predict"):
                estimator.predict(X)
        estimator.partial_fit(X, y)
    saved_file_bytes(estimator)


def mutant(whole: list[Base], seed: int, number: int) -> tuple[Base, bytes]:
    """Mutant `number` of a seed, and the base it is of; the same in every run."""
    draw = np.random.default_rng((seed, number))
    base = whole[int(draw.integers(len(whole)))]
    arrays, facts = read_bytes(base.content)
    arrays, facts = dict(arrays), copy.deepcopy(facts)
    for _ in range(int(draw.integers(1, 4))):
        if draw.random() < 0.6 and arrays:
            arrays = _changed_arrays(draw, arrays, facts)
        else:
            _change_fact(draw, facts)
    content = safetensors_bytes(arrays, facts)
    return base, _declared(draw, content) if draw.random() < 0.05 else content


def _declared(draw: Draw, content: bytes) -> bytes:
    """The header declares another type, shape or place of an array than the bytes are of."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    array = header[str(draw.choice(sorted(set(header) - {"__metadata__"}) or ["__metadata__"]))]
    match int(draw.integers(3)):
        case 0:
            array["dtype"] = str(draw.choice(["F64", "F32", "BF16", "F8_E4M3", "I64", "U8", "C64"]))
        case 1:
            array["shape"] = [NUMBERS[int(draw.integers(len(NUMBERS)))] for _ in range(int(draw.integers(4)))]
        case _:
            array["data_offsets"] = [0, NUMBERS[int(draw.integers(len(NUMBERS)))]]
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def _changed_arrays(draw: Draw, arrays: Arrays, facts: Any) -> Arrays:
    name = str(draw.choice(sorted(arrays)))
    kind = int(draw.integers(8))
    if kind == 0:
        return {other: array for other, array in arrays.items() if other != name}
    if kind == 1:
        return arrays | {f"{name}x": arrays[name]}
    if kind == 2:
        other = str(draw.choice(sorted(arrays)))
        arrays = arrays | {name: arrays[other], other: arrays[name]}
        _reshape(facts, arrays, name, draw)
        _reshape(facts, arrays, other, draw)
        return arrays
    changed = _CHANGES[kind % len(_CHANGES)](draw, arrays[name])
    arrays = arrays | {name: changed}
    _reshape(facts, arrays, name, draw)
    return arrays


def _values(draw: Draw, array: np.ndarray) -> np.ndarray:
    """Some entries are other numbers."""
    if not array.size:
        return np.zeros(int(draw.integers(3)), array.dtype)
    array = array.copy()
    flat = array.reshape(-1)
    for _ in range(int(draw.integers(1, 3))):
        at = int(draw.integers(flat.size))
        if array.dtype.kind == "f":
            flat[at] = REALS[int(draw.integers(len(REALS)))]
        else:
            info = np.iinfo(np.uint8 if array.dtype.kind == "b" else array.dtype)
            value = NUMBERS[int(draw.integers(len(NUMBERS)))]
            flat[at] = min(max(value, info.min), info.max)
    return array


def _shape(draw: Draw, array: np.ndarray) -> np.ndarray:
    """It is shorter, longer, transposed, flat, or has an axis more."""
    match int(draw.integers(6)):
        case 0 if array.ndim and array.shape[0]:
            return array[:-1]
        case 1 if array.ndim and array.size:
            return np.concatenate([array, array])
        case 2:
            return array.T
        case 3:
            return array.reshape(-1)
        case 4:
            return array[..., :0] if array.ndim else array
        case _:
            return array[None]


def _type(draw: Draw, array: np.ndarray) -> np.ndarray:
    """It is of another type."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return array.astype(np.dtype(str(draw.choice(TYPES))))


def _order(draw: Draw, array: np.ndarray) -> np.ndarray:
    """It is in another order."""
    return np.ascontiguousarray(array[::-1]) if draw.random() < 0.5 else draw.permutation(array)


_CHANGES: tuple[Callable[[Draw, np.ndarray], np.ndarray], ...] = (_values, _shape, _type, _order, _values)


def _reshape(facts: Any, arrays: Arrays, name: str, draw: Draw) -> None:
    """The description mostly says the shape that the array has now."""
    for place, _, value in _places(facts):
        named = isinstance(value, dict) and "array" in value and name.endswith(f".{value['array']}")
        if named and place and draw.random() < 0.9:
            value["shape"] = list(arrays[name].shape)


def _change_fact(draw: Draw, facts: Any) -> None:
    """One number, word or part of the facts is another, or gone."""
    places = list(_places(facts))
    path, holder, _ = places[int(draw.integers(len(places)))]
    key = path[-1]
    match int(draw.integers(5)):
        case 0 if isinstance(holder, dict):
            del holder[key]
        case 1:
            holder[key] = copy.deepcopy(OTHERS[int(draw.integers(len(OTHERS)))])
        case 2:
            holder[key] = REALS[int(draw.integers(len(REALS)))]
        case 3:
            _, _, other = places[int(draw.integers(len(places)))]
            holder[key] = copy.deepcopy(other)
        case _:
            holder[key] = NUMBERS[int(draw.integers(len(NUMBERS)))]


def _places(facts: Any, path: tuple[Any, ...] = ()) -> Any:
    """Every place in the facts: its path, what holds it, and what is there."""
    items = facts.items() if isinstance(facts, dict) else enumerate(facts) if isinstance(facts, list) else ()
    for key, value in list(items):
        yield (*path, key), facts, value
        yield from _places(value, (*path, key))
