"""The papers' tables and figures run from end to end at tiny sizes; what is drawn and claimed is for the long forms."""

import importlib

import numpy as np
import pytest

from benchmarks.papers import (
    lecture_graphs,
    lecture_kernels,
    lecture_table,
    sets,
    skm_figure_4,
    srp_claim_1,
    srp_figure_1,
    srp_figure_2,
    srp_table_1,
    subspace_equations,
)
from benchmarks.papers.claims import Options

pytestmark = [
    pytest.mark.filterwarnings("ignore::stream_dr.errors.FewerComponents"),
    pytest.mark.filterwarnings("ignore::stream_dr.errors.NarrowKernel"),
]

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
    "news20": (18_846, 26_214, 20), "image segments": (2310, 18, 7), "phishing": (1250, 9, 2),
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


@pytest.mark.test_all
def test_srp_figure_1(monkeypatch):
    monkeypatch.delenv("STREAM_DR_DATA", raising=False)
    claims = {claim.what: claim for claim in srp_figure_1.run(Options(quick=True))}
    assert claims["sonar"].verdict == "missing"
    assert claims["xor: KSPCA and KSRP beside linear SPCA and SRP"].verdict == "agrees"
    assert any("nystroem" in what and claim.verdict == "agrees" for what, claim in claims.items())


@pytest.mark.test_all
def test_srp_figure_2():
    claims = {claim.what: claim for claim in srp_figure_2.run(Options(quick=True))}
    assert claims["xor: accuracy from 1 column to 10"].verdict == "differs"  # one direction for two classes
    assert claims["xor: SRP beside SPCA, KSRP beside KSPCA, in one column"].verdict == "agrees"


@pytest.mark.test_all
def test_srp_claim_1():
    assert {claim.verdict for claim in srp_claim_1.run(Options(quick=True))} <= {"agrees", "not told", "missing"}


@pytest.mark.test_all
def test_srp_table_1():
    assert len(list(srp_table_1.run(Options(quick=True)))) == len(srp_table_1.STAGES) + 2 * (
        len(srp_table_1.PAPER_SIZES) + 1
    )


def test_the_chapters_equations_agree():
    verdicts = {claim.what: claim.verdict for claim in subspace_equations.run(Options(quick=True))}
    differing = [what for what, verdict in verdicts.items() if verdict == "differs"]
    assert differing == ["NIPALS' second component beside equation 2.24's second eigenvector"]


@pytest.mark.parametrize(
    ("module", "claims", "shown"),
    [
        (lecture_table, 4, "13.8"),
        pytest.param(lecture_kernels, 5, "e-1", marks=pytest.mark.test_all),
        pytest.param(lecture_graphs, 10, "e-1", marks=pytest.mark.test_all),
    ],
    ids=["table", "kernels", "graphs"],
)
def test_the_lecture(module, claims, shown):
    found = list(module.run(Options(quick=True)))
    assert len(found) >= claims
    assert any(shown in claim.ours + claim.paper for claim in found)
    assert module is lecture_table or not [claim for claim in found if claim.verdict == "differs"]  # of one split


@pytest.mark.test_all
@pytest.mark.parametrize(
    "name", ["figure_1", "figure_3", "figure_4", "figure_5", "figure_6", "table_1", "theorem_1", "news20"]
)
def test_skm(name):
    module = importlib.import_module(f"benchmarks.papers.skm_{name}")
    claims = list(module.run(Options(quick=True)))
    assert {"agrees", "differs"} & {claim.verdict for claim in claims}
    assert len({claim.what for claim in claims}) == len(claims)


@pytest.mark.test_all
def test_skm_figure_4_at_a_3_separates_and_pca_mixes():
    verdicts = {claim.what: claim.verdict for claim in skm_figure_4.run(Options(quick=True))}
    kept = ("(b) PCA, 1", "(c) SKM a = 3, 1", "(d) LDA, 1", "(e) PCA, 2", "(f) SKM a = 3, 2")
    assert "differs" not in [verdicts[name] for name in kept]
    assert verdicts["(f) SKM a = 1, 2"] == "differs"  # one direction for two classes


def test_halves_have_no_row_in_common():
    X = np.random.default_rng(0).integers(0, 3, size=(100, 3)).astype(float)
    a, b = sets.halves(X, 0)
    assert len(a) + len(b) == 100
    assert min(len(a), len(b)) > 20
    assert not {tuple(row) for row in X[a]} & {tuple(row) for row in X[b]}


def test_neighbours_that_tie_count_by_their_shares():
    X, y = np.array([[0.0], [0.0], [0.0], [5.0]]), np.array([0, 0, 1, 1])
    assert sets.error(X, y, np.array([[1.0]]), np.array([0])) == pytest.approx(1 / 3)
    assert sets.error(X, y, np.array([[1.0], [4.0]]), np.array([1, 1])) == pytest.approx((2 / 3 + 0) / 2)


def test_text_that_is_not_here_is_none(monkeypatch):
    monkeypatch.delenv("STREAM_DR_DATA", raising=False)
    assert sets.load_text(sets.NEWS20) is None
    assert sets.load_text(sets.RCV1_FRAGMENT) is None


@pytest.mark.parametrize(
    ("name", "shape", "classes"), [(sets.NEWS20, (16_075, 26_214), 4), (sets.RCV1_FRAGMENT, (1_500, 47_236), 2)]
)
def test_text_has_the_shape_and_labels_it_should(name, shape, classes):
    loaded = sets.load_text(name)
    if loaded is None:
        pytest.skip(f"{name} is read from STREAM_DR_DATA, which is not set or does not have it")
    assert loaded[0].shape == shape
    assert len(np.unique(loaded[1])) == classes
