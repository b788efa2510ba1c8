"""Client: sends requests to a service and returns Python objects.

Rows are sent in Arrow format, and projections are returned as numpy arrays.

    with Client("http://127.0.0.1:8000") as client:
        client.put_model("lda", "lda", n_components=9)
        client.partial_fit(X, y)
        z = client.transform(X, model="lda")

The client has one method for each operation in the service's API documentation (/docs). The method
and the operation have the same name. The routes of the dashboard have no methods.

Every batch carries an idempotency key. If the response is lost or the service is overloaded, the
client sends the batch again with this key. The service learns a batch only once, even if the batch
arrives several times.

A response that describes an error is raised as an exception. The class of the exception is the
class in `stream_dr.errors` that has the error's code.
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
from stream_dr.batch.arrow import read_arrow
from stream_dr.batch.block import Block, as_ids, as_weights, is_valid_unicode
from stream_dr.batch.matrix import number_array
from stream_dr.batch.parsing import check_targets_unambiguous, parse_targets
from stream_dr.batch.rows import TableStream, as_block, batches
from stream_dr.batch.targets import KINDS, Targets, label_array
from stream_dr.client.connection import ERROR_CLASSES, Connection, checked_header
from stream_dr.client.payloads import (
    Acknowledgement,
    JobStatus,
    ModelStatus,
    ServedArray,
    ServedProjection,
    StreamEventStatus,
    StreamStatus,
    arrow_stream_bytes,
    as_list,
    prediction_array,
    read_metadata,
    sendable_rows,
)

if TYPE_CHECKING:
    from stream_dr.estimators.fitting.estimator import Estimator

_ARROW = "application/vnd.apache.arrow.stream"

FIRST_POLL_SECONDS = 0.02
"""Seconds between the first two requests for a job's state. Later pauses are longer."""

MAX_POLL_SECONDS = 1.0
"""Maximum number of seconds between two requests for a job's state."""

JobCallback = Callable[[JsonDict], object]
"""Function that receives a job's progress each time the progress changes."""


