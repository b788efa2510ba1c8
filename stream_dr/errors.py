"""Errors that stream_dr raises, one class for each cause.

Each class has a stable `code`. All are `ValueError`s. A `NotFitted` that an estimator raises is
also scikit-learn's `NotFittedError`.

A message says what the input was, what was needed and what to do. The service maps `code` to an
HTTP status in one table (`service/problems.py`). The command line prints the code and exits with
status 1.

Why this way: callers can test for a class or a code and never need the words of a message. A code
never changes its meaning.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Any, ClassVar, TypeVar

_Error = TypeVar("_Error", bound=BaseException)


_MAX_MESSAGE_CHARS = 4_000
"""Maximum number of characters in a message or a detail.

A message may repeat the name of a column, which may be as long as a request's body.
"""

_MAX_COMPARED_CHARS = 200
"""Maximum length of a name that `did_you_mean` compares with other names.

Comparing a longer name could take seconds, and clients choose the names that they send.
"""

_MAX_COMPARED_NAMES = 10_000
"""Maximum number of known names that `did_you_mean` compares with a wrong name."""


class StreamDRError(ValueError):
    """Base class of all errors.

    The class itself is raised if no subclass fits.

    `details` holds machine-readable values, such as the row and the column.
    """

    code: ClassVar[str] = "invalid"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(_cut_long_text(message))
        self.details = {
            name: _cut_long_text(value) if isinstance(value, str) else value for name, value in details.items()
        }


def _cut_long_text(text: str) -> str:
    """Cut a text after `_MAX_MESSAGE_CHARS` characters."""
    return text if len(text) <= _MAX_MESSAGE_CHARS else f"{text[:_MAX_MESSAGE_CHARS]} …"


def did_you_mean(unknown_name: object, known_names: Iterable[object]) -> str:
    """Return a suggestion such as " (did you mean 'age'?)".

    The suggestion is the known name that is closest to a wrong name. Letter case is ignored.
    Returns "" if no name is close.

    unknown_name: the wrong name.
    known_names: the known names.

    An error's message is cut off after 4,000 characters. So put the result before a list of names
    that may be long.
    """
    text = str(unknown_name).casefold()
    folded = {str(name).casefold(): name for name in known_names}
    if len(text) > _MAX_COMPARED_CHARS:
        return ""
    near = [text] if text in folded else get_close_matches(text, list(islice(folded, _MAX_COMPARED_NAMES)), n=1)
    return f" (did you mean {folded[near[0]]!r}?)" if near else ""


def remove_stack_frames(error: _Error) -> _Error:
    """Remove the stack frames from an error and its causes.

    Returns the error.

    Use this function for an error that is stored or passed to another thread.
    """
    # Stack frames refer to the rows of the functions that failed, and so hold the rows in memory.
    # The frames of a context manager also refer to the error itself.
    # Only the garbage collector would free the cycle of error and frames.
    current: BaseException | None = error
    seen = set[int]()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        current.__traceback__ = None
        current = current.__cause__ or current.__context__
    return error


class FewerComponents(UserWarning):
    """Issued if a fit gives fewer components than `n_components`.

    Issued once after the fit. The message says how many components there are and why.
    """


class ManyLabels(UserWarning):
    """Issued if whole numbers that are read as classes are probably measurements."""


class OtherColumns(UserWarning):
    """Issued if a table's batch has other columns than the first rows."""


class NarrowKernel(UserWarning):
    """Issued if random_fourier's gamma makes nearly all rows dissimilar.

    Rows of the first batch are compared. The message names a better gamma.
    """


class OnlyDiagonal(UserWarning):
    """Issued if only the diagonal of the scatter matrix is stored.

    The cause is a first batch of dense rows with more than 4,096 features, or a table that may
    become as wide. Features are then taken as uncorrelated.
    """


class Uncalibrated(UserWarning):
    """Issued when probabilities rest on a diagonal scatter matrix.

    Only the diagonal of the scatter matrix is stored. The order of the probabilities is
    meaningful, but their size is not.
    """


class InvalidParameter(StreamDRError):
    """Raised for an unknown parameter, or a value outside its range.

    The parameter belongs to an estimator or to a request.
    """

    code = "invalid_parameter"


MISSING_PARAMETER_REASONS = {
    "unlabelled": " Only SKM with a < 1, WMV and GraphWMV learn rows without a label. LDA, OPLS, CCA, MMC, PLSDA and SKM "
    "with a ≥ 1 divide by the scatter of the rows or make it small, and such rows make their answers worse."
}
"""Reason why most estimators lack a parameter that some have, by the parameter's name."""


