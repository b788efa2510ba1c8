"""PartStore: files with partial results, so that an interrupted replay can be continued.

A partial result is what one task, or a merge of tasks, has learned. The files are in a folder or
under a URI. The name of a file is a key that depends on the shards, the specs and the releases of
stream_dr and numpy (task_plan.py). So a replay in which one of these differs finds no file.

All files of a replay are removed once the directory has learned the batches. The inputs of a merge
stay until then, because they are needed again if the worker with the merged result is lost.

Cost: each result is written once, and read when the replay is continued. The files take the bytes
of two states for each task, which is at most half of the shards' bytes (task_plan.py).
"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from pyarrow import fs

from stream_dr.aliases import JsonDict
from stream_dr.arrow.codec import arrow_from_block, block_from_arrow, read_arrow, write_arrow
from stream_dr.distributed.parts import PartialResult, ProgressCallback
from stream_dr.distributed.task_plan import TaskPlan
from stream_dr.errors import DamagedFile, StreamDRError
from stream_dr.models.entry import Spec
from stream_dr.models.saved import estimator_of
from stream_dr.models.snapshot_file import Arrays, arrays_under, damaged_contents, file_bytes, packed, read_bytes
from stream_dr.rows.block import Block
from stream_dr.shards.uri import filesystem, write_whole
from stream_dr.statistics.protocol import unpack
from stream_dr.targets.label_codes import Label, distinct_within
from stream_dr.targets.targets import Targets

SUFFIX = ".part"

# A partial result has a few rows of each batch, which may lack some labels and columns.
# So all labels and the number of columns of the batch are stored as metadata.
LABELS = b"stream_dr.labels"
"""Metadata key of all labels of a batch, as a JSON list."""

WIDTH = b"stream_dr.width"
"""Metadata key of a batch's number of columns."""


class PartStore:
    """Files of partial results, by key.

    uri: folder or URI of the files.

    A PartStore can be pickled.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri if "://" in uri else str(Path(uri).absolute())
        # Raises an error for a wrong URI.
        filesystem(self.uri)

    def keys(self) -> frozenset[str]:
        """Return the keys of the stored results."""
        system, folder = filesystem(self.uri)
        files = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        return frozenset(f.base_name.removesuffix(SUFFIX) for f in files if f.base_name.endswith(SUFFIX))

    def read(self, key: str, specs: Sequence[Spec]) -> PartialResult | None:
        """Return the stored result of a key.

        specs: specs of the models that the result is of.

        Returns None if the file is missing or damaged, or is of other specs.
        """
        system, path = self._store_path(key)
        try:
            with system.open_input_file(path) as file:
                arrays, header = read_bytes(file.read())
            with damaged_contents(path):
                return _result_of_file(arrays, header, specs)
        except (FileNotFoundError, StreamDRError):
            return None

    def write(self, key: str, result: PartialResult) -> None:
        """Store a result, unless the result is a refusal (has an error)."""
        if result.refusal is not None:
            return

        arrays: Arrays = {}
        header: JsonDict = {}
        for number, state in enumerate(result.states):
            state_arrays, description = packed(f"{number}", state)
            arrays |= state_arrays
            header |= description

        outlines = [_outline_bytes(outline) for outline in result.outlines]
        arrays["outlines"] = np.frombuffer(b"".join(outlines), dtype=np.uint8)
        header |= {"kind": "part", "outlines": [len(outline) for outline in outlines]}
        write_whole(self.uri, f"{key}{SUFFIX}", file_bytes(arrays, header))

    def require(self, key: str, specs: Sequence[Spec]) -> PartialResult:
        """Return the result of a key that must be stored.

        specs: specs of the models that the result is of.

        If the file is damaged or missing, removes the file and raises DamagedFile.
        """
        result = self.read(key, specs)
        if result is None:
            self.remove([key])
            raise DamagedFile(f"{key}{SUFFIX} in {self.uri} was damaged, and is removed; give the command again.")
        return result

    def remove(self, keys: Iterable[str]) -> None:
        """Remove the files of these keys. Keys without a file are ignored."""
        stored = self.keys()
        for key in set(keys) & stored:
            system, path = self._store_path(key)
            system.delete_file(path)

    def _store_path(self, key: str) -> tuple[fs.FileSystem, str]:
        system, folder = filesystem(self.uri)
        return system, f"{folder}/{key}{SUFFIX}"


def _result_of_file(arrays: Arrays, header: JsonDict, specs: Sequence[Spec]) -> PartialResult:
    """Return the partial result that a file's arrays and header hold.

    specs: specs of the models that the result is of.

    Raises DamagedFile. A wrong header may raise any other error, such as KeyError.
    """
    estimators = [estimator_of(spec) for spec in specs]
    states = [unpack(e.state_type, arrays_under(f"{n}", arrays), header[f"{n}"]) for n, e in enumerate(estimators)]
    for estimator, state in zip(estimators, states, strict=True):
        # This call raises an error if the state is of another spec.
        estimator.accumulator(state)

    ends = np.cumsum(header["outlines"]).tolist()
    outlines = arrays["outlines"].tobytes()
    pieces = (outlines[a:b] for a, b in zip([0, *ends], ends, strict=False))
    return PartialResult(tuple(states), tuple(_outline_block(piece) for piece in pieces))


def load_or_compute(
    store: PartStore | None, key: str, specs: Sequence[Spec], compute: Callable[[], PartialResult]
) -> PartialResult:
    """Return the stored result of a key, or compute and store the result.

    store: files of results. None to compute without reading or storing.
    specs: specs of the models that the result is of.
    """
    stored = None if store is None else store.read(key, specs)
    if stored is not None:
        return stored

    result = compute()
    if store is not None:
        store.write(key, result)
    return result


PlanRunner = Callable[[TaskPlan, ProgressCallback, PartStore | None], Sequence[PartialResult]]
"""Function that runs a task plan.

