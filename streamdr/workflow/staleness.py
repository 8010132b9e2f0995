"""What of a run's outputs is up to date, and of the rest what has changed: the answers of a build tool."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from streamdr import store
from streamdr.config import Run
from streamdr.core.addresses import parse_location
from streamdr.core.digests import json_digest
from streamdr.core.method import Method
from streamdr.core.row_outputs import RowOutput
from streamdr.data import Source
from streamdr.data.snapshot import Snapshot
from streamdr.errors import DataError, StoreError
from streamdr.store import Backend, SavedModel

_FRESH = "a fresh start was asked for"


@dataclass(frozen=True)
class OpenedInput:
    """What a run asks for: a method with its parameters, on an input as it is when it is looked at."""

    run: Run
    source: Source
    look: Callable[[], Snapshot]
    """How the source is looked at, or was: see `snapshot`."""

    @cached_property
    def snapshot(self) -> Snapshot:
        """The one look at the input, which lists all of it: taken when it is first needed, and kept."""
        return self.look()

    @cached_property
    def fingerprint(self) -> str:
        """What the whole input was then."""
        return self.snapshot.digest(self.source.spec.n_rows)

    @property
    def recipe(self) -> dict[str, Any]:
        """What is done to which input, whatever the input holds. Plain values: it is recorded."""
        given = self.run.input
        return {
            "method": self.run.method.name,
            "parameters": _parameters(self.run.method),
            "input": {
                "path": self.source.name,
                "sample_axis": given.sample_axis,
                **_labelling(self.source, given.label_column),
                "weights": None if self.source.weights is None else self.source.weights.name,
                "mask": None if given.mask is None else str(parse_location(given.mask)),
                "missing_value": given.missing_value,
                "allow_missing_chunks": given.allow_missing_chunks,
            },
        }

    @property
    def request(self) -> str:
        """A digest of the recipe and of all that it is applied to."""
        return json_digest([self.recipe, self.fingerprint])

    def facts(self) -> dict[str, Any]:
        """What is recorded with an output, so that the next run can tell what has changed since."""
        spec = self.source.spec
        whole = spec.n_rows - spec.n_rows % self.source.chunks[0]
        return {
            "request": self.request,
            "recipe": self.recipe,
            "dtype": str(spec.dtype),
            "n_rows": spec.n_rows,
            "n_cols": spec.n_cols,
            "whole_chunks": {"rows": whole, "digest": self.snapshot.digest(whole)},
        }


@dataclass(frozen=True)
class State:
    """Whether an output is what is wanted, and if not, why."""

    fresh: bool
    reason: str
    ours: bool = False
    """Whether what is there was made by the same recipe: then it may be replaced without being asked to."""
    unchanged_rows: int = 0
    """The first so many rows of the input are as they were, and so is what was made of them."""


@dataclass(frozen=True)
class ModelState(State):
    """The state of a model, and the model if it is fresh."""

    saved: SavedModel | None = None
    start: Any = None
    """The model that is there, where rows were appended since: a fit that iterates may go on from it."""


def model_state(opened: OpenedInput, output: Backend, *, fresh: bool = False) -> ModelState:
    """What the model that is there is to a run. An input that shrank or changed its type is refused.

    To a run that makes a `fresh` start nothing is up to date, and any input is as good as another.
    """
    try:
        saved = output.load_model()
    except StoreError as error:
        absent = not output.exists()
        return ModelState(False, "there is none yet" if absent else f"what is there is of no use ({error})")
    facts = _facts(saved.record["extra"])
    if fresh:
        return ModelState(False, _FRESH, ours=facts.get("recipe") == opened.recipe)
    recipe = facts.get("recipe")
    # Another recipe is another request, which can be told without a look at the input.
    if _as_text(recipe) == _as_text(opened.recipe) and facts["request"] == opened.request:
        return ModelState(True, "it was fitted to this input in this way", ours=True, saved=saved)
    if recipe != opened.recipe:
        return ModelState(False, _changes(recipe, opened.recipe, _added(opened.run.method)))
    _require_comparable(facts, opened.source, str(output))
    start = saved.model if _unchanged_rows(facts, opened.snapshot, opened.source) else None
    return ModelState(False, _input_change(facts, opened), ours=True, start=start)


def rows_state(
    opened: OpenedInput, kind: RowOutput, output: Backend, model: SavedModel | None, *, fresh: bool = False
) -> State:
    """What the rows that are there are to a run with this model, or with one that is yet to be fitted."""
    try:
        record = output.read_group(kind.name).record
        array = output.open_rows(kind.name)
    except StoreError as error:
        absent = not output.exists()
        return State(False, "there is none yet" if absent else f"what is there is of no use ({error})")
    dtype = np.dtype(opened.run.output.dtype) if opened.run.output.dtype else None
    if kind.dtype is not None:  # it may be that of the model's labels
        dtype = None if model is None else kind.of(model.model).dtype
    facts = _facts(record.get("made_from"))
    ours = facts.get("recipe") == opened.recipe
    if fresh:
        return State(False, _FRESH, ours)
    if dtype is not None and dtype != array.dtype:
        return State(False, f"its type is {array.dtype} and {dtype} is wanted", ours)
    if ours and facts.get("request") != opened.request:
        rows = _unchanged_rows(facts, opened.snapshot, opened.source)
        fits = model is None or math.prod(array.shape[1:]) == kind.of(model.model).n_outputs
        return State(False, _input_change(facts, opened), True, rows if fits else 0)
    if model is None:
        return State(False, "the model is stale", ours)
    if record.get("model_digest") != model.record["digest"]:
        return State(False, "the model has changed since", ours)
    return State(True, "it was made of this input by this model", ours=True)


def _as_text(values: Any) -> str:
    """Plain values as text, which is the same for values that were recorded and read back, NaN included."""
    return json.dumps(values, sort_keys=True)


def _facts(recorded: Any) -> Mapping[str, Any]:
    """What `OpenedInput.facts` recorded with an output; nothing where that is not what it records."""
    whole = recorded.get("whole_chunks") if isinstance(recorded, Mapping) else None
    sound = isinstance(whole, Mapping) and (
        all(type(recorded.get(name)) is int for name in ("n_rows", "n_cols"))
        and all(isinstance(recorded.get(name), str) for name in ("request", "dtype"))
        and type(whole.get("rows")) is int
        and whole["rows"] >= 0
        and isinstance(whole.get("digest"), str)
    )
    return recorded if sound else {}


def _require_comparable(facts: Mapping[str, Any], source: Source, output: str) -> None:
    """Refuse an input that is not what an earlier run of the same recipe saw, grown or changed."""
    spec = source.spec
    again = f"restore it, or run with --fresh to replace {output} by what it holds now"
    if spec.n_rows < facts["n_rows"]:
        raise DataError(
            f"{source.name}: has {spec.n_rows:,} rows where it had {facts['n_rows']:,} when {output} was "
            f"made: an input may grow, not shrink; {again}"
        )
    for key, what, now in (("dtype", "type", str(spec.dtype)), ("n_cols", "number of features", spec.n_cols)):
        if facts[key] != now:
            raise DataError(
                f"{source.name}: its {what} is {now}, and was {facts[key]} when {output} was made; {again}"
            )


def _unchanged_rows(facts: Mapping[str, Any], snapshot: Snapshot, source: Source) -> int:
    """How many rows, in whole chunks from the first, are as they were when an output was made."""
    rows: int = facts["whole_chunks"]["rows"]
    same = rows <= source.spec.n_rows and snapshot.digest(rows) == facts["whole_chunks"]["digest"]
    return rows if same else 0


def _input_change(facts: Mapping[str, Any], opened: OpenedInput) -> str:
    added = opened.source.spec.n_rows - facts["n_rows"]
    rows = facts["whole_chunks"]["rows"]
    if rows and not _unchanged_rows(facts, opened.snapshot, opened.source):
        return "rows of the input that were there before have changed"
    return f"{added:,} rows were appended to the input" if added else "the input has changed"


def _parameters(method: Method) -> dict[str, Any]:
    """The parameters of a method, without those that earlier versions did not have and did not need."""
    values: dict[str, Any] = store.to_json(asdict(cast(Any, method)))
    added = _added(method)
    return {key: value for key, value in values.items() if key not in added or value != added[key]}


def _added(method: Method) -> Mapping[str, Any]:
    """The parameters that earlier versions did not have, with what stands for what they did."""
    added: Mapping[str, Any] = getattr(method, "added_parameters", {})
    return added


def _labelling(source: Source, column: int | str | None) -> dict[str, Any]:
    """Where labels are from, if there are any: inputs that have none are recorded as ever."""
    if column is not None:
        return {"label_column": column}
    return {} if source.labels is None else {"labels": source.labels.name}


def _changes(old: Any, new: Mapping[str, Any], added: Mapping[str, Any]) -> str:
    """In words, what differs between the recipe of an output and the one that is wanted."""
    if not isinstance(old, Mapping):
        return "what is there was made outside of a run"
    if old.get("method") != new["method"]:
        return f"the method was {old.get('method')} and is {new['method']}"
    for group, what in (("parameters", ""), ("input", "input.")):
        was, now = old.get(group), new[group]
        if not isinstance(was, Mapping):
            break
        for key in [*now, *was]:
            before, after = (given.get(key, added.get(key)) for given in (was, now))
            if before != after:
                return f"{what}{key} was {before} and is {after}"
    return "it was made in another way"
