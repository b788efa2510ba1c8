"""Errors that stream_dr raises for its caller: one class for each cause.

Each class has a stable `code`. All are `ValueError`s. A `NotFitted` that an estimator raises is
also scikit-learn's `NotFittedError`.

A message says what the input was, what was needed and what to do. The service maps `code` to an
HTTP status in one table (`service/problems.py`). The command line prints the code and exits with
status 1.

Why this way: callers match a class or a code, never words, and a code never changes its meaning.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Any, ClassVar, TypeVar

_Error = TypeVar("_Error", bound=BaseException)


_LONGEST = 4_000
"""Maximum number of characters in a message or a detail.

The name of a column, which a message repeats, may be as long as a body.
"""

_LONGEST_NAME = 200
_MOST_COMPARED = 10_000
"""Maximum length and number of names that are compared letter by letter.

More could cost seconds, and clients choose the names they send.
"""


class StreamDRError(ValueError):
    """Base of all errors, raised when no narrower class fits.

    `details` holds machine-readable values, such as the row and the column.
    """

    code: ClassVar[str] = "invalid"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(_shorten(message))
        self.details = {name: _shorten(value) if isinstance(value, str) else value for name, value in details.items()}


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def did_you_mean(wrong: object, names: Iterable[object]) -> str:
    """Return " (did you mean 'age'?)" with the known name closest to a wrong one.

    Letter case is ignored. Returns "" if no name is close. A message puts it before any list that
    is cut off.
    """
    text = str(wrong).casefold()
    folded = {str(name).casefold(): name for name in names}
    if len(text) > _LONGEST_NAME:
        return ""
    near = [text] if text in folded else get_close_matches(text, list(islice(folded, _MOST_COMPARED)), n=1)
    return f" (did you mean {folded[near[0]]!r}?)" if near else ""


def without_frames(error: _Error) -> _Error:
    """Return the error without the frames that raised it and its causes.

    The frames hold the rows they worked on. Use it for an error that is stored or passed to
    another thread: the frames of a context manager refer to the error itself, so only the garbage
    collector would free them.
    """
    current: BaseException | None = error
    seen = set[int]()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        current.__traceback__ = None
        current = current.__cause__ or current.__context__
    return error


class FewerComponents(UserWarning):
    """Issued once a fit if there are fewer components than `n_components`.

    The message says how many there are and why.
    """


class OtherColumns(UserWarning):
    """Issued if a table lacks columns that the first rows had, or has others."""


class NarrowKernel(UserWarning):
    """Issued if the gamma of random_fourier makes nearly all rows dissimilar.

    Rows of the first batch are compared. The message names a better gamma.
    """


class OnlyDiagonal(UserWarning):
    """Issued if a table may become too wide to store the whole scatter.

    Then only its diagonal is stored.
    """


class Uncalibrated(UserWarning):
    """Issued when probabilities come from the diagonal of the scatter alone.

    They rank the classes, but their size means nothing.
    """


class InvalidParameter(StreamDRError):
    """Raised for an unknown parameter, or a value outside its range.

    The parameter belongs to an estimator or to a request.
    """

    code = "invalid_parameter"


def unknown_parameter(who: str, names: Iterable[str], known: Iterable[str]) -> InvalidParameter | None:
    """Return the error for the first unknown name, or None.

    who: subject of the message, which has the parameters `known`.
    """
    for name in names:
        if name not in known:
            meant = did_you_mean(name, known)
            return InvalidParameter(f"{who} has no parameter {name!r}{meant}; it has {', '.join(known) or 'none'}.")
    return None


class UnknownEstimator(StreamDRError):
    """Raised when a registry key names no estimator."""

    code = "unknown_estimator"


class UnknownModel(StreamDRError):
    """Raised when a directory has no model of that name."""

    code = "unknown_model"


class ModelExists(StreamDRError):
    """Raised when a model of that name exists with another spec."""

    code = "model_exists"


class ModelFailed(StreamDRError):
    """Raised when a model stopped at an event it could not apply."""

    code = "model_failed"


class InvalidRows(StreamDRError):
    """Raised when rows are not a 2-D numeric array, sparse matrix or table."""

    code = "invalid_rows"


class NotNumeric(InvalidRows, TypeError):
    """Raised when rows hold things that are not numbers.

    It is a TypeError too, because scikit-learn's checks of estimators expect one.
    """

    code = "invalid_rows"


class WidthMismatch(StreamDRError):
    """Raised when a batch has another number of features than the model or stream.

    Also raised if it has other columns.
    """

    code = "width_mismatch"


def width_mismatch(width: int, known: int) -> WidthMismatch:
    """Return the error for a batch of another width than the accumulator's."""
    return WidthMismatch(
        f"batch has {width} features; this model was started with {known}. Send those columns or start a new model."
    )


class NotFinite(StreamDRError):
    """Raised when a value is NaN, infinite or beyond 1e100 in size.

    The message names row and column.
    """

    code = "not_finite"


class InvalidIndex(StreamDRError):
    """Raised when a sparse index is out of range or repeated within its row."""

    code = "invalid_index"


class InvalidTargets(StreamDRError):
    """Raised when targets cannot be read.

    Also raised if their number differs from the number of rows.
    """

    code = "invalid_targets"


class TargetsRequired(StreamDRError):
    """Raised when a supervised estimator receives no targets."""

    code = "targets_required"


class TargetKindMismatch(StreamDRError):
    """Raised when targets are of another kind than the model or stream takes.

    Kinds are class, multilabel and continuous.
    """

    code = "target_kind_mismatch"