Its arguments are the plan, a function that receives each batch before the batch is learned, and a
store of results or None. Results in the store are not computed again.

The function returns the merged result of all tasks, if the plan has models whose states merge, and
then one result for each of the plan's other models.
"""


def _outline_bytes(outline: Block) -> bytes:
    """Return a batch's outline (a few of its rows) as an Arrow stream."""
    batch = arrow_from_block(outline)
    metadata = {WIDTH: str(outline.features)}
    if isinstance(outline.y, Targets):
        metadata[LABELS] = json.dumps(outline.y.labels)
    return bytes(write_arrow([batch.replace_schema_metadata({**(batch.schema.metadata or {}), **metadata})]))


def _outline_block(content: bytes) -> Block:
    """Return the outline (a few rows of a batch) in an Arrow stream."""
    batches = read_arrow(content)
    metadata = batches[0].schema.metadata
    block = block_from_arrow(batches)
    if block.sparse and block.features != int(metadata[WIDTH]):
        block.X.resize(block.rows, int(metadata[WIDTH]))
    if LABELS in metadata:
        block = block._replace(y=_reencode(block.y, tuple(json.loads(metadata[LABELS]))))
    return block


def _reencode(targets: Targets, labels: tuple[Label, ...]) -> Targets:
    """Return the targets with codes that index `labels`.

    labels: all labels of the batch. They include the labels of `targets`.
    """
    if targets.values is not None:
        return targets

    new_code = {label: code for code, label in enumerate(labels)}
    # Code −1 means that a row has no label. It indexes the last entry of the table.
    table = np.array([*(new_code[label] for label in targets.labels), -1], dtype=np.int32)
    codes = table[targets.codes]
    indptr = targets.indptr
    if indptr is not None:
        codes, indptr = distinct_within(codes, indptr)
    return targets._replace(labels=labels, codes=codes, indptr=indptr)