def error_for_unknown_parameter(
    owner_in_message: str, names_to_check: Iterable[str], known_names: Iterable[str]
) -> InvalidParameter | None:
    """Return the error for the first unknown parameter, or None.

    owner_in_message: object that the names are parameters of, in words. It is the subject of the
        message.
    names_to_check: names to check.
    known_names: names of the parameters that exist.
    """
    for name in names_to_check:
        if name not in known_names:
            meant = did_you_mean(name, known_names)
            why = MISSING_PARAMETER_REASONS.get(name, "")
            return InvalidParameter(
                f"{owner_in_message} has no parameter {name!r}{meant}; it has {', '.join(known_names) or 'none'}.{why}"
            )
    return None


class UnknownEstimator(StreamDRError):
    """Raised when a registry key names no estimator."""

    code = "unknown_estimator"


class UnknownModel(StreamDRError):
    """Raised when a directory has no model of this name."""

    code = "unknown_model"


class ModelExists(StreamDRError):
    """Raised when a model of that name has another spec.

    A spec is the estimator and its parameters.
    """

    code = "model_exists"


class ModelFailed(StreamDRError):
    """Raised when a model could not apply an event and stopped learning."""

    code = "model_failed"


class InvalidRows(StreamDRError):
    """Raised when rows are no array, sparse matrix or table.

    An array must be 2-D and numeric.
    """

    code = "invalid_rows"


class NotNumeric(InvalidRows, TypeError):
    """Raised when rows contain values that are not numbers.

    The error is also a TypeError, because scikit-learn's checks of estimators expect a TypeError.
    """

    code = "invalid_rows"


class WidthMismatch(StreamDRError):
    """Raised when a batch's width differs from the model's or stream's.

    The width is the number of features.
    """

    code = "width_mismatch"


def width_mismatch(new_width: int, old_width: int) -> WidthMismatch:
    """Return the error for a batch of the wrong width.

    new_width: number of features of the batch.
    old_width: number of features of the accumulator.
    """
    return WidthMismatch(
        f"batch has {new_width} features; this model was started with {old_width}. Send those columns or start a new model."
    )


class NotFinite(StreamDRError):
    """Raised when a value is NaN, infinite or too large.

    The largest absolute value is 1e100. The message names row and column.
    """

    code = "not_finite"


class InvalidIndex(StreamDRError):
    """Raised when a sparse index is out of range or repeated.

    A row may have each index only once.
    """

    code = "invalid_index"


class InvalidTargets(StreamDRError):
    """Raised when targets cannot be read.

    Also raised if the number of targets differs from the number of rows.
    """

    code = "invalid_targets"


class TargetsRequired(StreamDRError):
    """Raised when a supervised estimator receives no targets."""

    code = "targets_required"


class TargetKindMismatch(StreamDRError):
    """Raised when targets have another kind than the model or stream accepts.

    Kinds are class, multilabel and continuous.
    """

    code = "target_kind_mismatch"


class InvalidWeights(StreamDRError):
    """Raised when row weights are invalid.

    Weights must be finite, not negative, one for each row, and allowed for this stream or model.
    """

    code = "invalid_weights"


class EmptyInput(StreamDRError):
    """Raised when `fit` receives no rows or no features."""

    code = "empty_input"


class TooManyFeatures(StreamDRError):
    """Raised when rows are too wide for an exact scatter matrix."""

    code = "too_many_features"


class LimitExceeded(StreamDRError):
    """Raised when a batch or state would exceed a limit.

    There are limits on features, labels, lengths of texts, and bytes.
    """

    code = "limit_exceeded"


class CannotMerge(StreamDRError):
    """Raised when two states cannot be merged.

    The states' specs or numbers of features differ, or the estimator updates its state row by row.
    """

    code = "cannot_merge"


class CannotUnlearn(StreamDRError):
    """Raised when more rows would be unlearned than were learned.

    Also raised if the estimator cannot unlearn rows.
    """

    code = "cannot_unlearn"


class PrecisionLost(CannotUnlearn):
    """Raised when unlearning rows would leave too few correct digits.

    The removed rows are much larger than the remaining rows. Learn the remaining rows from
    scratch.
    """

    code = "precision_lost"


class CannotPredict(StreamDRError):
    """Raised when a model cannot predict.

    Its method cannot predict targets, or the model has learned no targets.
    """

    code = "cannot_predict"


class CannotRefine(StreamDRError):
    """Raised when a model cannot be refined.

    A refine is an exact solution by passes over the rows. The method has no refine, or the rows
    passed to refine are not the rows learned.
    """

    code = "cannot_refine"


class NotFitted(StreamDRError):
    """Raised when no row was learned, so no projection exists."""

    code = "model_empty"


class CatchingUp(NotFitted):
    """Raised when a model has not published a projection yet.

    The model will publish a projection when it has learned all events in the log.
    """

    code = "catching_up"


