"""Decides which outputs of a run are up to date, and for the others what has changed, like a build tool."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from streamdr.config import Run
from streamdr.core.addresses import parse_location
from streamdr.core.axes import FeatureAxes
from streamdr.core.digests import array_digest, json_digest
from streamdr.core.function_digest import UnidentifiedError
from streamdr.core.mapping import mapping_digest
from streamdr.core.row_outputs import RowOutput
from streamdr.data import Source
from streamdr.data.same_features import require_grid_of_model
from streamdr.data.snapshot import Snapshot
from streamdr.errors import DataError, StoreError
from streamdr.methods.chain import Chain
from streamdr.store import Backend, SavedModel
from streamdr.workflow.changed_files import changed_file, recorded_files
from streamdr.workflow.recipes import (
    SELECTION,
    WEIGHTS,
    changes,
    recorded_parameters,
    recorded_selection,
    steps_of,
)

_LABELLED_KEYS = (
    *(
        "columns",
        "variable",
        "sample_dims",
        "select",
        "balance_variables",
        WEIGHTS,
        "min_observed",
        "order_by",
    ),
)
_FRESH = "a fresh start was requested"


@dataclass(frozen=True)
class OpenedInput:
    """The opened input of a run, with one snapshot of it, and the method to apply."""

    run: Run
    source: Source
    take_snapshot: Callable[[], Snapshot]
    """Takes the snapshot, or returns the one that was taken already."""
    narrow: Callable[[Source, Snapshot], Source]
    """Returns the features of a source that the method will see, given a snapshot of the source."""

    @cached_property
    def snapshot(self) -> Snapshot:
        """The snapshot of the input. It lists all chunks, so it is taken once, when it is first needed."""
        return self.take_snapshot()

    @cached_property
    def features(self) -> Source:
        """The source as the method will see it: features that are never observed are left out."""
        return self.source if self.source.axes is None else self.narrow(self.source, self.snapshot)

    @cached_property
    def fingerprint(self) -> str:
        """The digest of the whole input at the time of the snapshot."""
        return self.snapshot.digest(self.source.spec.n_rows)

    @property
    def recipe(self) -> dict[str, Any]:
        """The method, its parameters and the name of the input, as plain values for the record."""
        given = self.run.input
        return {
            "method": self.run.method.name,
            "parameters": recorded_parameters(self.run.method),
            **recorded_selection(self.run.row_selection),
            "input": {
                "path": self.source.name,
                "sample_axis": given.sample_axis,
                **_label_source(self.source, given.label_column),
                "weights": None if self.source.weights is None else self.source.weights.name,
                "mask": None if given.mask is None else str(parse_location(given.mask)),
                "missing_value": given.missing_value,
                "allow_missing_chunks": given.allow_missing_chunks,
                **self._labelled,
            },
        }

    @property
    def _labelled(self) -> dict[str, Any]:
        """What the configuration says of labelled axes. Without it, a recipe is that of earlier versions."""
        given = asdict(self.run.input)
        said = {name: given[name] for name in _LABELLED_KEYS if given[name] not in (None, False)}
        axes = self.source.axes
        if axes is not None and axes.weights is not None:
            said[WEIGHTS] = array_digest(axes.weights)
        return cast(dict[str, Any], json.loads(json.dumps(said)))

    @property
    def request(self) -> str:
        """A digest of the recipe and of the input."""
        return json_digest([self.recipe, self.fingerprint])

    def up_to(self, step: str | None) -> OpenedInput:
        """Return the same for a run that ends with a step of the chain. None is the last one."""
        method = self.run.method
        if step is None or not isinstance(method, Chain):
            return self
        run = replace(self.run, method=method.up_to(step))
        return replace(self, run=run, take_snapshot=lambda: self.snapshot)

    def facts(self) -> dict[str, Any]:
        """Return what is recorded with an output, from which the next run determines what has changed."""
        spec = self.source.spec
        whole = self.source.complete_rows
        return {
            "request": self.request,
            "recipe": self.recipe,
            "dtype": str(spec.dtype),
            "n_rows": spec.n_rows,
            "n_cols": spec.n_cols,
            "whole_chunks": {"rows": whole, "digest": self.snapshot.digest(whole)},
            **recorded_files(self.source, self.snapshot),
        }


@dataclass(frozen=True)
class State:
    """Whether an output is up to date, and why."""

    fresh: bool
    reason: str
    ours: bool = False
    """Whether the existing output has the same recipe. Then it may be replaced without `overwrite`."""
    unchanged_rows: int = 0
    """The number of rows, from the first, that are unchanged in the input since the output was written."""


@dataclass(frozen=True)
class ModelState(State):
    """The state of a model, and the model if it is fresh."""

    saved: SavedModel | None = None
    start: Any = None
    """The saved model, if rows were appended since: an iterative fit may start from it."""
    start_axes: FeatureAxes | None = None
    """The axes of its features."""
    earlier: SavedModel | None = None
    """The saved model, if it has another recipe or input. Some of its steps may still be as asked."""


def model_state(opened: OpenedInput, output: Backend, *, fresh: bool = False) -> ModelState:
    """Return the state of the saved model. An input that shrank or changed its type is refused.

    With a `fresh` start nothing is up to date, and any input is accepted.
    """
    try:
        saved = output.load_model()
    except StoreError as error:
        return ModelState(False, _unusable(output, error))
    facts = _facts(saved.record["extra"])
    if fresh:
        return ModelState(False, _FRESH, ours=facts.get("recipe") == opened.recipe)
    recipe = facts.get("recipe")
    # Another recipe makes another request. Comparing recipes first saves the snapshot of the input.
    if _as_text(recipe) == _as_text(opened.recipe) and facts["request"] == opened.request:
        if moved := _grid_change(opened.source, saved.axes):
            return ModelState(False, moved, ours=True)
        return ModelState(True, "it was fitted to this input with these parameters", ours=True, saved=saved)
    if recipe != opened.recipe:
        return ModelState(False, changes(recipe, opened.recipe, opened.run.method), earlier=saved)
    _require_comparable(facts, opened, str(output))
    start = saved.model if _unchanged_rows(facts, opened.snapshot, opened.source) else None
    return ModelState(
        False, _input_change(facts, opened), ours=True, start=start, start_axes=saved.axes, earlier=saved
    )


def _grid_change(source: Source, axes: FeatureAxes | None) -> str | None:
    """Return, in words, how coordinates of the features have changed, though the values have not."""
    try:
        require_grid_of_model(source, axes)
    except DataError as error:
        return f"coordinates of the input have changed ({error})"
    return None


def rows_state(
    opened: OpenedInput, kind: RowOutput, output: Backend, model: SavedModel | None, *, fresh: bool = False
) -> State:
    """Return the state of an output of rows, for the saved model or for one that has to be fitted."""
    try:
        record = output.read_group(kind.name).record
    except StoreError as error:
        return State(False, _unusable(output, error))
    facts = _facts(record.get("made_from"))
    ours = facts.get("recipe") == opened.recipe
    try:
        array = output.open_rows(kind.name)
    except StoreError as error:
        # A kill may leave entries of an AnnData store without each other: the same run puts that right.
        return State(False, _unusable(output, error), ours and output.publishes_entries)
    dtype = np.dtype(opened.run.output.dtype) if opened.run.output.dtype else None
    if kind.dtype is not None:  # it may be the type of the labels of the model
        dtype = None if model is None else kind.of(model.model).dtype
    if fresh:
        return State(False, _FRESH, ours)
    if dtype is not None and dtype != array.dtype:
        return State(False, f"its type is {array.dtype}, and {dtype} is configured", ours)
    if ours and facts.get("request") != opened.request:
        rows = _unchanged_rows(facts, opened.snapshot, opened.source) if not output.publishes_entries else 0
        fits = model is None or math.prod(array.shape[1:]) == kind.of(model.model, model.axes).n_outputs
        return State(False, _input_change(facts, opened), True, rows if fits else 0)
    if model is None:
        return State(False, "the model is stale", ours)
    if record.get("model_digest") != model_digest(kind, model):
        return State(False, "the model has changed since", ours)
    return State(True, "it was made from this input by this model", ours=True)


def model_digest(kind: RowOutput, saved: SavedModel) -> str:
    """Return the digest of what makes an output: the saved model, or for a step how it maps rows."""
    if kind.step is not None:
        with suppress(UnidentifiedError):
            return mapping_digest(kind.maker(saved.model))
    digest: str = saved.record["digest"]
    return digest


def recorded_recipe(saved: SavedModel) -> Any:
    """Return the recipe of a saved model."""
    return _facts(saved.record["extra"]).get("recipe")


def same_rows(opened: OpenedInput, saved: SavedModel) -> bool:
    """Return whether a model was fitted to the same rows, read in the same way."""
    recipe = recorded_recipe(saved)
    if not isinstance(recipe, Mapping) or saved.input_fingerprint != opened.fingerprint:
        return False
    return all(_as_text(recipe.get(key)) == _as_text(opened.recipe.get(key)) for key in ("input", SELECTION))


def maker_of(kind: RowOutput, opened: OpenedInput, model: ModelState) -> SavedModel | None:
    """Return the saved model, if a run will make the output by it, or by one that is equal up to the step.

    A fit to the same input repeats the steps before the first one that has changed.
    """
    if model.fresh or kind.step is None or model.earlier is None:
        return model.saved
    wanted = opened.up_to(kind.step).recipe["parameters"].get("steps")
    same = list(steps_of(recorded_recipe(model.earlier))[: len(wanted)]) == wanted
    return model.earlier if same and same_rows(opened, model.earlier) else None


def _unusable(output: Backend, error: StoreError) -> str:
    """Return why an output that cannot be read is stale."""
    return f"the existing one cannot be used ({error})" if output.exists() else "it does not exist yet"


def _as_text(values: Any) -> str:
    """Return plain values as text, which is the same after they were recorded and read back, even for NaN."""
    return json.dumps(values, sort_keys=True)


def _facts(recorded: Any) -> Mapping[str, Any]:
    """Return what `OpenedInput.facts` recorded with an output, or nothing if the record is not valid."""
    whole = recorded.get("whole_chunks") if isinstance(recorded, Mapping) else None
    valid = isinstance(whole, Mapping) and (
        all(type(recorded.get(name)) is int for name in ("n_rows", "n_cols"))
        and all(isinstance(recorded.get(name), str) for name in ("request", "dtype"))
        and type(whole.get("rows")) is int
        and whole["rows"] >= 0
        and isinstance(whole.get("digest"), str)
    )
    return recorded if valid else {}


def _require_comparable(facts: Mapping[str, Any], opened: OpenedInput, output: str) -> None:
    """Refuse an input that has fewer rows, another type or other columns than in an earlier run."""
    source, spec = opened.source, opened.source.spec
    advice = f"restore it, or run with --fresh to replace {output}"
    if spec.n_rows < facts["n_rows"]:
        raise DataError(
            f"{source.name}: has {spec.n_rows:,} rows where it had {facts['n_rows']:,} when {output} was "
            f"made{_in_brackets(opened, facts)}: an input may grow, not shrink; {advice}"
        )
    for key, what, now in (("dtype", "type", str(spec.dtype)), ("n_cols", "number of features", spec.n_cols)):
        if facts[key] != now:
            raise DataError(
                f"{source.name}: its {what} is {now}, and was {facts[key]} when {output} was made; {advice}"
            )


def _unchanged_rows(facts: Mapping[str, Any], snapshot: Snapshot, source: Source) -> int:
    """Return the number of rows, in whole chunks from the first, that are unchanged since an output."""
    rows: int = facts["whole_chunks"]["rows"]
    same = rows <= source.spec.n_rows and snapshot.digest(rows) == facts["whole_chunks"]["digest"]
    return rows if same else 0


def _input_change(facts: Mapping[str, Any], opened: OpenedInput) -> str:
    """Return, in words, how the input has changed since an output was made."""
    added = opened.source.spec.n_rows - facts["n_rows"]
    rows = facts["whole_chunks"]["rows"]
    if rows and not _unchanged_rows(facts, opened.snapshot, opened.source):
        return f"earlier rows of the input have changed{_in_brackets(opened, facts)}"
    return f"{added:,} rows were appended to the input" if added else "the input has changed"


def _in_brackets(opened: OpenedInput, facts: Mapping[str, Any]) -> str:
    """Return which of several files has changed, if that is known."""
    change = changed_file(facts, opened.source, opened.snapshot)
    return "" if change is None else f" ({change})"


def _label_source(source: Source, column: int | str | None) -> dict[str, Any]:
    """Return where the labels come from. Without labels there is no key, as in earlier versions."""
    if column is not None:
        return {"label_column": column}
    return {} if source.labels is None else {"labels": source.labels.name}
