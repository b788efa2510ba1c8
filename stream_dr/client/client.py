"""Client: the service from Python; rows go out as Arrow, projections come back as arrays.

    with Client("http://127.0.0.1:8000") as client:
        client.put_model("lda", "lda", n_components=9)
        client.partial_fit(X, y)
        z = client.transform(X, model="lda")

Every route but the dashboard's has a method, called as its operation in /docs. Every batch carries an idempotency key, and a
batch whose answer was lost, or that the service had no room for, is sent again with the same key and the same bytes: however
often it is sent, it is learned once. An error answer is raised as the class of `stream_dr.errors` that has its code.

Why this way: retrying is only safe with the key, so the two are not separate options.
"""

import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import numpy as np
import orjson
import pyarrow as pa

from stream_dr import errors
from stream_dr.arrow.codec import read_arrow
from stream_dr.client.connection import Connection, error_class, header
from stream_dr.client.remote_rows import array_of, bytes_of, ids_of, is_unicode, metadata_of, rows_of, several
from stream_dr.client.served_array import ServedArray
from stream_dr.rows.batches import as_block, batches
from stream_dr.rows.block import Block, as_weights
from stream_dr.rows.kinds import Kind, kind_of
from stream_dr.targets.kind import refuse_ambiguous
from stream_dr.targets.label_codes import label_array
from stream_dr.targets.parsing import parse_targets
from stream_dr.targets.targets import KINDS, Targets

if TYPE_CHECKING:
    from stream_dr.estimators.fitting.estimator import Estimator

_ARROW = "application/vnd.apache.arrow.stream"
_LOOKS = (0.02, 1.0)
"""Seconds until a job is first looked at again, and at most."""

Facts = dict[str, Any]
"""What the service tells of something."""
Watch = Callable[[Facts], object]
"""Is told a job's progress whenever it is another."""