class InvalidWeights(StreamDRError):
    """Raised when weights are invalid.

    They are negative, not finite, of the wrong length, or not allowed for this stream or model.
    """

    code = "invalid_weights"


class EmptyInput(StreamDRError):
    """Raised when `fit` receives no rows or no features."""

    code = "empty_input"


class TooManyFeatures(StreamDRError):
    """Raised when rows are too wide for an exact scatter matrix."""

    code = "too_many_features"


class LimitExceeded(StreamDRError):
    """Raised when a batch or a state would exceed a limit.

    Limits are of features, labels and bytes.
    """

    code = "limit_exceeded"


class CannotMerge(StreamDRError):
    """Raised when two states cannot be merged.

    They differ in spec or width, or the estimator's state is sequential.
    """

    code = "cannot_merge"


class CannotUnlearn(StreamDRError):
    """Raised when more would be removed than was learned.

    Also raised if the estimator cannot remove rows.
    """

    code = "cannot_unlearn"


class PrecisionLost(CannotUnlearn):
    """Raised when unlearning rows would leave too few correct digits.

    The rows are much larger than those that would remain. Learn the remaining rows from scratch.
    """

    code = "precision_lost"


class CannotPredict(StreamDRError):
    """Raised when a model cannot predict.

    Its method has no rule for targets, or it has learned none.
    """

    code = "cannot_predict"


class CannotRefine(StreamDRError):
    """Raised when refine is impossible.

    The estimator has no out-of-core solution, or the source has other rows than the state learned.
    """

    code = "cannot_refine"


class NotFitted(StreamDRError):
    """Raised when a projection is asked for before any row was learned."""

    code = "model_empty"


class CatchingUp(NotFitted):
    """Raised when a model has published no projection yet.

    It will, once it has learned and solved what the log holds.
    """

    code = "catching_up"


class NeedsRefine(NotFitted):
    """Raised when a method needs refine to give an answer.

    Only the diagonal of the scatter is stored, and the method cannot solve from it.
    """

    code = "needs_refine"


class MalformedInput(StreamDRError):
    """Raised when bytes are not in the declared format.

    The format may be that of a request (Arrow, JSON, gzip, zstd) or of a file.
    """

    code = "malformed_input"


class SchemaMismatch(StreamDRError):
    """Raised when a batch's columns are not a known layout, or not the stream's.

    The message names the column.
    """

    code = "schema_mismatch"


def columns_mismatch(known: tuple[str, ...], names: tuple[str, ...]) -> SchemaMismatch:
    """Return the error for rows that have none of a table's columns.

    names: the rows' column names. Those of an array are x0, x1 …
    """
    way = "Send those"
    if names == tuple(f"x{i}" for i in range(len(names))):
        way = "An array's columns have no names of their own: send a frame, or objects, with those"
    return SchemaMismatch(
        f"batch has none of the table's columns {list(known[:5])}; it has {list(names[:5])}"
        f"{did_you_mean(names[0], known)}. {way}, or start a new model.",
        column=known[0],
    )


class DamagedShard(StreamDRError):
    """Raised when a shard cannot be read to its end, or its checksum differs."""

    code = "damaged_shard"


class ForeignFile(StreamDRError):
    """Raised when a file was not written by stream_dr."""

    code = "foreign_file"


class UnknownFormat(StreamDRError):
    """Raised when a file was written in another format version."""

    code = "unknown_format"


class DamagedFile(StreamDRError):
    """Raised when a file is damaged.

    Its checksum differs, or its arrays do not fit each other. The message names the array.
    """

    code = "damaged_file"


class DirectoryInUse(StreamDRError):
    """Raised when another process writes to the directory, or has written to it.

    Also raised if the directory was moved. The message names the process id.
    """

    code = "directory_in_use"


class DirectoryMissing(StreamDRError):
    """Raised when a directory holds no stream_dr log."""

    code = "directory_missing"


class KeyConflict(StreamDRError):
    """Raised when an idempotency key comes again with another body."""

    code = "key_conflict"


class HistoryGone(StreamDRError):
    """Raised when events before the retained part of the log are needed."""

    code = "history_gone"


class InsufficientStorage(StreamDRError):
    """Raised when the disk takes no more.

    It has too little room, is over quota or refuses writes. See `min_free_bytes`.
    """

    code = "insufficient_storage"


class SourceMissing(StreamDRError):
    """Raised when a shard, file or data set cannot be found or fetched."""

    code = "source_missing"


class Overloaded(StreamDRError):
    """Raised when waiting bodies, or events not applied yet, are at their limit.

    Try again later.
    """

    code = "overloaded"


class ShuttingDown(StreamDRError):
    """Raised when a batch or job comes while the engine is stopping.

    Send it again after the restart.
    """

    code = "shutting_down"


class UnknownJob(StreamDRError):
    """Raised when no job has that id."""

    code = "unknown_job"


class RemoteError(StreamDRError):
    """Raised when a service refuses for a reason of its own, or does not answer.

    The reason may be access, size or media type. Raised by Client. `details` has the status and
    the service's code, if it answered.
    """

    code = "remote_error"


class UnknownVersion(StreamDRError):
    """Raised when a projection's version was never published or was dropped."""

    code = "unknown_version"


class OutputExists(StreamDRError):
    """Raised when files would be written where others of the same kind are already."""

    code = "output_exists"


class ClusterError(StreamDRError):
    """Raised when a Dask cluster does not answer, or cannot do what is asked.

    The message says which worker and why.
    """

    code = "cluster"
