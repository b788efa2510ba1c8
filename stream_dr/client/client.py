"""Client: the service from Python. Rows are sent as Arrow, projections return as arrays.

    with Client("http://127.0.0.1:8000") as client:
        client.put_model("lda", "lda", n_components=9)
        client.partial_fit(X, y)
        z = client.transform(X, model="lda")

Every route but the dashboard's has a method, named as its operation in /docs.

Every batch carries an idempotency key. A batch whose answer was lost, or that the service had no
room for, is sent again with the same key and the same bytes. It is learned once, however often it
is sent.

An error answer is raised as the class of `stream_dr.errors` that has its code.
"""

import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import quote

import numpy as np
import orjson
import pyarrow as pa

from stream_dr import errors
from stream_dr.aliases import JsonDict
from stream_dr.arrow.codec import read_arrow
from stream_dr.client.connection import Connection, checked_header, error_class
from stream_dr.client.remote_rows import (
    arrow_stream_bytes,
    as_list,
    checked_ids,
    is_unicode,
    metadata_of,
    rows_and_names,
    single_array,
)
from stream_dr.client.responses import (
    Acknowledgement,
    JobStatus,
    ModelStatus,
    ServedProjection,
    StreamFigures,
    StreamStatus,
)
from stream_dr.client.served_array import ServedArray
from stream_dr.rows.batches import as_block, batches
from stream_dr.rows.block import Block, as_weights
from stream_dr.rows.kinds import Kind, rows_kind
from stream_dr.targets.kind import refuse_ambiguous
from stream_dr.targets.label_codes import label_array
from stream_dr.targets.parsing import parse_targets
from stream_dr.targets.targets import KINDS, Targets

if TYPE_CHECKING:
    from stream_dr.estimators.fitting.estimator import Estimator

_ARROW = "application/vnd.apache.arrow.stream"

FIRST_POLL_SECONDS = 0.02
"""Pause before a job is polled for the first time.

Later pauses are longer.
"""

MAX_POLL_SECONDS = 1.0
"""Longest pause between two polls of a job."""

JobCallback = Callable[[JsonDict], object]
"""Function that receives a job's progress each time it changes."""


