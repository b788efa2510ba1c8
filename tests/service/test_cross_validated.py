"""gamma="cv" of a served model: what it chose is told, and why it is not published while too few rows are in folds."""

from pathlib import Path

import numpy as np
import pytest

import stream_dr
from stream_dr.estimators.fitting.mapping import inner_states_of_folds
from tests.support.serving import arrow, in_thread, post

RANDOM = np.random.default_rng(0)
Y = RANDOM.integers(0, 3, 120)
X = RANDOM.normal(size=(120, 20)) + 0.8 * RANDOM.normal(size=(3, 20))[Y]
APPLIED = "/partial_fit?wait=applied"


def test_a_model_is_published_once_three_folds_have_rows(tmp_path: Path) -> None:
    with in_thread(tmp_path / "D") as served:
        body = {"estimator": "lda", "params": {"gamma": "cv"}}
        assert served.http.put("/models/x", json=body).json()["chosen"] is None

        few = post(served.http, arrow(np.tile(X[:1], (5, 1)), Y[[0] * 5]), path=APPLIED)
        assert few.status_code == 202
        state = served.http.get("/models/x").json()
        why = "gamma='cv' needs rows in at least 3 folds; 1 of 5 folds have rows"
        assert (state["version"], state["chosen"]) == (0, None)
        refused = post(served.http, arrow(X[:1]), path="/transform?model=x")
        for text in (state["publish_failure"]["message"], few.json()["reason"], refused.json()["detail"]):
            assert why in text
        assert refused.status_code == 409

        assert post(served.http, arrow(X, Y), path=APPLIED).status_code == 200
        state = served.http.get("/models/x").json()
        alone = stream_dr.LDA(gamma="cv").fit(np.vstack([np.tile(X[:1], (5, 1)), X]), np.append(Y[[0] * 5], Y))
        results = alone.cv_results_
        least = results["mean"].argmin()
        expected = {"gamma": alone.gamma_, "error": results["mean"][least], "std_error": results["std_error"][least]}
        assert state["chosen"] == pytest.approx(expected, rel=1e-6)
        assert (state["state"], state["publish_failure"]) == ("live", None)


def test_the_page_has_the_curve_and_sentences_of_a_model_that_chose(tmp_path: Path) -> None:
    with in_thread(tmp_path / "D") as served, stream_dr.Client(served.url) as client:
        client.put_model("pls", "plsda", n_components="cv")
        client.put_model("plain", "lda")
        post(served.http, arrow(X, Y), path=APPLIED).raise_for_status()
        chosen = client.model("pls")["chosen"]
        assert chosen is not None
        assert set(chosen) == {"n_components", "error", "std_error"}

        told = served.http.get("/figures", params={"model": "pls"}).json()
        assert f"n_components = {chosen['n_components']} was chosen among" in told["sentences"][0]
        assert "on 5 folds" in told["sentences"][0]
        assert "Component 1 is known to" in told["sentences"][1]
        assert told["figures"]["regularisation"]["figure"]["data"][1]["name"].startswith("chosen: n_components = ")
        plain = served.http.get("/figures", params={"model": "plain"}).json()
        assert plain["sentences"] == []
        assert "regularisation" not in plain["figures"]


def test_rows_of_one_id_are_in_one_fold(tmp_path: Path) -> None:
    with in_thread(tmp_path / "D") as served:
        params = {"gamma": "cv", "folds_by": "id"}
        served.http.put("/models/x", json={"estimator": "lda", "params": params}).raise_for_status()
        ids = [f"person {i // 4}" for i in range(len(X))]
        assert post(served.http, arrow(X, Y, id=ids), path=APPLIED).status_code == 200
        alone = stream_dr.LDA(gamma="cv", folds_by="id").fit(X, Y, groups=ids)
        assert served.http.get("/models/x").json()["chosen"]["gamma"] == pytest.approx(alone.gamma_, rel=1e-9)
        state = served.directory.model("x").accumulator.freeze()
        assert [part.rows for part in inner_states_of_folds(state)] == alone.fold_rows_.tolist()

        # Rows without ids go by their values.
        assert post(served.http, arrow(X, Y), path=APPLIED).status_code == 200
        alone.partial_fit(X, Y)
        state = served.directory.model("x").accumulator.freeze()
        assert [part.rows for part in inner_states_of_folds(state)] == alone.fold_rows_.tolist()