class NeedsRefine(NotFitted):
    """Raised when a method has no solution before a refine.

    A refine solves by passes over the rows. Only the diagonal of the scatter matrix is stored, and
    the method needs the whole matrix.
    """

    code = "needs_refine"


class MalformedInput(StreamDRError):
    """Raised when bytes are not in the declared format.

    The bytes are a request's body (Arrow, JSON, gzip, zstd) or the content of a file.
    """

    code = "malformed_input"


class SchemaMismatch(StreamDRError):
    """Raised when a batch's columns differ from the stream's columns.

    Also raised when the columns are none of the forms of a batch (features, indices and values, or
    one column for each feature). The message names a column.
    """

    code = "schema_mismatch"


def nothing_to_fit_error(estimator_name: str) -> TargetsRequired:
    """Return the error for rows of which none has a target."""
    return TargetsRequired(f"every row's target is absent; {estimator_name} has nothing to fit. Label some rows.")


def no_common_columns_error(known_columns: tuple[str, ...], batch_columns: tuple[str, ...]) -> SchemaMismatch:
    """Return the error for a batch without any table column.

    known_columns: names of the table's columns.
    batch_columns: names of the batch's columns. The columns of an array are named x0, x1 …
    """
    way = "Send those"
    if batch_columns == tuple(f"x{i}" for i in range(len(batch_columns))):
        way = "An array's columns have no names of their own: send a frame, or objects, with those"
    return SchemaMismatch(
        f"batch has none of the table's columns {list(known_columns[:5])}; it has {list(batch_columns[:5])}"
        f"{did_you_mean(batch_columns[0], known_columns)}. {way}, or start a new model.",
        column=known_columns[0],
    )


class DamagedShard(StreamDRError):
    """Raised when a shard cannot be read whole or its checksum differs."""

    code = "damaged_shard"


class ForeignFile(StreamDRError):
    """Raised when a file was not written by stream_dr."""

    code = "foreign_file"


class UnknownFormat(StreamDRError):
    """Raised when a file was written in another format version."""

    code = "unknown_format"


class DamagedFile(StreamDRError):
    """Raised when a file is damaged.

    The file's checksum is wrong, or its arrays do not fit each other. The message names the array.
    """

    code = "damaged_file"


class DirectoryInUse(StreamDRError):
    """Raised when another process has the directory open for writing.

    Also raised when the directory was moved or replaced since this process opened it. The message
    has the process id.
    """

    code = "directory_in_use"


class DirectoryMissing(StreamDRError):
    """Raised when a directory has no log of stream_dr.

    Also raised when the directory was moved or removed since this process opened it.
    """

    code = "directory_missing"


class KeyConflict(StreamDRError):
    """Raised when an idempotency key is repeated with different content."""

    code = "key_conflict"


class HistoryGone(StreamDRError):
    """Raised when retention has removed events that are needed."""

    code = "history_gone"


class InsufficientStorage(StreamDRError):
    """Raised when the disk accepts no more data.

    The disk has too little space, a quota is reached, or the disk refuses to write. The limit
    `min_free_bytes` may also refuse a write.
    """

    code = "insufficient_storage"


class SourceMissing(StreamDRError):
    """Raised when a shard, file or data set is missing.

    The source cannot be found or fetched.
    """

    code = "source_missing"


class Overloaded(StreamDRError):
    """Raised when too many requests or unlearned events wait.

    Try again later.
    """

    code = "overloaded"


class ShuttingDown(StreamDRError):
    """Raised when work arrives while the engine is stopping.

    Send the batch or job again after the restart.
    """

    code = "shutting_down"


class UnknownJob(StreamDRError):
    """Raised when no job has that id."""

    code = "unknown_job"


class RemoteError(StreamDRError):
    """Raised when a service refuses a request or does not answer.

    Only Client raises this error. A service may refuse a request because of its access rights,
    size or media type. If the service answered, `details` has the HTTP status and the code of the
    service's error.
    """

    code = "remote_error"


class UnknownVersion(StreamDRError):
    """Raised when a version was never published or was dropped.

    A version is a published projection of a model.
    """

    code = "unknown_version"


class UnknownRelease(StreamDRError):
    """Raised when a model has no release of that name."""

    code = "unknown_release"


class ReleaseExists(StreamDRError):
    """Raised when a release of that name has another version."""

    code = "release_exists"


class ReleaseServed(StreamDRError):
    """Raised when a release is to be deleted that its model serves, or turns its basis to."""

    code = "release_served"


class OutputExists(StreamDRError):
    """Raised when output would replace existing files or folders."""

    code = "output_exists"


class ClusterError(StreamDRError):
    """Raised when a Dask cluster cannot do what is requested.

    Also raised if the cluster does not answer. The message names the worker and the reason.
    """

    code = "cluster"
