"""Mulan: ARFF files, dense and sparse, with labels.

MULAN's XML names the labels, or one attribute is the class. Numeric attributes, and nominal ones
whose values are numbers, are features. Labels' attributes are 0 or 1, or hold the class. Sparse
rows are `{index value, …}` with indices from 0, over features and labels together. Missing values
(`?`) are refused with their line. Memory: one group of rows. Dense rows give dense blocks with
names, sparse ones CSR.

Why this way: the file is read in one pass, in its order, and nothing depends on later lines.
"""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.datasets.readers.labels import LabelFields
from stream_dr.datasets.readers.lines import BLOCK_ROWS, LONGEST, Lines, read_lines
from stream_dr.disk import FileName
from stream_dr.errors import MalformedInput, SchemaMismatch, SourceMissing, did_you_mean
from stream_dr.rows.block import Block
from stream_dr.targets.targets import Targets

_ATTRIBUTE = re.compile(r"""@attribute\s+(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|(\S+))\s+(.*)""", re.IGNORECASE)


class Header(NamedTuple):
    """An ARFF header: attribute names, their types as written, and the number of the line after @data."""

    names: list[str]
    types: list[str]
    first_line: int


def label_names(xml: FileName) -> list[str]:
    """The labels MULAN's XML names, in its order, nested ones too. Raises SourceMissing or MalformedInput."""
    if not Path(xml).is_file():
        raise SourceMissing(f"there is no file {xml}; give MULAN's XML of label names.")
    try:
        tree = ElementTree.parse(xml)
    except ElementTree.ParseError as e:
        raise MalformedInput(f"{xml} is not XML ({e}).", file=str(xml)) from e
    names = [str(e.get("name")) for e in tree.iter() if e.tag.rpartition("}")[2] == "label"]
    if not names:
        raise MalformedInput(f"{xml} names no label; it needs <label name=…> elements.", file=str(xml))
    return names


def read_arff(
    path: FileName, *, labels: Any = None, label: str | None = None, rows: int = BLOCK_ROWS
) -> Iterator[Block]:
    """Blocks of dense or sparse float64 rows.

    labels: MULAN's XML, or a list of attribute names: label sets. label: one attribute that holds the class. Neither: rows
    without targets. Raises SourceMissing, SchemaMismatch (an attribute is not there), MalformedInput with file and line.
    """
    header = read_header(path)
    names = label_names(labels) if isinstance(labels, str | Path) else list(labels or [])
    chosen = names or ([label] if label is not None else [])
    for name in chosen:
        if name not in header.names:
            meant = did_you_mean(name, header.names)
            there = f"{header.names[:5]} … {header.names[-5:]}"
            raise SchemaMismatch(f"{path} has no attribute {name!r}{meant}; it has {there}.")
    columns = np.array([header.names.index(name) for name in chosen], dtype=np.int64)
    layout = _Layout(header, columns, names, LabelFields() if label is not None else None)
    rows = max(1, min(rows, LONGEST // (8 * max(1, len(chosen)))))  # a row has a word for every label
    for lines in read_lines(path, rows, comment=b"%", first_line=header.first_line):
        sparse = np.all(lines.data[lines.starts] == ord("{"))
        yield layout.sparse(lines) if sparse else layout.dense(lines)


def read_header(path: FileName) -> Header:
    """The header of an ARFF file. Raises MalformedInput."""
    names: list[str] = []
    types: list[str] = []
    for lines in read_lines(path, 1, comment=b"%"):
        text = lines.text(0).strip()
        if text.lower() == "@data":
            return Header(names, types, int(lines.numbers[0]) + 1)
        if not text.lower().startswith("@attribute"):
            continue
        match = _ATTRIBUTE.match(text)
        if match is None:
            lines.fail(0, "an attribute needs a name and a type.")
        names.append(next(g for g in match.groups()[:3] if g is not None).replace("\\", ""))
        types.append(match.group(4).strip())
    raise MalformedInput(f"{path} has no @data line; is it an ARFF file?", file=str(path))


class _Layout:
    """Turns groups of lines into Blocks. columns: the label attributes. fields: parser of the one class attribute."""

    def __init__(self, header: Header, columns: np.ndarray, names: list[str], fields: LabelFields | None) -> None:
        self._header, self._columns, self._names, self._fields = header, columns, tuple(names), fields
        self._features = np.setdiff1d(np.arange(len(header.names)), columns)
        self._place = np.full(len(header.names), -1)
        self._place[self._features] = np.arange(len(self._features))

    def dense(self, lines: Lines) -> Block:
        table = np.empty((lines.rows, len(self._features)))
        words: list[list[str]] = []
        for i in range(lines.rows):
            fields = lines.text(i).split(",")
            if len(fields) != len(self._header.names):
                lines.fail(i, f"{len(fields)} values where the header has {len(self._header.names)} attributes.")
            words.append([fields[c] for c in self._columns])
            table[i] = [self._float(lines, i, fields[c], int(c)) for c in self._features]
        names = tuple(self._header.names[c] for c in self._features)
        return Block(table, self._targets(lines, words), names=names)

    def sparse(self, lines: Lines) -> Block:
        indices: list[int] = []
        values: list[float] = []
        indptr = [0]
        words: list[list[str]] = []
        for i in range(lines.rows):
            row = self._pairs(lines, i)
            words.append([row.pop(int(c), "0") for c in self._columns])
            places = sorted(row)
            indices.extend(self._place[places].tolist())
            values.extend(self._float(lines, i, row[c], c) for c in places)
            indptr.append(len(indices))
        shape = (lines.rows, len(self._features))
        X = sp.csr_matrix((np.array(values), np.array(indices, np.int32), np.array(indptr, np.int32)), shape=shape)
        return Block(X, self._targets(lines, words))

    def _pairs(self, lines: Lines, i: int) -> dict[int, str]:
        row: dict[int, str] = {}
        for pair in lines.text(i).strip().strip("{}").split(","):
            if not pair.strip():
                continue
            index, _, value = pair.strip().partition(" ")
            if not index.isdecimal() or not value or int(index) >= len(self._header.names) or int(index) in row:
                lines.fail(
                    i, f"{pair.strip()!r} is not `index value` of one of {len(self._header.names)} attributes, once."
                )
            row[int(index)] = value.strip()
        return row

    def _float(self, lines: Lines, i: int, text: str, column: int) -> float:
        try:
            value = float(text.strip().strip("'\""))
        except ValueError:
            value = np.nan
        if not np.isfinite(value):
            name, kind = self._header.names[column], self._header.types[column]
            lines.fail(i, f"{text.strip()!r} of attribute {name!r} ({kind[:40]}) is not a finite number.")
        return value

    def _targets(self, lines: Lines, words: list[list[str]]) -> Targets | None:
        words = [[w.strip().strip("'\"") for w in row] for row in words]
        if self._fields is not None:
            return self._fields.parse([row[0] for row in words], lines.fail)
        if not self._names:
            return None
        for i, row in enumerate(words):
            for word in row:
                if word not in ("0", "1", "0.0", "1.0"):
                    lines.fail(i, f"{word!r} of a label is neither 0 nor 1.")
        Y = np.array([[word[0] == "1" for word in row] for row in words])
        indptr = np.concatenate(([0], np.cumsum(np.count_nonzero(Y, axis=1)))).astype(np.int64)
        return Targets("multilabel", self._names, np.nonzero(Y)[1].astype(np.int32), indptr)