class Client:
    """A service at `url`; close it, or use it as a context manager. Not to be shared between threads.

    token: bearer token, where the service wants one. timeout: seconds for one attempt. retries: attempts after the first;
    between them it waits 0.1, 0.2, 0.4 … up to 5 seconds, or what Retry-After says.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 60.0, retries: int = 8) -> None:
        self._service = Connection(url, token, timeout, retries)
        self._kind: str | None = None

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        ids: Sequence[str] | Sequence[int] | None = None,
        key: str | None = None,
        wait: bool = False,
        target: str = "auto",
        check: bool = False,
    ) -> Facts:
        """Send rows X (rows, features) with targets y, weights (rows,) and ids; answers {"position", "rows", "duplicate"},
        and "columns_missing": a table's columns that they do not have, taken as missing.

        X: ndarray, scipy sparse, or a table: pandas, polars, Arrow, or whatever offers Arrow's interchange; strings, dates
        and gaps in it, and a list of texts, are for models whose feature map takes them. A stream (a reader, a data set, a
        lazy frame), without weights and ids, is sent batch by batch; the answer is the last one's, of all rows. y: targets,
        or the name of X's column of them. key: idempotency key; made up when None; a stream's batches have it with their
        number. wait: answer once every model has learned them. target: kind of y, as in an estimator; "auto" is what the
        stream has, and before it has any is refused for whole floats and for one column of whole numbers, which may be
        either. check: say what would be taken, and take nothing. Raises what the service refuses with.
        """
        key, rows, told = header("key", key or uuid.uuid4().hex), 0, Facts()
        in_parts = kind_of(X) is Kind.STREAM
        query = {"check": "1"} if check else {"wait": "applied"} if wait else {}
        for number, block in enumerate(batches(as_block(X, y, sample_weight))):
            body = self._batch(block, ids, target)
            headers = {"Content-Type": _ARROW, "Idempotency-Key": f"{key}-{number}" if in_parts else key}
            told = self._service.send("POST", "/partial_fit", params=query, content=body, headers=headers).json()
            rows += told["rows"]
        return told | {"rows": rows}

    def unlearn(
        self, positions: Sequence[int] = (), ids: Sequence[str | int] = (), key: str | None = None, wait: bool = False
    ) -> Facts:
        """Take rows out again, by the positions of their batches or by their ids, not by both; as partial_fit."""
        what = {"positions": several("positions", positions), "ids": several("ids", ids)}
        headers = {"Idempotency-Key": header("key", key or uuid.uuid4().hex)}
        query = {"wait": "applied"} if wait else {}
        return dict(self._service.send("POST", "/unlearn", params=query, **_json(what, headers)).json())

    def transform(self, X: Any, model: str | None = None) -> ServedArray:
        """Project rows X (rows, features) to (rows, components) float64; model may be left out where there is only one."""
        answer = read_arrow(self._answer("/transform", X, model, _ARROW))
        table = pa.Table.from_batches(answer)
        column = table.column("z").combine_chunks()
        z = np.zeros((len(column), 0))
        if pa.types.is_fixed_size_list(column.type):
            z = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), column.type.list_size)
        return ServedArray.of(z, metadata_of(table))

    def predict(self, X: Any, model: str | None = None) -> ServedArray:
        """Predict the targets of rows X (rows, features): labels (rows,), numbers (rows,) or (rows, k), or lists (rows,)
        where a row has several labels. model may be left out where there is only one. Raises CannotPredict where the model's
        method has no rule for targets."""
        told = self._predicted(X, model)
        predicted = told["predicted"]
        if not told["classes"]:
            found = np.asarray(predicted, dtype=np.float64)
        elif predicted and isinstance(predicted[0], list):
            found = np.fromiter(predicted, dtype=object, count=len(predicted))
        else:
            found = label_array(predicted)
        return ServedArray.of(found, told)

    def predict_proba(self, X: Any, model: str | None = None) -> tuple[ServedArray, np.ndarray]:
        """Posterior probabilities (rows, classes) float64 of rows X, and the classes (classes,) they are of. Raises
        CannotPredict where the model's method has none."""
        told = self._predicted(X, model)
        if told.get("probabilities") is None:
            raise errors.CannotPredict(
                f"model {told['model']!r}, whose solution is {told['solution']}, predicts without probabilities of classes. "
                "A method that has them has none while its solution is diagonal: refine the model."
            )
        classes = label_array(told["classes"])
        found = np.array(told["probabilities"], dtype=np.float64).reshape(-1, len(classes))
        return ServedArray.of(found, told), classes

    def models(self) -> dict[str, Facts]:
        """Every model: name → state, position, rows, lag, version …"""
        return dict(self._get("/models")["models"])

    def model(self, name: str) -> Facts:
        """One model's state, position, rows, lag, version … Raises UnknownModel."""
        return self._get(_path(name))

    def put_model(
        self,
        name: str,
        estimator: "str | os.PathLike[str] | Estimator",
        start: str | int = "start",
        publish: Facts | None = None,
        refine: Facts | None = None,
        **params: Any,
    ) -> Facts:
        """Make a model, or find it there with the same spec. Raises ModelExists, InvalidParameter, UnknownEstimator …

        estimator: a registry key, with its params; or a saved estimator (one that is fitted, or a Path of the file that
        `save` or `export` has written), from which the model goes on: then nothing else is given. start: "start", "now" or a
        position. publish: {"rows", "seconds", "idle"}, when it is solved and published; None: as the service is set. refine:
        {"rows", "seconds"}, when it is refined again by itself; {}: when asked, as with None in a new model. A model that is
        there keeps a policy that is None.
        """
        spec = {"estimator": estimator, "params": params, "from": start, "publish": publish, "refine": refine}
        if isinstance(estimator, str):
            return dict(self._service.send("PUT", _path(name), **_json(spec)).json())
        if params or start != "start" or publish is not None or refine is not None:
            raise errors.InvalidParameter("a saved estimator has parameters, and goes on from now; give nothing else.")
        headers = {"Content-Type": "application/octet-stream"}
        return dict(self._service.send("PUT", _path(name), content=_file(estimator), headers=headers).json())

    def delete_model(self, name: str) -> None:
        """Forget a model; the log stays. Raises UnknownModel."""
        self._service.send("DELETE", _path(name))

    def publish(self, name: str) -> Facts:
        """Publish the model as it is now, whatever its policy; what `model` gives. Raises NotFitted, ModelFailed."""
        return dict(self._service.send("POST", f"{_path(name)}/publish").json())

    def projection(self, name: str, version: int | None = None) -> Facts:
        """A model's projection: "version", "newest", "kind", "solution" … and its arrays: "mean" (features,), "components"
        (components, features), "eigenvalues" (components,) of a linear one.

        version: a kept one ("versions" of `model` has their numbers), which comes with what leads to the newest, "map"
        (components then, components now) and "offset" (components now,): z_newest ≈ z · map + offset. Raises NotFitted,
        UnknownVersion.
        """
        query = {} if version is None else {"version": version}
        answer = self._service.send("GET", f"{_path(name)}/projection", params=query, headers={"Accept": _ARROW})
        table = pa.ipc.open_stream(answer.content).read_all()
        return metadata_of(table) | {n: array_of(table.column(n).chunk(0)) for n in table.column_names}

    def export(self, name: str, path: str | os.PathLike[str] | None = None) -> Any:
        """The model as it is now as an estimator, fitted, that goes on by itself. path: also write it to this file, which
        `stream_dr.load` and `put_model` take. Raises ModelFailed."""
        from stream_dr.models.saved import load

        content = self._service.send("GET", f"{_path(name)}/export").content
        estimator = load(content, max_bytes=None)
        if path is not None:
            Path(path).write_bytes(content)
        return estimator

    def refine(
        self, name: str, tol: float = 1e-6, max_passes: int = 20, wait: bool = False, progress: Watch | None = None
    ) -> Facts:
        """Start the exact solution by passes over the log; the job, whose "id" `job`, `wait_job` and `cancel_job` take.
        wait: the job at its end, as of `wait_job`; progress: told of it meanwhile."""
        how = {"tol": tol, "max_passes": max_passes}
        job = dict(self._service.send("POST", f"{_path(name)}/refine", **_json(how)).json())
        return self.wait_job(job["id"], progress=progress) if wait else job

    def snapshot(self, name: str, wait: bool = False) -> Facts:
        """Start a snapshot; the job. wait: the job at its end."""
        job = dict(self._service.send("POST", f"{_path(name)}/snapshot").json())
        return self.wait_job(job["id"]) if wait else job

    def job(self, id: str) -> Facts:
        """A job's state, progress and error. Raises UnknownJob."""
        return self._get(f"/jobs/{_segment('job', id)}")

    def wait_job(self, id: str, timeout: float | None = None, progress: Watch | None = None) -> Facts:
        """The job once it is done or cancelled; progress is told how far it is. Raises the error that it failed with, and
        TimeoutError after so many seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        pause, told = _LOOKS[0], None
        while True:
            job = self.job(id)
            if progress is not None and job["progress"] != told:
                progress(job["progress"])
                told = job["progress"]
            if job["state"] == "failed":
                raise error_class(job["error"]["code"])(job["error"]["message"])
            if job["state"] in ("done", "cancelled"):
                return job
            if end is not None and time.monotonic() + pause > end:
                raise TimeoutError(f"job {id} of model {job['model']!r} is {job['state']} after {timeout} seconds.")
            time.sleep(pause)
            pause = min(1.5 * pause, _LOOKS[1])

    def cancel_job(self, id: str) -> Facts:
        """Ask a job to stop at its next safe point; the job. Raises UnknownJob."""
        return dict(self._service.send("DELETE", f"/jobs/{_segment('job', id)}").json())

    def stream(self) -> Facts:
        """Position, rows, schema, labels and target kind of the stream."""
        return self._get("/stream")

    def events(self) -> Iterator[Facts]:
        """Position, rows and each model's figures, now and whenever they change, until the service stops or nobody asks for
        more. Raises RemoteError where the connection breaks off."""
        with self._service.lines("/events") as lines:
            for line in lines:
                if line.startswith("data:"):
                    yield orjson.loads(line.removeprefix("data:"))

    def metrics(self) -> str:
        """Prometheus metrics, in its text form."""
        return self._service.send("GET", "/metrics").text

    def livez(self) -> bool:
        """Whether the process answers."""
        try:
            return self._service.once("/livez").is_success
        except errors.RemoteError:
            return False

    def readyz(self) -> bool:
        """Whether batches can be taken just now. Raises RemoteError where nobody answers."""
        return self._service.once("/readyz").is_success

    def close(self) -> None:
        """Close the connections."""
        self._service.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _get(self, path: str) -> Facts:
        return dict(self._service.send("GET", path).json())

    def _batch(self, given: Block, ids: Sequence[str] | Sequence[int] | None, target: str) -> bytes:
        """Rows and what is given with them, as they are sent."""
        rows, names = rows_of(given.X)
        weights = as_weights(given.weights, rows.shape[0])
        targets = None if given.y is None else self._targets(given.y, rows.shape[0], target)
        return bytes_of(Block(rows, targets, weights, None if ids is None else ids_of(ids, rows.shape[0]), names))

    def _predicted(self, X: Any, model: str | None) -> Facts:
        return dict(orjson.loads(self._answer("/predict", X, model, "application/json")))

    def _answer(self, path: str, X: Any, model: str | None, accept: str) -> bytes:
        """What a model says of rows X, in the form that `accept` names."""
        rows, names = rows_of(X)
        headers, query = {"Content-Type": _ARROW, "Accept": accept}, {"model": model or self._only_model()}
        body = bytes_of(Block(rows, names=names))
        return self._service.send("POST", path, params=query, content=body, headers=headers).content

    def _targets(self, y: Any, rows: int, target: str) -> Targets:
        """y as Targets of the stream's kind, or, where it has none, of `target` or of what y's form says beyond doubt."""
        known = self._target_kind()
        targets = parse_targets(y, rows, KINDS, target, known)
        if known is None and target == "auto":
            refuse_ambiguous(y, targets)
        return targets

    def _target_kind(self) -> str | None:
        """The stream's kind of targets, asked until it is decided; it never changes then."""
        if self._kind is None:
            self._kind = self.stream()["target_kind"]
        return self._kind

    def _only_model(self) -> str:
        names = sorted(self.models())
        if len(names) != 1:
            raise errors.UnknownModel(f"the service has the models {', '.join(names) or '(none)'}; say model=…")
        return names[0]


def _file(estimator: Any) -> bytes:
    """The content of a saved estimator's file."""
    if isinstance(estimator, os.PathLike):
        return Path(estimator).read_bytes()
    from stream_dr.models.saved import saved_bytes

    return saved_bytes(estimator)


def _json(content: Any, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """What httpx is told of a JSON body, in which numpy's numbers may stand. Raises InvalidParameter."""
    try:
        body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as e:
        raise errors.InvalidParameter(f"{content} cannot be said in JSON ({e}); give numbers, strings, lists.") from e
    return {"content": body, "headers": {"Content-Type": "application/json", **(headers or {})}}


def _path(name: str) -> str:
    return f"/models/{_segment('model', name)}"


def _segment(kind: str, name: str) -> str:
    """A name as it stands in an address. Raises InvalidParameter."""
    if not isinstance(name, str) or name in ("", ".", "..") or not is_unicode(name):
        raise errors.InvalidParameter(f"no {kind} can be called {name!r}; say which {kind}.")
    return quote(name, safe="")
