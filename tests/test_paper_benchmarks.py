"""The papers' tables and figures run from end to end at tiny sizes; what is drawn and claimed is for the long forms."""

import numpy as np
import pytest

from benchmarks.papers import sets, skm_figure_4, skm_figure_5, srp_figure_1, srp_figure_2, wmv_table

pytestmark = pytest.mark.filterwarnings("ignore::stream_dr.errors.FewerComponents")

FOLDER_SETS = [
    "ionosphere",
    "sonar",
    "bupa",
    "letter",
    "monks-1",
    "monks-2",
    "monks-3",
    "isolet part",
    "MNIST test set",
    "optdigits",
    "USPS",
    "yeast",
    "scene",
    "news20",
]
SHAPES = {
    "iris": (150, 4, 3), "wine": (178, 13, 3), "digits": (1797, 64, 10), "breast cancer": (569, 30, 2), "xor": (500, 10, 2),
    "spirals": (500, 10, 2), "ionosphere": (351, 34, 2), "sonar": (208, 60, 2), "bupa": (345, 6, 2),
    "letter": (20_000, 16, 26), "monks-1": (556, 6, 2), "monks-2": (601, 6, 2), "monks-3": (554, 6, 2),
    "isolet part": (1560, 617, 26), "MNIST test set": (10_000, 784, 10),
    "optdigits": (4796, 64, 10), "USPS": (9298, 256, 10), "yeast": (2417, 103, 14), "scene": (2407, 294, 6),
    "news20": (18_846, 26_214, 20),
}  # fmt: skip


SLOWLY_READ = ("yeast", "scene")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.test_all] * (name in SLOWLY_READ)) for name in SHAPES]
)
def test_sets_have_the_shape_and_labels_they_should(name):
    if not sets.available(name):
        pytest.skip(f"{name} is read from STREAM_DR_DATA, which is not set or does not have it")
    X, y = sets.load(name)
    rows, features, classes = SHAPES[name]
    assert X.shape == (rows, features)
    assert y.shape == ((rows,) if y.ndim == 1 else (rows, classes))
    assert len(np.unique(y)) == (classes if y.ndim == 1 else 2)
    assert np.isfinite(X.sum())


@pytest.mark.parametrize("name", FOLDER_SETS)
def test_a_set_that_is_not_here_is_an_error_that_says_what_to_do(name, monkeypatch):
    monkeypatch.delenv("STREAM_DR_DATA", raising=False)
    assert not sets.available(name)
    with pytest.raises(FileNotFoundError, match="STREAM_DR_DATA"):
        sets.load(name)


def test_srp_figure_1(capsys, monkeypatch):
    monkeypatch.delenv("STREAM_DR_DATA", raising=False)
    results = srp_figure_1.main(["--runs", "1", "--folds", "1", "--features", "100"])
    assert set(results) == {"xor", "spirals"}
    assert all(0.3 < accuracy <= 1 for row in results.values() for accuracy in row.values())
    assert "missing: ['sonar']" in capsys.readouterr().out


def test_srp_figure_2(capsys):
    result = srp_figure_2.main(["--runs", "1", "--folds", "1", "--features", "100", "--sets", "xor"])["xor"]
    assert set(result) == {"PCA", "kernel PCA", "SPCA", "KSPCA", "SRP", "KSRP"}
    assert result["PCA"][-1][0] > 0.8  # all ten columns: nothing is lost
    assert len({accuracy for accuracy, _ in result["SPCA"]}) == 1  # one direction for two classes


def test_wmv_table(capsys):
    results = wmv_table.main(["--runs", "2", "--folds", "1", "--sets", "iris", "wine"])
    assert all(value < 12 for row in results.values() for value in row.values())
    assert "13.8" in capsys.readouterr().out


def test_skm_figure_4(capsys):
    errors = skm_figure_4.main(["--runs", "3"])
    assert errors["LDA, 1"] < 0.02 < errors["PCA, 1"]
    assert max(errors["SKM a=3, 1"], errors["SKM a=3, 2"], errors["ISKM a=3, 2"]) < 0.02


def test_skm_figure_5(capsys):
    results = skm_figure_5.main(["--runs", "2", "--sets", "iris", "wine"])
    assert len(results["iris"]["LDA"]) == 2
    assert len(results["iris"]["PCA"]) == 4
    assert min(results["iris"]["SKM"]) < 0.12