class Client:
    """Client of a service.

    Close the client, or use the client in a with-statement. Threads must not share a client.

    Parameters
    ----------
    url : str
        Address of the service.
    token : str or None
        Bearer token, if the service requires one.
    timeout : float
        Maximum number of seconds that the client waits for the network in one attempt.
    retries : int
        Maximum number of further attempts if a request fails for a temporary reason. The pauses
        between attempts are about 0.1, 0.2, 0.4, … and at most 5 seconds. A pause is longer if the
        header Retry-After of the response asks for a longer pause.

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
        """Send rows for all models to learn.

        Parameters
        ----------
        X : rows (rows, features)
            ndarray, scipy sparse array, table (pandas, polars, Arrow), list of texts, or stream (a
            reader, a data set, a lazy frame). Streams are sent batch by batch. Texts, and tables
            with strings, dates or missing values, need models with a feature map.
        y : targets or str
            Targets of the rows, or the name of the column of X that has the targets.
        sample_weight : array (rows,)
            Weights of the rows. Cannot be given for a stream.
        ids : sequence of str or int
            Id of each row. Cannot be given for a stream.
        key : str or None
            Idempotency key. None means a random key. If X is a stream, the number of the batch is
            appended to the key.
        wait : bool
            If true, wait until all models have published the rows, or the service's timeout ends.
        target : str
            Kind of the targets: "class", "multilabel", "continuous" or "auto". "auto" takes the
            kind of earlier batches. For the first batch, "auto" takes the kind from the values of
            y. It raises an error for whole floats such as [1.0, 2.0], and for a single column such
            as [[1], [2]], which could be labels or numbers to predict.
        check : bool
            If true, the service checks the rows and does not learn them.

        Returns
        -------
        Acknowledgement
            Response of the service. If X is a stream, this is the response to the last batch, and
            `rows` is the number of rows of all batches.

        Raises the error that the service reports if it does not accept the rows.
        """
        key = checked_header("key", key or uuid.uuid4().hex)
        rows = 0
        receipt: JsonDict = {}
        whole = as_block(X, y, sample_weight)
        query = {"wait": "applied"} if wait else {}
        if check:
            query = {"check": "1"}

        # Send each table of a stream as one request, with an idempotency key of its own.
        for number, block in enumerate(batches(whole)):
            batch_key = f"{key}-{number}" if isinstance(whole.X, TableStream) else key
            receipt = self._send_batch(block, ids, target, batch_key, query)
            rows += receipt["rows"]
        return cast(Acknowledgement, receipt | {"rows": rows})

    def unlearn(
        self,
        positions: Sequence[int] = (),
        ids: Sequence[str | int] = (),
        key: str | None = None,
        wait: bool = False,
        drop_releases: bool = False,
    ) -> Acknowledgement:
        """Remove learned rows from all models.

        Give either positions or ids, not both. The response names the releases that include the
        rows.

        positions: log positions of the batches to remove.
        ids: ids of the rows to remove.
        key, wait: as in `partial_fit`.
        drop_releases: if true, the service deletes these releases before it answers.
        """
        content: JsonDict = {"positions": as_list("positions", positions), "ids": as_list("ids", ids)}
        if drop_releases:
            content["releases"] = "drop"
        headers = {"Idempotency-Key": checked_header("key", key or uuid.uuid4().hex)}
        query = {"wait": "applied"} if wait else {}
        return cast(Acknowledgement, self._send_json("POST", "/unlearn", content, params=query, headers=headers))

    def transform(self, X: Any, model: str | None = None, release: str | None = None) -> ServedArray:
        """Project rows X (rows, features).

        The result is a float64 array (rows, components).

        model: name of the model. None means the only model of the service.
        release: name of a release of the model. None means what the model publishes.
        """
        content = self._post_rows("/transform", X, model, release, _ARROW)
        table = pa.Table.from_batches(read_arrow(content))
        z = number_array(table.column("z"), "z")
        return ServedArray.from_response(z, read_metadata(table))

    def predict(self, X: Any, model: str | None = None, release: str | None = None) -> ServedArray:
        """Predict the targets of rows X (rows, features).

        The result depends on the kind of the targets:

        - One label per row: an array (rows,) of labels.
        - Several labels per row: an array (rows,) of lists of labels.
        - One number per row: an array (rows,).
        - k numbers per row: an array (rows, k).

        model, release: as in `transform`.

        Raises CannotPredict if the model's method predicts no targets.
        """
        response = self._request_predictions(X, model, release)
        return ServedArray.from_response(prediction_array(response), response)

    def predict_proba(
        self, X: Any, model: str | None = None, release: str | None = None
    ) -> tuple[ServedArray, np.ndarray]:
        """Return the probability of each class, and the classes.

        The result is a pair of arrays: probabilities (rows, classes) and class labels (classes,).

        X, model, release: as in `transform`.

        Raises CannotPredict if the model's method has no probabilities.
        """
        response = self._request_predictions(X, model, release)
        if response.get("probabilities") is None:
            raise errors.CannotPredict(
                f"model {response['model']!r}, whose solution is {response['solution']}, predicts without probabilities of "
                "classes. A method that has them has none while its solution is diagonal: refine the model."
            )
        classes = label_array(response["classes"])
        probabilities = np.array(response["probabilities"], dtype=np.float64).reshape(-1, len(classes))
        return ServedArray.from_response(probabilities, response), classes

    def models(self) -> dict[str, ModelStatus]:
        """Return the status of every model, by the model's name."""
        return dict(self._get_json("/models")["models"])

    def model(self, name: str) -> ModelStatus:
        """Return the status of a model. Raises UnknownModel."""
        return cast(ModelStatus, self._get_json(model_path(name)))

    def put_model(
        self,
        name: str,
        estimator: "str | os.PathLike[str] | Estimator",
        start: str | int = "start",
        publish: JsonDict | None = None,
        refine: JsonDict | None = None,
        basis: str | None = None,
        **params: Any,
    ) -> ModelStatus:
        """Create a model, and return its status.

        If the model exists with the same estimator and parameters, its status is returned.

        Parameters
        ----------
        name : str
            Name of the model.
        estimator : str, estimator or Path
            One of the following:

            - The key of an estimator, such as "lda". `params` has the estimator's parameters.
            - A fitted estimator, from which the model continues to learn. Only `name` may be given
              in addition.
            - The path of a file that `save` or `export` has written. The path must be a Path. The
              file has the same effect as the fitted estimator in the file.
        start : "start", "now" or int
            Position in the log from which the model learns.
        publish : dict or None
            Rule for when the model is solved and published. The keys are "rows", "seconds" and
            "idle". None means the service's setting for a new model, and no change for an existing
            model.
        refine : dict or None
            Rule for when the model is refined automatically. The keys are "rows" and "seconds".
            With {}, the model is refined only on request. None means {} for a new model, and no
            change for an existing model.
        basis : "steady" or None
            "steady" rotates the components of each new projection towards those of the model's
            newest release, so that vectors computed with either can be compared. `n_components`
            must then be a number.

        Raises ModelExists, InvalidParameter, UnknownEstimator and other errors of the service.
        """
        path = model_path(name)
        if isinstance(estimator, str):
            policies = {"publish": publish, "refine": refine, "basis": basis}
            spec = {"estimator": estimator, "params": params, "from": start} | policies
            return cast(ModelStatus, self._send_json("PUT", path, spec))

        # From here on, `estimator` is a fitted estimator or the path of its file.
        if params or start != "start" or (publish, refine, basis) != (None, None, None):
            raise errors.InvalidParameter("a saved estimator has parameters, and goes on from now; give nothing else.")
        if isinstance(estimator, os.PathLike):
            body = Path(estimator).read_bytes()
        else:
            from stream_dr.models.saved import saved_file_bytes

            body = saved_file_bytes(estimator)
        headers = {"Content-Type": "application/octet-stream"}
        return cast(ModelStatus, self._service.send("PUT", path, content=body, headers=headers).json())

    def delete_model(self, name: str) -> None:
        """Delete a model.

        The rows stay in the log. Raises UnknownModel.
        """
        self._service.send("DELETE", model_path(name))

    def publish(self, name: str, release: str | None = None) -> ModelStatus:
        """Publish a model now, whatever its publishing rule says.

        release: name of a release to publish as the newest version. Until the model is published
            without a release, it goes on learning and publishes nothing else. None publishes the
            model as it is now.

        Returns the model's status. Raises NotFitted, ModelFailed, UnknownRelease.
        """
        return cast(ModelStatus, self._send_json("POST", f"{model_path(name)}/publish", {"release": release}))

    def create_release(self, model: str, name: str, version: int | None = None) -> JsonDict:
        """Give a published version of a model a name, under which it stays.

        name: name of the release, of 1 to 64 letters, digits, "_", "-" or ".".
        version: number of the version, one of `model(name)["versions"]`. None means the newest.

        Returns a dict with "model", "name", "version", "position", "rows", "holds_rows", "created"
        and "served". If the release exists with this version, it is returned. Raises ReleaseExists if it has
        another version, UnknownModel, UnknownVersion, NotFitted, LimitExceeded.
        """
        content = {"name": name, "version": version}
        return self._send_json("POST", f"{model_path(model)}/releases", content)

    def releases(self, model: str) -> list[JsonDict]:
        """Return the releases of a model, oldest first.

        Each release is a dict with the keys that `create_release` lists. Raises UnknownModel.
        """
        return list(self._get_json(f"{model_path(model)}/releases")["releases"])

    def delete_release(self, model: str, name: str, reset_basis: bool = False) -> None:
        """Delete a release of a model.

        reset_basis: if true, delete also the newest release of a model with a steady basis.

        Raises UnknownModel or UnknownRelease. Raises ReleaseServed while the model serves the
        release, and for the newest release of a model with a steady basis, to whose components
        those of new projections are rotated.
        """
        path = f"{model_path(model)}/releases/{_quoted_url_segment('release', name)}"
        query = {"basis": "reset"} if reset_basis else {}
        self._service.send("DELETE", path, params=query)

    def projection(self, name: str, version: int | None = None, release: str | None = None) -> ServedProjection:
        """Return a model's published projection as a dict.

        The dict has the projection's fields and arrays. An older version has two further arrays,
        "map" (p, q) and "offset" (q,). p is the number of components of the older version, and q
        the number of components of the newest version. The two arrays convert rows z that the
        older version has projected: z_newest ≈ z @ map + offset.

        version: number of the version, one of `model(name)["versions"]`. None means the newest
            version.
        release: name of a release, instead of a version. It has the two further arrays, too.

        Raises NotFitted, UnknownVersion, UnknownRelease.
        """
        given = {"version": version, "release": release}
        query = {key: value for key, value in given.items() if value is not None}
        path = f"{model_path(name)}/projection"
        response = self._service.send("GET", path, params=query, headers={"Accept": _ARROW})
        table = pa.ipc.open_stream(response.content).read_all()
        projection = read_metadata(table)
        # The table has one row, with one array in each column.
        for array_name in table.column_names:
            column = table.column(array_name).chunk(0)
            # The service sends an array as a tensor, or as a list if the array is empty.
            if isinstance(column, pa.FixedShapeTensorArray):
                array = column.to_numpy_ndarray()[0]
            else:
                array = np.asarray(column[0].as_py(), dtype=np.float64)
            projection[array_name] = array
        return cast(ServedProjection, projection)

    def export(self, name: str, path: str | os.PathLike[str] | None = None) -> Any:
        """Return a copy of a model as a fitted estimator.

        path: path of a file to which the estimator is also written. `stream_dr.load` and
            `put_model` read such files.

        Raises ModelFailed.
        """
        from stream_dr.models.saved import load

        content = self._service.send("GET", f"{model_path(name)}/export").content
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
        """Start a job that refines a model.

        The job computes the model's exact solution by passes over the log. Returns the
        job's status.

        tol: relative residual at which the job stops.
        max_passes: maximum number of passes over the log.
        wait: if true, wait until the job ends, as `wait_job` does.
        progress: function that receives the job's progress each time the progress changes. The
            function is called only if `wait` is true.
        """
        parameters = {"tol": tol, "max_passes": max_passes}
        job = cast(JobStatus, self._send_json("POST", f"{model_path(name)}/refine", parameters))
        if wait:
            return self.wait_job(job["id"], progress=progress)
        return job

    def snapshot(self, name: str, wait: bool = False) -> JobStatus:
        """Start a job that writes a model's state to disk.

        Returns the job's status.

        wait: if true, wait until the job ends, as `wait_job` does.
        """
        job: JobStatus = self._service.send("POST", f"{model_path(name)}/snapshot").json()
        if wait:
            return self.wait_job(job["id"])
        return job

    def job(self, id: str) -> JobStatus:
        """Return the status of a job. Raises UnknownJob."""
        return cast(JobStatus, self._get_json(f"/jobs/{_quoted_url_segment('job', id)}"))

    def wait_job(self, id: str, timeout: float | None = None, progress: JobCallback | None = None) -> JobStatus:
        """Wait until a job is done or cancelled.

        Returns the job's status.

        timeout: maximum number of seconds to wait. None means no limit.
        progress: function that receives the job's progress each time the progress changes.

        Raises the job's error if the job fails, and TimeoutError after `timeout` seconds.
        """
        end = None
        if timeout is not None:
            end = time.monotonic() + timeout
        # Ask for the job's state again and again, with growing pauses.
        pause = FIRST_POLL_SECONDS
        last_progress = None

        while True:
            job = self.job(id)
            if progress is not None and job["progress"] != last_progress:
                progress(job["progress"])
                last_progress = job["progress"]

            error = job["error"]
            if error is not None:
                error_class = ERROR_CLASSES.get(error["code"], errors.RemoteError)
                raise error_class(error["message"])
            if job["state"] in ("done", "cancelled"):
                return job

            if end is not None and time.monotonic() + pause > end:
                raise TimeoutError(f"job {id} of model {job['model']!r} is {job['state']} after {timeout} seconds.")
            time.sleep(pause)
            pause = min(1.5 * pause, MAX_POLL_SECONDS)

    def cancel_job(self, id: str) -> JobStatus:
        """Ask a job to stop, and return the job's status.

        The job may run for some time before it stops. Raises UnknownJob.
        """
        return cast(JobStatus, self._service.send("DELETE", f"/jobs/{_quoted_url_segment('job', id)}").json())

    def stream(self) -> StreamStatus:
        """Return the stream's status, such as position, columns and labels."""
        return cast(StreamStatus, self._get_json("/stream"))

    def events(self) -> Iterator[StreamEventStatus]:
        """Yield the status of stream and models after each change.

        The current status is yielded first. The iterator ends when the service stops. Raises
        RemoteError if the connection is lost.
        """
        with self._service.stream_lines("/events") as event_stream:
            for line in event_stream:
                if line.startswith("data:"):
                    yield orjson.loads(line.removeprefix("data:"))

    def metrics(self) -> str:
        """Return the service's metrics in the text format of Prometheus."""
        return self._service.send("GET", "/metrics").text

    def livez(self) -> bool:
        """Return True if the service's process answers."""
        try:
            return self._service.get_without_retries("/livez").is_success
        except errors.RemoteError:
            return False

    def readyz(self) -> bool:
        """Return True if the service can accept batches now.

        Raises RemoteError if the service does not answer.
        """
        return self._service.get_without_retries("/readyz").is_success

    def close(self) -> None:
        """Close the HTTP connections to the service."""
        self._service.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _get_json(self, path: str) -> JsonDict:
        return dict(self._service.send("GET", path).json())

    def _send_json(self, method: str, path: str, content: object, **request: Any) -> JsonDict:
        """Send a JSON body, and return the JSON object of the response.

        content: value to send. numpy arrays and scalars are allowed.
        request: further arguments for httpx.

        Raises InvalidParameter if the value cannot be expressed in JSON.
        """
        try:
            body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
        except TypeError as e:
            raise errors.InvalidParameter(
                f"{content} cannot be said in JSON ({e}); give numbers, strings, lists."
            ) from e
        headers = {"Content-Type": "application/json", **request.pop("headers", {})}
        return dict(self._service.send(method, path, content=body, headers=headers, **request).json())

    def _send_batch(self, block: Block, ids: Any, target_kind: str, key: str, query: dict[str, str]) -> JsonDict:
        """Send a batch to learn, and return the JSON object of the response.

        block: rows, with targets or None, and weights or None.
        ids: id of each row, or None.
        target_kind: kind of the targets, as in `partial_fit`.
        key: idempotency key of the batch.
        """
        rows, names = sendable_rows(block.X)
        n_rows = rows.shape[0]
        weights = as_weights(block.weights, n_rows)
        targets = self._parse_targets(block.y, n_rows, target_kind) if block.y is not None else None
        row_ids = as_ids(as_list("ids", ids), n_rows) if ids is not None else None
        body = arrow_stream_bytes(Block(rows, targets, weights, row_ids, names))
        headers = {"Content-Type": _ARROW, "Idempotency-Key": key}
        return dict(self._service.send("POST", "/partial_fit", params=query, content=body, headers=headers).json())

    def _request_predictions(self, X: Any, model: str | None, release: str | None) -> JsonDict:
        return dict(orjson.loads(self._post_rows("/predict", X, model, release, "application/json")))

    def _post_rows(self, path: str, X: Any, model: str | None, release: str | None, accept: str) -> bytes:
        """Send rows X to a model's route, and return the response's body.

        path: path of the route.
        accept: media type of the response.
        """
        rows, names = sendable_rows(X)
        if not model:
            known = sorted(self.models())
            if len(known) != 1:
                raise errors.UnknownModel(f"the service has the models {', '.join(known) or '(none)'}; say model=…")
            model = known[0]

        query = {"model": model} | ({} if release is None else {"release": release})
        headers = {"Content-Type": _ARROW, "Accept": accept}
        body = arrow_stream_bytes(Block(rows, names=names))
        return self._service.send("POST", path, params=query, content=body, headers=headers).content

    def _parse_targets(self, y: Any, n_rows: int, kind_for_new_stream: str) -> Targets:
        """Convert targets y to the stream's kind of targets.

        If the stream has no kind yet, the kind is `kind_for_new_stream`. If `kind_for_new_stream`
        is "auto", the values of y decide. Values that could have two kinds then raise an error.

        n_rows: number of rows.
        """
        # The stream's kind of targets never changes, so request it from the service only once.
        if self._known_target_kind is None:
            self._known_target_kind = self.stream()["target_kind"]
        stream_kind = self._known_target_kind
        targets = parse_targets(y, n_rows, KINDS, kind_for_new_stream, stream_kind)
        if stream_kind is None and kind_for_new_stream == "auto":
            check_targets_unambiguous(y, targets)
        return targets


def model_path(name: str) -> str:
    """Return the path of a model's routes, such as /models/lda.

    Raises InvalidParameter if the name cannot be part of a path.
    """
    return f"/models/{_quoted_url_segment('model', name)}"


def _quoted_url_segment(object_noun: str, name: str) -> str:
    """Return a name, quoted as a segment of a URL.

    object_noun: kind of the named object, such as "model", for the error message.

    Raises InvalidParameter if the name cannot be a segment of a path.
    """
    if not isinstance(name, str) or name in ("", ".", "..") or not is_valid_unicode(name):
        raise errors.InvalidParameter(f"no {object_noun} can be called {name!r}; say which {object_noun}.")
    return quote(name, safe="")
