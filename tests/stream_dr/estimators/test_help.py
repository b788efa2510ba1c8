"""help() of every estimator shows every parameter with its default and every fitted attribute with its type and shape."""

import inspect
import re

import numpy as np
import pytest
from sklearn.utils import get_tags

from stream_dr import ESTIMATORS, KNearest
from stream_dr.estimators.fitting.parameters import collect_documented_entries

rng = np.random.default_rng(3)
X = rng.normal(size=(60, 5))
Y = np.array(list("abc"))[rng.integers(0, 3, 60)]
CLASSES = {**ESTIMATORS, "k_nearest": KNearest}
DEFAULT = re.compile(r"^\w+ : .*, default (.+)$")


def shown(kind, section):
    """name → first line of its entry, as help() has it."""
    text = inspect.getdoc(kind).partition(f"{section}\n{'-' * len(section)}\n")[2].partition("\n\n")[0]
    return {line.split(" : ")[0]: line for line in text.splitlines() if re.match(r"\w+ : ", line)}


@pytest.mark.parametrize("key", CLASSES)
def test_every_parameter_is_described_with_its_default(key):
    parameters = inspect.signature(CLASSES[key]).parameters
    told = shown(CLASSES[key], "Parameters")
    assert set(told) == set(parameters)
    for name, parameter in parameters.items():
        default = DEFAULT.match(told[name])[1]
        assert default in (repr(parameter.default), repr(parameter.default).replace("'", '"')), told[name]


@pytest.mark.parametrize("key", CLASSES)
def test_every_fitted_attribute_is_described_and_has_the_shape_it_says(key):
    import pandas

    rows = pandas.DataFrame(X, columns=[f"c{i}" for i in range(5)])
    folds = 5 if "folds" in inspect.signature(CLASSES[key]).parameters else 0
    model = CLASSES[key](**({"folds": folds} if folds else {})).fit(rows, Y)
    told = shown(CLASSES[key], "Attributes")
    there = {name for name in dir(model) if name.endswith("_") and not name.startswith("_") and hasattr(model, name)}
    # A map of tables gives its columns names, and gamma="cv" has results.
    conditional = {"mapped_names_", "cv_results_"}
    assert {name for name in told if not told[name].endswith(": none")} - conditional == there
    sizes = {
        "classes": 3 if get_tags(model).target_tags.required else 0,
        "features": 5,
        "targets": 3,
        "sampled rows": 60,
    }
    sizes |= {"waiting": 0, "folds": folds, "components − 1": max(getattr(model, "rank_", 0) - 1, 0)}
    for name in there:
        shape = re.search(r"ndarray \(([^()]*)\)", told[name])
        if shape is None:
            assert "ndarray" not in told[name] or "min(" in told[name]
            continue
        axes = [axis.strip() for axis in shape[1].split(",") if axis.strip()]
        value = getattr(model, name)
        assert value.ndim == len(axes), name
        for axis, size in zip(axes, value.shape, strict=True):
            assert size == sizes.get(axis, getattr(model, "rank_", size)), (name, axis)
        kind = told[name].rpartition("), ")[2]
        assert kind == told[name] or value.dtype == np.dtype(kind), name


def test_every_entry_says_something():
    for kind in CLASSES.values():
        for entries in collect_documented_entries(kind).values():
            for entry in entries.values():
                assert len(entry.splitlines()) > 1, entry


def test_a_parameter_that_is_not_there_is_refused_in_the_estimators_name():
    for kind in CLASSES.values():
        with pytest.raises(TypeError, match=rf"^{kind.__name__}\.__init__\(\) got an unexpected keyword argument"):
            kind(n_component=3)
