"""Releases: a projection that stays, goes back, answers elsewhere, and goes when its rows go."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import scipy.sparse as sp

import stream_dr
from stream_dr import errors
from stream_dr.models.release import read_release
from stream_dr.models.snapshot_file import read_file
from tests.support.serving import Process, Served, in_thread
from tests.support.waiting import wait_until

RANDOM = np.random.default_rng(8)
Y = ["xyz"[i % 3] for i in range(90)]
X = RANDOM.normal(size=(90, 5)) + 3 * np.eye(5)[[ord(c) % 5 for c in Y]]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with in_thread(tmp_path / "D") as served:
        yield served


@pytest.fixture
def client(served: Served) -> Iterator[stream_dr.Client]:
    with stream_dr.Client(served.url) as client:
        client.put_model("lda", "lda")
        client.partial_fit(X[:60], Y[:60], key="first", wait=True)
        yield client


def learn_more(client: stream_dr.Client, shift: float = 2.0) -> None:
    client.partial_fit(X[60:] + shift, Y[60:], wait=True)


def status_of(http: httpx.Client, method: str, path: str, **request: Any) -> tuple[int, str]:
    answer = http.request(method, path, **request)
    return answer.status_code, answer.json().get("code", "") if answer.content else ""


def test_a_release_stays_while_its_model_goes_on(client: stream_dr.Client, served: Served) -> None:
    before = client.transform(X)
    first = client.create_release("lda", "2026-12-01")
    assert (first["version"], first["rows"], first["holds_rows"], first["served"]) == (before.version, 60, False, False)
    learn_more(client)

    assert not np.array_equal(client.transform(X), before)
    again = client.transform(X, release="2026-12-01")
    assert np.array_equal(again, before)
    assert (again.release, again.version, client.transform(X).release) == ("2026-12-01", before.version, None)
    one = served.http.get("/transform", params={"x": ",".join(map(str, X[0])), "release": "2026-12-01"}).json()
    assert (one["z"], one["release"]) == ([before[0].tolist()], "2026-12-01")

    assert client.predict(X, release="2026-12-01").release == "2026-12-01"
    probabilities, _ = client.predict_proba(X, release="2026-12-01")
    assert not np.array_equal(probabilities, client.predict_proba(X)[0])
    arrays = client.projection("lda", release="2026-12-01")
    assert np.allclose((X - arrays["mean"]) @ arrays["components"].T, before)
    assert np.allclose(before @ arrays["map"] + arrays["offset"], client.transform(X), atol=0.5)

    http = served.http
    path = "/models/lda/releases"
    assert status_of(http, "POST", path, json={"name": "2026-12-01", "version": first["version"]}) == (200, "")
    assert status_of(http, "POST", path, json={"name": "2026-12-01"}) == (409, "release_exists")
    assert status_of(http, "POST", path, json={"name": "2027", "version": 99}) == (404, "unknown_version")
    assert status_of(http, "POST", path, json={"name": "a/b"}) == (422, "invalid_parameter")
    assert status_of(http, "POST", path, json={"name": "a", "from": 3}) == (422, "invalid_request")
    for method, asked in (("GET", "/transform?x=1,2,3,4,5"), ("GET", "/models/lda/projection?")):
        assert status_of(http, method, f"{asked}&release=2026-12-02") == (404, "unknown_release")
    assert status_of(http, "DELETE", f"{path}/2026-12-02") == (404, "unknown_release")
    assert [release["name"] for release in client.releases("lda")] == ["2026-12-01"]
    assert status_of(http, "DELETE", f"{path}/2026-12-01") == (204, "")
    assert client.releases("lda") == []


def test_a_model_without_projection_has_no_release(client: stream_dr.Client, served: Served) -> None:
    client.put_model("later", "pca", start="now", n_components=1)
    with pytest.raises(errors.NotFitted):
        client.create_release("later", "a")
    with pytest.raises(errors.UnknownModel):
        client.releases("nobody")
    assert status_of(served.http, "POST", "/models/later/releases", json={"name": "a"}) == (409, "model_empty")


def test_a_model_takes_its_releases_with_it(client: stream_dr.Client, served: Served, tmp_path: Path) -> None:
    client.create_release("lda", "a")
    client.delete_model("lda")
    assert list((tmp_path / "D" / "releases").iterdir()) == []
    client.put_model("lda", "lda")
    assert client.releases("lda") == []


def test_there_are_at_most_a_hundred_releases_a_model(client: stream_dr.Client) -> None:
    for number in range(100):
        client.create_release("lda", f"r{number}")
    with pytest.raises(errors.LimitExceeded, match="Delete some"):
        client.create_release("lda", "one-more")
    client.delete_release("lda", "r7")
    client.create_release("lda", "one-more")


def test_while_a_release_is_served_nothing_else_is_published(client: stream_dr.Client, served: Served) -> None:
    before = client.transform(X)
    client.create_release("lda", "good")
    learn_more(client)
    with pytest.raises(errors.UnknownRelease):
        client.publish("lda", release="bad")
    policy = client.model("lda")["publish"]

    back = client.publish("lda", release="good")
    assert (back["release"], back["stale_rows"], back["version"]) == ("good", 30, 3)
    assert client.publish("lda", release="good")["version"] == 3
    learn_more(client, shift=4.0)
    assert client.put_model("lda", "lda")["publish"] == policy
    status = client.model("lda")
    assert (status["release"], status["version"], status["stale_rows"], status["rows"]) == ("good", 3, 60, 120)
    z = client.transform(X)
    assert np.array_equal(z, before)
    assert (z.release, z.version) == ("good", 3)

    assert status_of(served.http, "POST", "/models/lda/refine") == (409, "cannot_refine")
    assert status_of(served.http, "DELETE", "/models/lda/releases/good") == (409, "release_served")
    assert status_of(served.http, "POST", "/models/lda/publish", json={"relase": "good"}) == (422, "invalid_request")
    assert client.unlearn(positions=[1], wait=True)["lag"] == 0
    assert client.model("lda")["release"] == "good"

    ended = client.publish("lda")
    assert (ended["release"], ended["version"], ended["stale_rows"]) == (None, 4, 0)
    learn_more(client, shift=1.0)
    assert client.model("lda")["stale_rows"] == 0


def test_a_refined_release_goes_back_and_ends_as_any_other(served: Served) -> None:
    with stream_dr.Client(served.url) as client:
        client.put_model("wide", "lda", scatter="diagonal")
        client.partial_fit(X[:60], Y[:60], wait=True)
        client.refine("wide", wait=True)
        refined = client.transform(X)
        assert refined.solution == "refined"
        client.create_release("wide", "refined")
        client.refine("wide", wait=True)
        learn_more(client)
        client.publish("wide", release="refined")
        assert np.array_equal(client.transform(X), refined)
        learn_more(client, shift=3.0)
        assert client.unlearn(positions=[0], wait=True)["releases"] == [
            {"model": "wide", "name": "refined", "holds_rows": False}
        ]
        assert client.model("wide")["release"] == "refined"
        ended = client.publish("wide")
        assert (ended["release"], ended["solution"], ended["rows"]) == (None, "diagonal", 60)


@pytest.mark.parametrize("stop", ["kill", "stop"])
def test_going_back_survives_a_kill(tmp_path: Path, stop: str) -> None:
    service = Process(tmp_path / "D")
    with stream_dr.Client(service.url) as client:
        client.put_model("lda", "lda")
        client.partial_fit(X[:60], Y[:60], wait=True)
        before = client.transform(X)
        client.create_release("lda", "good")
        learn_more(client)
        client.publish("lda", release="good")
        client.partial_fit(X[:30] + 5, Y[:30])
    getattr(service, stop)()

    service = Process(tmp_path / "D")
    with stream_dr.Client(service.url) as client:
        assert wait_until(lambda: client.model("lda")["rows"] == 120, 30)
        assert np.array_equal(client.transform(X), before)
        status = client.model("lda")
        assert (status["release"], status["stale_rows"], status["state"]) == ("good", 60, "live")
        client.publish("lda")
    service.kill()

    service = Process(tmp_path / "D")
    with stream_dr.Client(service.url) as client:
        assert wait_until(lambda: client.model("lda")["version"] > 0, 30)
        assert client.model("lda")["release"] is None
        assert np.array_equal(client.transform(X, release="good"), before)
    service.stop()


def test_the_file_of_a_release_is_asked_for_by_etag(client: stream_dr.Client, served: Served) -> None:
    path = "/models/lda/projection?form=release"
    first = served.http.get(path)
    release = read_release(first.content)
    assert release.published.release is None
    assert served.http.get(path, headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    learn_more(client)
    assert served.http.get(path, headers={"If-None-Match": first.headers["etag"]}).status_code == 200
    assert status_of(served.http, "GET", f"{path}&version=1")[0] == 422


def test_a_follower_has_the_bits_of_the_service(client: stream_dr.Client, served: Served) -> None:
    client.create_release("lda", "good")
    newest = stream_dr.follow(served.url, "lda", seconds=0)
    fixed = stream_dr.follow(served.url, "lda", "good", seconds=0)
    seldom = stream_dr.follow(served.url, "lda", seconds=3600)
    before = client.transform(X)
    learn_more(client)
    for follower, wanted in ((newest, client.transform(X)), (fixed, before), (seldom, before)):
        z = follower.transform(X)
        assert np.array_equal(z, wanted)
        assert (z.version, z.release) == (wanted.version, wanted.release if follower is not fixed else "good")
    assert np.array_equal(newest.predict(X), client.predict(X))
    assert fixed.transform(X).release == "good"
    assert newest.age < seldom.age
    with pytest.raises(errors.WidthMismatch):
        newest.transform(X[:, :3])


def test_a_follower_takes_a_model_that_was_made_anew(client: stream_dr.Client, served: Served) -> None:
    learn_more(client)
    follower = stream_dr.follow(served.url, "lda", seconds=0)
    client.delete_model("lda")
    with pytest.raises(errors.UnknownModel):
        follower.transform(X)
    client.put_model("lda", "class_means", start="now")
    assert follower.transform(X[:2]).version == 2  # nothing is published yet
    assert isinstance(follower.error, errors.NotFitted)
    learn_more(client)
    assert (follower.transform(X[:2]).version, follower.error) == (1, None)
    for wrong in (-1, float("nan")):
        with pytest.raises(errors.InvalidParameter, match="seconds"):
            stream_dr.follow(served.url, "lda", seconds=wrong)


def test_a_follower_goes_on_while_the_service_is_away(tmp_path: Path) -> None:
    with in_thread(tmp_path / "D") as served, stream_dr.Client(served.url) as client:
        client.put_model("lda", "lda")
        client.partial_fit(X[:60], Y[:60], wait=True)
        follower = stream_dr.follow(served.url, "lda", seconds=0)
        wanted = client.transform(X)
    age = follower.age
    assert np.array_equal(follower.transform(X), wanted)
    assert isinstance(follower.error, errors.RemoteError)
    assert follower.age > age
    with pytest.raises(errors.RemoteError):
        stream_dr.follow(served.url, "lda")


def test_unlearning_names_the_releases_that_hold_the_rows(client: stream_dr.Client, served: Served) -> None:
    client.put_model("later", "lda", start="now")
    learn_more(client)
    client.put_model("kernel", "pca", n_components=2, feature_map={"map": "nystroem", "kernel": "rbf", "landmarks": 9})
    learn_more(client)
    for model in ("lda", "later", "kernel"):
        client.create_release(model, "a")

    named = [{"model": m, "name": "a", "holds_rows": m == "kernel"} for m in ("lda", "later", "kernel")]
    assert client.unlearn([1])["releases"] == named
    first = client.unlearn([0], key="k")
    assert first["releases"] == [named[0], named[2]]
    assert client.unlearn([0], key="k") == first | {"duplicate": True}
    with pytest.raises(errors.KeyConflict):
        client.unlearn([0], key="k", drop_releases=True)
    assert all(len(client.releases(model)) == 1 for model in ("lda", "later", "kernel"))


def test_dropping_releases_leaves_nothing_of_them(client: stream_dr.Client, served: Served, tmp_path: Path) -> None:
    client.create_release("lda", "a")
    learn_more(client)
    client.create_release("lda", "b")
    client.publish("lda", release="a")
    dropped = client.unlearn([1], key="k", drop_releases=True)
    assert [release["name"] for release in dropped["releases"]] == ["b"]
    assert client.model("lda")["release"] == "a"

    dropped = client.unlearn([0], key="l", drop_releases=True, wait=True)
    assert [release["name"] for release in dropped["releases"]] == ["a"]
    assert client.unlearn([0], key="l", drop_releases=True)["releases"] == dropped["releases"]
    assert client.releases("lda") == []
    assert list(tmp_path.glob("D/releases/*/*")) == []
    assert client.model("lda")["release"] is None
    learn_more(client)
    assert client.model("lda")["stale_rows"] == 0


def test_going_back_to_a_release_that_goes_changes_nothing(client: stream_dr.Client, served: Served) -> None:
    client.create_release("lda", "a")
    learn_more(client)
    model = served.directory.model("lda")
    releases = served.directory.releases
    released = releases.read(model, "a").published
    client.delete_release("lda", "a")
    published = model.published
    with pytest.raises(errors.UnknownRelease):
        model.publish_release(released, releases.hold(model, "a"))
    assert model.published is published


def test_dropping_takes_the_version_that_the_release_was_made_of(client: stream_dr.Client, tmp_path: Path) -> None:
    client.put_model("asked", "lda", publish={"rows": None, "seconds": None, "idle": False})
    client.publish("asked")
    client.create_release("asked", "a")
    learn_more(client)
    client.publish("asked", release="a")
    client.unlearn([0], drop_releases=True, wait=True)
    for path in tmp_path.glob("D/snapshots/asked.*/*.safetensors"):
        _, metadata = read_file(path)
        assert metadata.get("published", {}).get("version") not in (1, 2)
    assert wait_until(lambda: client.model("asked")["version"] > 2, 30)


def test_going_back_ends_if_only_a_refine_has_a_solution(served: Served) -> None:
    X_wide = sp.random(40, 5_000, density=0.01, format="csr", random_state=3)
    with stream_dr.Client(served.url) as client:
        client.put_model("wide", "pca", n_components=2)
        client.partial_fit(X_wide)
        assert wait_until(lambda: client.model("wide")["rows"] == 40, 30)
        client.refine("wide", wait=True)
        client.create_release("wide", "a")
        client.publish("wide", release="a")
        client.partial_fit(X_wide)
        assert wait_until(lambda: client.model("wide")["rows"] == 80, 30)
        with pytest.raises(errors.NeedsRefine):
            client.publish("wide")
        assert client.model("wide")["release"] is None
        assert client.refine("wide", wait=True)["state"] == "done"
        assert client.transform(X_wide, model="wide").solution == "refined"


def test_a_release_can_be_asked_for_again_when_its_version_is_gone(client: stream_dr.Client, served: Served) -> None:
    first = client.create_release("lda", "a", version=1)
    for _ in range(40):
        client.partial_fit(X[:3], Y[:3], wait=True)
    assert 1 not in client.model("lda")["versions"]
    assert client.create_release("lda", "a", version=1) == first


def test_a_release_of_unlearned_rows_is_refused(client: stream_dr.Client, served: Served) -> None:
    learn_more(client)
    client.put_model("asked", "lda", publish={"rows": None, "seconds": None, "idle": False})
    client.publish("asked")
    client.unlearn([0])
    assert status_of(served.http, "POST", "/models/asked/releases", json={"name": "a"}) == (503, "catching_up")
    client.publish("asked")
    assert client.create_release("asked", "a")["rows"] == 30


def test_a_steady_basis_over_http(client: stream_dr.Client, served: Served) -> None:
    assert client.put_model("steady", "lda", basis="steady", n_components=3)["basis"] == "steady"
    assert client.put_model("steady", "lda", n_components=3)["basis"] == "steady"
    http = served.http
    spec = {"estimator": "lda", "basis": "steady"}
    assert status_of(http, "PUT", "/models/lda", json=spec | {"params": {"n_components": 3}}) == (409, "model_exists")
    assert status_of(http, "PUT", "/models/auto", json=spec) == (422, "invalid_parameter")
    assert status_of(http, "PUT", "/models/auto", json=spec | {"basis": "stedy"}) == (422, "invalid_request")

    learn_more(client, shift=0.0)
    client.create_release("steady", "a")
    before = client.transform(X, model="steady")
    assert (before[:, 2] == 0).all()
    client.partial_fit(X + RANDOM.normal(size=X.shape), [f"{label}'" for label in Y], wait=True)
    after = client.transform(X, model="steady")
    assert after.shape == (90, 3)
    assert after[:, 2].any()
    cosines = (after[:, :2] * before[:, :2]).sum(axis=0) / np.linalg.norm(after, axis=0)[:2]
    assert (cosines / np.linalg.norm(before[:, :2], axis=0) > 0.8).all()

    path = "/models/steady/releases/a"
    assert status_of(http, "DELETE", path) == (409, "release_served")
    assert status_of(http, "DELETE", f"{path}?basis=rest") == (422, "invalid_request")
    client.delete_release("steady", "a", reset_basis=True)
    client.create_release("steady", "b")
    assert client.unlearn([0], drop_releases=True)["releases"] == [
        {"model": "steady", "name": "b", "holds_rows": False}
    ]
    assert client.releases("steady") == []
