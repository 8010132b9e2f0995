"""Scores in an AnnData store, as an output of rows like the others.

Rows are staged beside the store like any other output. When all of them are written and checked, they are
copied into the format of the store, beside it, and moved into it: the entries of the model first, the scores
last. The scores carry the record of the run, so whether they are up to date is known as for any output.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np

from streamdr import __version__
from streamdr.core.addresses import Location
from streamdr.core.blocks import Array, Span
from streamdr.core.digests import json_digest
from streamdr.core.row_outputs import RowKind
from streamdr.errors import StoreError
from streamdr.store import ours, publish
from streamdr.store.anndata.contents import (
    KIND,
    AnnDataContents,
    ScoreRows,
    StagedScores,
    digests,
    entries,
)
from streamdr.store.anndata.elements import (
    ARRAY,
    DICT,
    OURS,
    TABLES,
    Names,
    Reader,
    Writer,
    encoding,
    names_as_rows,
    numbered,
    stored_digest,
    write_element,
    write_table,
)
from streamdr.store.anndata.hidden import Hidden, sweep_hidden
from streamdr.store.local import LocalBackend
from streamdr.store.publish import Fence, Staging, resolved
from streamdr.store.record import SCHEMA, Group, OutputKind, from_json, to_json

_NAMES_AT_ONCE = 1 << 16
_NAME_BYTES = 64
"""About the bytes of a name, with its place in HDF5."""
_METADATA_BYTES = 1 << 16
"""About the bytes of attributes, groups and what the format needs."""
_MADE = "annotated"
"""The kind in the root of a store that streamdr has made."""


class AnnDataBackend(LocalBackend):
    """The scores of one method in an AnnData store.

    Parameters
    ----------
    path : Path
        The store.
    scores : str
        Their place in it, such as `obsm/X_pca`.
    expected : sequence of str
        The places of entries of the model, as far as they are known before there is one.
    replaces_foreign : bool
        Whether entries with these names that streamdr did not write are replaced.
    contents : AnnDataContents or None
        What is written besides the scores, when that is known.
    """

    checksum = "sha256"
    publishes_entries = True

    def __init__(
        self,
        path: Path,
        scores: str,
        expected: Sequence[str] = (),
        *,
        replaces_foreign: bool = False,
        contents: AnnDataContents | None = None,
    ) -> None:
        super().__init__(path)
        self.scores = scores
        self._expected = tuple(expected)
        self._replaces_foreign = replaces_foreign
        self._contents = contents

    def holding(self, contents: AnnDataContents) -> Self:
        """Return the same output, with what is written besides the scores."""
        return type(self)(
            self.place,
            self.scores,
            contents.annotations.paths,
            replaces_foreign=self._replaces_foreign,
            contents=contents,
        )

    # What the two formats do differently.

    @abstractmethod
    def reader(self) -> Reader:
        """Open the store for reading. A StoreError if it is not an AnnData store."""

    @abstractmethod
    def is_ours_alone(self, reader: Reader) -> bool:
        """Return whether streamdr has made the store, and nothing was added since."""

    @abstractmethod
    def create(self, hidden: Hidden, write: Callable[[Writer], None], fence: Fence) -> None:
        """Make a new store with what `write` writes, and make it the target in one step."""

    @abstractmethod
    def add(
        self,
        hidden: Hidden,
        paths: Sequence[str],
        columns: Sequence[str],
        write: Callable[[Writer], None],
        fence: Fence,
    ) -> None:
        """Move what `write` writes at these paths into the store, and add columns to the table `var`."""

    # Looking at the output.

    def exists(self) -> bool:
        """Return whether there are scores of this name, by whomever."""
        try:
            if not os.path.lexists(self.place):
                return False
            with closing(self.reader()) as reader:
                return reader.attributes(self.scores) is not None
        except StoreError:
            return True

    def sizes(self) -> dict[str, int]:
        """Return the size of the scores."""
        if not self.exists():
            return {}
        with closing(self.reader()) as reader:
            array = reader.array(self.scores)
            return {} if array is None else {self.scores: int(array.size) * int(array.dtype.itemsize)}

    def draft(self) -> dict[str, Any] | None:
        """Return the record, unverified."""
        try:
            with closing(self.reader()) as reader:
                return _parsed(reader.attributes(self.scores))
        except StoreError:
            return None

    def read_group(self, kind: OutputKind | None = None) -> Group:
        """Return the record of the scores. Refuse scores that streamdr did not write."""
        if not os.path.lexists(self.place):
            raise StoreError(f"{self.place}: no such file or directory; check the path")
        with closing(self.reader()) as reader:
            attributes = reader.attributes(self.scores)
        record = _parsed(attributes)
        if attributes is None or record is None:
            what = "does not exist" if attributes is None else "was not written by streamdr"
            raise StoreError(f"{self}: {self.scores} {what}")
        rest = {key: value for key, value in record.items() if key != "digest"}
        if record.get("digest") != json_digest(rest):
            raise StoreError(f"{self}: the record of {self.scores} was damaged or edited; write it again")
        return Group(self.place, from_json(record), {})

    def open_rows(self, kind: RowKind) -> ScoreRows:  # type: ignore[override]
        """Open the scores for reading, after checking that everything that was written with them exists."""
        record, reader = self.read_group(kind).record, self.reader()
        array = reader.array(self.scores)
        if array is None or tuple(array.shape) != tuple(record.get("shape", ())):
            raise StoreError(f"{self}: {self.scores} has another shape than was written; transform again")
        missing = [path for path in record["entries"] if reader.attributes(path) is None]
        if missing:
            raise StoreError(f"{self}: {missing[0]} was removed; transform again")
        self.require_visible()
        return ScoreRows(array, record["n_rows"], f"{self}: {self.scores}")

    def require_visible(self) -> None:
        """Refuse a store whose consolidated metadata does not have the scores."""

    def open_coordinates(self, kind: RowKind) -> dict[str, Any]:
        """Return the scores and the other entries, which can be compared with their digests."""
        record = self.read_group(kind).record
        known = {**record["entries"], self.scores: record["content"]}
        return {path: _Written(self, path, digest) for path, digest in known.items()}

    # Checks before writing, staging and cleaning up.

    def check_output(
        self,
        *,
        kind: OutputKind,
        inputs: Sequence[Location],
        overwrite: bool,
        other_outputs: Sequence[Location] = (),
    ) -> None:
        """Refuse a target that cannot or must not be written. It may be the input itself."""
        others = [root for root in inputs if not self._is(self.group_around(root))]
        super().check_output(kind=kind, inputs=others, overwrite=overwrite, other_outputs=other_outputs)

    def _is(self, other: Location) -> bool:
        return isinstance(other, Path) and resolved(other) == resolved(self.place)

    def require_writable(self, kind: OutputKind, overwrite: bool) -> None:
        """Refuse a path that cannot be written, or entries that must not be replaced."""
        above = next(above for above in resolved(self.place).parents if above.exists())
        self.require_writable_folders([above, *self.folders()])
        self.require_free(overwrite)

    def folders(self) -> Sequence[Path]:
        """Return the folders in the store that entries are moved into."""
        return ()

    def require_observations(self, contents: AnnDataContents, n_rows: int, names: Iterable[Array]) -> None:
        """Refuse a store that exists and whose observations are not the rows of the input.

        `names` are those of the rows, in pieces; none if rows have no names. What streamdr has made itself
        is replaced, and may have others.
        """
        if not os.path.lexists(self.place):
            return
        with closing(self.reader()) as reader:
            if not self.is_ours_alone(reader):
                self._require_same_names(Names(reader, "obs"), contents, n_rows, names)

    def require_free(self, overwrite: bool) -> None:
        """Refuse to replace entries of others, and scores of another run without `overwrite`."""
        if not os.path.lexists(self.place):
            return
        with closing(self.reader()) as reader:
            found = {path: reader.attributes(path) for path in (*self._expected, self.scores)}
        for path, attributes in found.items():
            if attributes is None or self._replaces_foreign:
                continue
            if OURS not in attributes:
                raise StoreError(
                    f"{self}: {path} exists, and streamdr did not write it; set output.overwrite: true to "
                    "replace it, or choose another store"
                )
            if path == self.scores and not overwrite:
                raise StoreError(
                    f"{self}: {path} exists; {ours.how_to_replace(KIND)} to replace it, or choose another "
                    "store"
                )

    def require_space(self, nbytes: int) -> None:
        """Refuse to write `nbytes`, staged and then in the format of the store, where there is no space."""
        super().require_space(2 * nbytes)

    def stage(
        self, *, kind: OutputKind, overwrite: bool, key: str | None = None, fence: Fence | None = None
    ) -> Staging:
        """Return a staging area beside the store, from which the scores are moved into it."""
        return AnnDataStaging(self, overwrite=overwrite, key=key, fence=fence)

    def sweep(self) -> None:
        """Remove what killed runs left beside the store."""
        publish.sweep(self.place, KIND)
        sweep_hidden(resolved(self.place))

    # Publishing.

    def require_room(self, nbytes: int) -> None:
        """Refuse to write so many bytes, if a disk that becomes full could not be reported otherwise."""

    def publish(self, staged: Path, fence: Fence) -> None:
        """Copy staged scores into the format of the store, and move them and the entries into it."""
        contents = self._contents or AnnDataContents()
        scores = StagedScores(staged, contents)
        with Hidden(resolved(self.place)) as hidden, ExitStack() as opened:
            there = os.path.lexists(self.place)
            self.require_room(_expected_bytes(scores, contents))
            reader = opened.enter_context(closing(self.reader())) if there else None
            if reader is None or self.is_ours_alone(reader):
                self.create(hidden, lambda writer: self._write_store(writer, scores, contents), fence)
                return
            found = Names(reader, "obs")
            names = scores.names()
            self._require_same_names(found, contents, scores.n_rows, () if names is None else names.pieces)
            observations = len(found)
            added = entries(contents, of_variables=_has_variables(reader, contents))
            columns = [path.removeprefix("var/") for path in added if path.startswith("var/")]

            # A table that does not exist yet is moved with its entries.
            missing = {table for table in TABLES if reader.attributes(table) is None}
            tables = [(path, path.split("/")[0]) for path in (*added, self.scores)]
            paths = list(dict.fromkeys(table if table in missing else path for path, table in tables))

            def write(writer: Writer) -> None:
                for table in missing.intersection(paths):
                    writer.group(table, DICT)
                self._write_entries(writer, added)
                self._write_scores(writer, scores, observations, added)

            self.add(hidden, paths, columns, write, fence)

    def _require_same_names(
        self, found: Names, contents: AnnDataContents, n_rows: int, names: Iterable[Array]
    ) -> None:
        """Refuse observations of other names than the rows, in another order, or in another number."""
        row_numbers, start = contents.placement(n_rows, len(found), self), 0
        for piece in names:
            rows = Span(start, start + len(piece))
            numbers = np.arange(rows.start, rows.stop) if row_numbers is None else row_numbers(rows)
            first = int(numbers[0])
            there = np.array(found[first : int(numbers[-1]) + 1])
            differ = np.flatnonzero(there[numbers - first] != piece)
            if len(differ):
                row = int(differ[0])
                raise StoreError(
                    f"{self}: observation {numbers[row]} is {str(there[numbers[row] - first])!r}, and row "
                    f"{start + row} of the input is {str(piece[row])!r}; choose the store of these rows, in "
                    "their order, or a new one"
                )
            start += len(piece)

    def _write_store(self, writer: Writer, scores: StagedScores, contents: AnnDataContents) -> None:
        """Write a whole store without `X`."""
        n_variables = contents.n_variables
        added = entries(contents, of_variables=True)
        columns = [path.removeprefix("var/") for path in added if path.startswith("var/")]
        names = contents.feature_names
        made = {"kind": _MADE, "version": __version__}
        writer.group("", encoding("anndata", "0.1.0") | {OURS: made})
        write_table(writer, "obs", scores.names() or numbered(scores.n_rows, _NAMES_AT_ONCE), ())
        variables = numbered(n_variables, _NAMES_AT_ONCE) if names is None else names_as_rows(names)
        write_table(writer, "var", variables, columns)
        for table in TABLES:
            writer.group(table, DICT)
        self._write_entries(writer, added)
        self._write_scores(writer, scores, scores.n_rows, added)

    def _write_entries(self, writer: Writer, added: Mapping[str, Any]) -> None:
        for path, value in added.items():
            write_element(writer, path, value, {OURS: {"kind": KIND, "version": __version__}})

    def _write_scores(
        self, writer: Writer, scores: StagedScores, observations: int, added: Mapping[str, Any]
    ) -> None:
        """Write the scores, and then their record, which has the digest of what was written."""
        placed = scores.placed(observations, self)
        rows = placed.rows()
        writer.rows(self.scores, rows, ARRAY)
        own = ("schema", "kind", "version", "created", "complete", "digest", "coordinates", "output_names")
        record = {
            "schema": SCHEMA,
            "kind": KIND,
            "version": __version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "complete": True,
            **to_json({key: value for key, value in scores.record.items() if key not in own}),
            "shape": list(rows.shape),
            "content": str(placed.content),
            "entries": digests(added),
        }
        writer.describe(self.scores, {OURS: {**record, "digest": json_digest(record)}})


class AnnDataStaging(Staging):
    """Rows staged beside an AnnData store, and moved into it."""

    def __init__(
        self, backend: AnnDataBackend, *, overwrite: bool, key: str | None, fence: Fence | None
    ) -> None:
        super().__init__(backend.place, kind=KIND, overwrite=overwrite, key=key, fence=fence)
        self._backend = backend

    def _require_replaceable(self, overwrite: bool) -> None:
        self._backend.require_free(overwrite)

    def publish(self) -> None:
        """Move the staged rows into the store, and remove them."""
        self._require_own_staging()
        self._backend.publish(self.path, self._fence or (lambda: None))
        self._published = True
        ours.remove(self.path)


class _Written:
    """An entry of a store, with the digest of what was written."""

    def __init__(self, backend: AnnDataBackend, path: str, digest: str) -> None:
        self._backend, self._path, self._digest = backend, path, digest

    def require_intact(self) -> None:
        """Read everything, and refuse values that are not those that were written."""
        try:
            with closing(self._backend.reader()) as reader:
                found = stored_digest(reader, self._path)
        except (ValueError, OSError, RuntimeError) as error:
            raise StoreError(f"{self._backend}: {self._path}: {error}; transform again") from error
        if found != self._digest:
            raise StoreError(
                f"{self._backend}: the values of {self._path} are not those that were written; "
                "transform again"
            )


def _expected_bytes(scores: StagedScores, contents: AnnDataContents) -> int:
    """Return about how many bytes the scores, the names and the other entries take."""
    known = contents.annotations
    arrays = [*known.varm.values(), *known.var.values()]
    names = _NAME_BYTES * (scores.n_rows + contents.n_variables)
    return scores.nbytes + names + sum(array.nbytes for array in arrays) + _METADATA_BYTES


def require_written(reader: Reader, scores: str, place: object) -> None:
    """Read back what was written, before it is published."""
    record = _parsed(reader.attributes(scores)) or {}
    for path, digest in {**record["entries"], scores: record["content"]}.items():
        if stored_digest(reader, path) != digest:
            raise StoreError(f"{place}: {path} reads back other values than were written; is the disk sound?")


def _parsed(attributes: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the record in attributes, which is text in HDF5."""
    found = None if attributes is None else attributes.get(OURS)
    if isinstance(found, str | bytes):
        try:
            found = json.loads(found)
        except ValueError:
            return None
    return found if isinstance(found, dict) and found.get("kind") == KIND else None


def is_made(reader: Reader) -> bool:
    """Return whether streamdr has made a store."""
    found = (reader.attributes("") or {}).get(OURS)
    if isinstance(found, str):
        found = json.loads(found)
    return isinstance(found, dict) and found.get("kind") == _MADE


def _has_variables(reader: Reader, contents: AnnDataContents) -> bool:
    """Return whether a store has the variables of the input, with the same names if they have some."""
    found, names = Names(reader, "var"), contents.feature_names
    if len(found) != contents.n_variables:
        return False
    return names is None or found[:] == list(map(str, names))