class Client:
    """A service at `url`. Close it, or use it as a context manager.

    Not to be shared between threads.

    Parameters
    ----------
    url : str
    token : str or None
        Bearer token, if the service requires one.
    timeout : float
        Seconds for one attempt.
    retries : int
        Number of attempts after the first. It waits 0.1, 0.2, 0.4 … up to 5 seconds between them,
        or as long as Retry-After says.

    Examples
    --------
    >>> import stream_dr
    >>> X = [[1.0, 2.0], [3.0, 1.0], [2.0, 2.0], [4.0, 0.0]]
    >>> with stream_dr.Client(url) as client:  # a running service, as "http://127.0.0.1:8000"
    ...     _ = client.put_model("lda", "lda")
    ...     receipt = client.partial_fit(X, ["a", "b", "a", "b"], key="first", wait=True)
    ...     client.transform(X[:1], model="lda").shape
    (1, 1)
    >>> receipt["rows"]
    4
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 60.0, retries: int = 8) -> None:
        self._service = Connection(url, token, timeout, retries)
        self._known_target_kind: str | None = None

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
    ) -> Acknowledgement:
        """Send rows with their targets, weights and ids.

        Parameters
        ----------
        X : rows (rows, features)
            ndarray, scipy sparse, or a table (pandas, polars, Arrow, or whatever offers Arrow's
            interchange). Strings, dates and gaps in a table, and a list of texts, are for models
            whose feature map takes them. A stream (a reader, a data set, a lazy frame) is sent
            batch by batch, without weights and ids.
        y : targets or str
            Targets of the rows, or the name of their column in X.
        sample_weight : array (rows,)
        ids : sequence of str or int
        key : str or None
            Idempotency key. None: a random one. Batches of a stream append their number to it.
        wait : bool
            Return once every model has learned the rows.
        target : str
            Kind of y, as in an estimator. "auto" is the kind of the stream. Until the stream has
            one, "auto" is refused for whole floats and for one column of whole numbers, which may
            be labels or continuous.
        check : bool
            Return what the answer would be, and learn nothing.

        Returns
        -------
        Acknowledgement
            For a stream, the last answer, with the number of all rows.

        Raises the error with which the service refuses the rows.
        """
        key = checked_header("key", key or uuid.uuid4().hex)
        rows = 0
        receipt: Any = {}
        in_parts = rows_kind(X) is Kind.STREAM
        query = {"check": "1"} if check else {"wait": "applied"} if wait else {}

        for number, block in enumerate(batches(as_block(X, y, sample_weight))):
            body = self._encode_batch(block, ids, target)
            headers = {"Content-Type": _ARROW, "Idempotency-Key": f"{key}-{number}" if in_parts else key}
            receipt = self._service.send("POST", "/partial_fit", params=query, content=body, headers=headers).json()
            rows += receipt["rows"]
        return cast(Acknowledgement, receipt | {"rows": rows})

    def unlearn(
        self, positions: Sequence[int] = (), ids: Sequence[str | int] = (), key: str | None = None, wait: bool = False
    ) -> Acknowledgement:
        """Take rows out again, by positions of their batches or by ids.

        Positions and ids cannot be given together.

        key, wait: as in `partial_fit`.
        """
        content = {"positions": as_list("positions", positions), "ids": as_list("ids", ids)}
        headers = {"Idempotency-Key": checked_header("key", key or uuid.uuid4().hex)}
        query = {"wait": "applied"} if wait else {}
        return cast(
            Acknowledgement,
            self._service.send("POST", "/unlearn", params=query, **_json_request(content, headers)).json(),
        )

    def transform(self, X: Any, model: str | None = None) -> ServedArray:
        """Project rows X (rows, features) to (rows, components) float64.

        model: its name. Not needed if there is only one.
        """
        table = pa.Table.from_batches(read_arrow(self._post_rows("/transform", X, model, _ARROW)))
        column = table.column("z").combine_chunks()
        z = np.zeros((len(column), 0))
        if pa.types.is_fixed_size_list(column.type):
            z = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), column.type.list_size)
        return ServedArray.of(z, metadata_of(table))

    def predict(self, X: Any, model: str | None = None) -> ServedArray:
        """Predict the targets of rows X (rows, features).

        Returns labels (rows,), numbers (rows,) or (rows, k), or an array (rows,) of lists if rows
        have several labels. Raises CannotPredict if the model's method predicts no targets.

        model: its name. Not needed if there is only one.
        """
        response = self._predict(X, model)
        predicted = response["predicted"]
        if not response["classes"]:
            values = np.asarray(predicted, dtype=np.float64)
        elif predicted and isinstance(predicted[0], list):
            values = np.fromiter(predicted, dtype=object, count=len(predicted))
        else:
            values = label_array(predicted)
        return ServedArray.of(values, response)

    def predict_proba(self, X: Any, model: str | None = None) -> tuple[ServedArray, np.ndarray]:
        """Return posterior probabilities (rows, classes) of rows X, and the classes (classes,).

        Raises CannotPredict if the model's method has no probabilities.
        """
        response = self._predict(X, model)
        if response.get("probabilities") is None:
            raise errors.CannotPredict(
                f"model {response['model']!r}, whose solution is {response['solution']}, predicts without probabilities of "
                "classes. A method that has them has none while its solution is diagonal: refine the model."
            )
        classes = label_array(response["classes"])
        probabilities = np.array(response["probabilities"], dtype=np.float64).reshape(-1, len(classes))
        return ServedArray.of(probabilities, response), classes

    def models(self) -> dict[str, ModelStatus]:
        """Return the state, position, rows, lag, version … of every model, by name."""
        return dict(self._get("/models")["models"])

    def model(self, name: str) -> ModelStatus:
        """Return a model's state, position, rows, lag, version … Raises UnknownModel."""
        return cast(ModelStatus, self._get(_model_path(name)))

    def put_model(
        self,
        name: str,
        estimator: "str | os.PathLike[str] | Estimator",
        start: str | int = "start",
        publish: JsonDict | None = None,
        refine: JsonDict | None = None,
        **params: Any,
    ) -> ModelStatus:
        """Create a model, or return it if it exists with the same spec.

        Parameters
        ----------
        name : str
        estimator : str, estimator or Path
            Registry key, with its parameters in `params`. Or a saved estimator (a fitted one, or
            the Path of a file of `save` or `export`), which the model continues. Then only the
            name may be given in addition.
        start : "start", "now" or int
            Position in the log from which the model learns.
        publish : dict or None
            {"rows", "seconds", "idle"}: when it is solved and published. None: the service's
            setting.
        refine : dict or None
            {"rows", "seconds"}: when it is refined by itself. {}: only on demand. None: the same
            for a new model.

        An existing model keeps a policy that is None. Raises ModelExists, InvalidParameter,
        UnknownEstimator …
        """
        spec = {"estimator": estimator, "params": params, "from": start, "publish": publish, "refine": refine}
        if isinstance(estimator, str):
            return cast(ModelStatus, self._service.send("PUT", _model_path(name), **_json_request(spec)).json())
        if params or start != "start" or publish is not None or refine is not None:
            raise errors.InvalidParameter("a saved estimator has parameters, and goes on from now; give nothing else.")
        headers = {"Content-Type": "application/octet-stream"}
        response = self._service.send("PUT", _model_path(name), content=_saved_bytes(estimator), headers=headers)
        return cast(ModelStatus, response.json())

    def delete_model(self, name: str) -> None:
        """Delete a model. The log stays. Raises UnknownModel."""
        self._service.send("DELETE", _model_path(name))

    def publish(self, name: str) -> ModelStatus:
        """Publish a model now, even if its policy would wait.

        Returns the model's description, as `model` does. Raises NotFitted, ModelFailed.
        """
        return cast(ModelStatus, self._service.send("POST", f"{_model_path(name)}/publish").json())

    def projection(self, name: str, version: int | None = None) -> ServedProjection:
        """Return a model's projection.

        Its arrays are further keys.

        version: an older version (`model` lists them as "versions"). It comes with the arrays
        "map" (components then, components now) and "offset" (components now,), which lead to the
        newest one: z_newest ≈ z · map + offset.

        Raises NotFitted, UnknownVersion.
        """
        query = {} if version is None else {"version": version}
        answer = self._service.send("GET", f"{_model_path(name)}/projection", params=query, headers={"Accept": _ARROW})
        table = pa.ipc.open_stream(answer.content).read_all()
        arrays = {name: single_array(table.column(name).chunk(0)) for name in table.column_names}
        return cast(ServedProjection, metadata_of(table) | arrays)

    def export(self, name: str, path: str | os.PathLike[str] | None = None) -> Any:
        """Return a model as it is now, as a fitted estimator of its own.

        path: also write it to this file, which `stream_dr.load` and `put_model` read.

        Raises ModelFailed.
        """
        from stream_dr.models.saved import load

        content = self._service.send("GET", f"{_model_path(name)}/export").content
        estimator = load(content, max_bytes=None)
        if path is not None:
            Path(path).write_bytes(content)
        return estimator

    def refine(
        self,
        name: str,
        tol: float = 1e-6,
        max_passes: int = 20,
        wait: bool = False,
        progress: JobCallback | None = None,
    ) -> JobStatus:
        """Start to refine a model by passes over the log. Return the job.

        wait: wait until the job ends, as `wait_job`.
        progress: receives its progress meanwhile.
        """
        parameters = {"tol": tol, "max_passes": max_passes}
        job: JobStatus = self._service.send("POST", f"{_model_path(name)}/refine", **_json_request(parameters)).json()
        return self.wait_job(job["id"], progress=progress) if wait else job

    def snapshot(self, name: str, wait: bool = False) -> JobStatus:
        """Start a snapshot. Return the job.

        wait: wait until the job ends.
        """
        job: JobStatus = self._service.send("POST", f"{_model_path(name)}/snapshot").json()
        return self.wait_job(job["id"]) if wait else job

    def job(self, id: str) -> JobStatus:
        """Return a job's state, progress and error. Raises UnknownJob."""
        return cast(JobStatus, self._get(f"/jobs/{_url_segment('job', id)}"))

    def wait_job(self, id: str, timeout: float | None = None, progress: JobCallback | None = None) -> JobStatus:
        """Wait until a job is done or cancelled, and return it.

        timeout: in seconds.
        progress: receives the job's progress each time it changes.

        Raises the error with which the job failed, and TimeoutError.
        """
        end = None if timeout is None else time.monotonic() + timeout
        pause = FIRST_POLL_SECONDS
        last_progress = None

        while True:
            job = self.job(id)
            if progress is not None and job["progress"] != last_progress:
                progress(job["progress"])
                last_progress = job["progress"]

            if job["error"] is not None:
                raise error_class(job["error"]["code"])(job["error"]["message"])
            if job["state"] in ("done", "cancelled"):
                return job

            if end is not None and time.monotonic() + pause > end:
                raise TimeoutError(f"job {id} of model {job['model']!r} is {job['state']} after {timeout} seconds.")
            time.sleep(pause)
            pause = min(1.5 * pause, MAX_POLL_SECONDS)

    def cancel_job(self, id: str) -> JobStatus:
        """Ask a job to stop at its next safe point.

        Return the job. Raises UnknownJob.
        """
        return cast(JobStatus, self._service.send("DELETE", f"/jobs/{_url_segment('job', id)}").json())

    def stream(self) -> StreamStatus:
        """Return position, rows, schema, labels and target kind of the stream."""
        return cast(StreamStatus, self._get("/stream"))

    def events(self) -> Iterator[StreamFigures]:
        """Yield position, rows and each model's figures, now and whenever they change.

        Ends when the service stops. Raises RemoteError if the connection is lost.
        """
        with self._service.lines("/events") as lines:
            for line in lines:
                if line.startswith("data:"):
                    yield orjson.loads(line.removeprefix("data:"))

    def metrics(self) -> str:
        """Return Prometheus metrics in their text form."""
        return self._service.send("GET", "/metrics").text

    def livez(self) -> bool:
        """Return True if the process answers."""
        try:
            return self._service.get_once("/livez").is_success
        except errors.RemoteError:
            return False

    def readyz(self) -> bool:
        """Return True if batches can be taken now.

        Raises RemoteError if the service does not answer.
        """
        return self._service.get_once("/readyz").is_success

    def close(self) -> None:
        """Close the connections."""
        self._service.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _get(self, path: str) -> JsonDict:
        return dict(self._service.send("GET", path).json())

    def _encode_batch(self, block: Block, ids: Sequence[str] | Sequence[int] | None, target: str) -> bytes:
        """Return rows with their targets, weights and ids, as they are sent."""
        rows, names = rows_and_names(block.X)
        weights = as_weights(block.weights, rows.shape[0])
        targets = None if block.y is None else self._targets(block.y, rows.shape[0], target)
        return arrow_stream_bytes(
            Block(rows, targets, weights, None if ids is None else checked_ids(ids, rows.shape[0]), names)
        )

    def _predict(self, X: Any, model: str | None) -> JsonDict:
        return dict(orjson.loads(self._post_rows("/predict", X, model, "application/json")))

    def _post_rows(self, path: str, X: Any, model: str | None, accept: str) -> bytes:
        """Send rows X to a model and return the answer in the media type `accept`."""
        rows, names = rows_and_names(X)
        headers = {"Content-Type": _ARROW, "Accept": accept}
        query = {"model": model or self._only_model()}
        body = arrow_stream_bytes(Block(rows, names=names))
        return self._service.send("POST", path, params=query, content=body, headers=headers).content

    def _targets(self, y: Any, rows: int, target: str) -> Targets:
        """Return y as Targets of the stream's kind.

        If the stream has none yet, the kind is `target`, or what the form of y says beyond doubt.
        """
        stream_kind = self._target_kind()
        targets = parse_targets(y, rows, KINDS, target, stream_kind)
        if stream_kind is None and target == "auto":
            refuse_ambiguous(y, targets)
        return targets

    def _target_kind(self) -> str | None:
        """Return the stream's kind of targets."""
        # Once decided it never changes.
        if self._known_target_kind is None:
            self._known_target_kind = self.stream()["target_kind"]
        return self._known_target_kind

    def _only_model(self) -> str:
        """Return the name of the only model, or raise UnknownModel."""
        names = sorted(self.models())
        if len(names) != 1:
            raise errors.UnknownModel(f"the service has the models {', '.join(names) or '(none)'}; say model=…")
        return names[0]


def _saved_bytes(estimator: "os.PathLike[str] | Estimator") -> bytes:
    """Return the content of a saved estimator's file."""
    if isinstance(estimator, os.PathLike):
        return Path(estimator).read_bytes()
    from stream_dr.models.saved import saved_bytes

    return saved_bytes(estimator)


def _json_request(content: object, headers: dict[str, str] | None = None) -> JsonDict:
    """Return the arguments of httpx for a JSON body, which may hold numpy's numbers.

    Raises InvalidParameter.
    """
    try:
        body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as e:
        raise errors.InvalidParameter(f"{content} cannot be said in JSON ({e}); give numbers, strings, lists.") from e
    return {"content": body, "headers": {"Content-Type": "application/json", **(headers or {})}}


def _model_path(name: str) -> str:
    return f"/models/{_url_segment('model', name)}"


def _url_segment(kind: str, name: str) -> str:
    """Return a name as it is written in an address. Raises InvalidParameter."""
    if not isinstance(name, str) or name in ("", ".", "..") or not is_unicode(name):
        raise errors.InvalidParameter(f"no {kind} can be called {name!r}; say which {kind}.")
    return quote(name, safe="")
