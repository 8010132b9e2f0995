"""The context of a run: its configuration, its input, its outputs, and how it is executed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from streamdr import store
from streamdr.config import Run
from streamdr.core.addresses import Location, parse_location
from streamdr.core.execution import Execution
from streamdr.core.method import Model, Supervised
from streamdr.core.progress import Progress
from streamdr.core.row_outputs import EMBEDDING, ROW_OUTPUTS, RowOutput, of_step
from streamdr.data import Source, expand, open_source, require_exists
from streamdr.data.examples import datasets, synthetic
from streamdr.data.file_formats import within_hdf5
from streamdr.data.snapshot import Snapshot, unlabelled
from streamdr.engine.narrowing import narrowed
from streamdr.errors import ConfigError, DataError, OverlapError, ParameterError, StoreError
from streamdr.store import Backend, Fence, OutputKind, open_backend
from streamdr.workflow.annotated import KIND, anndata_output
from streamdr.workflow.staleness import OpenedInput, State

LEDGER = ".streamdr-ledger"


@dataclass(frozen=True)
class RunContext:
    """A configuration, and what a stage needs besides it."""

    run: Run
    progress: Progress
    stop: threading.Event
    fresh: bool = False
    """Whether to ignore checkpoints and outputs of earlier runs."""
    replace: bool = False
    """Whether outputs that streamdr wrote are replaced if they have another recipe."""
    ledger: Location | None = None
    """The ledger, if the configuration does not set one."""

    @cached_property
    def model(self) -> Backend:
        """The backend of the model."""
        return open_backend(self.run.output.model)

    @property
    def embedding(self) -> Backend:
        """The backend of the embedding."""
        if self.run.output.embedding is None:
            raise ConfigError(
                f"{self.run.source_file or 'config'}: output.embedding: is not set, so there is nothing to "
                "write; give it a path"
            )
        return self.rows[EMBEDDING]

    @cached_property
    def rows(self) -> dict[RowOutput, Backend]:
        """The backends of the outputs of rows: of the embedding, if there is one, and of the others."""
        given = self.run.output.rows
        kinds = [*ROW_OUTPUTS, *map(of_step, self.run.output.steps or {})]
        return {
            kind: anndata_output(self.run) if kind.name == KIND else open_backend(given[kind.key])
            for kind in kinds
            if kind.key in given
        }

    @property
    def outputs(self) -> list[Backend]:
        """The backends of the model and of the outputs of rows."""
        return [self.model, *self.rows.values()]

    @property
    def ledger_location(self) -> Location:
        """The location of the ledger. By default it is beside the model, and all models there share it."""
        given = self.run.execution.ledger
        return parse_location(given) if given else self.ledger or self.model.place.with_name(LEDGER)

    def execution(self) -> Execution:
        """Return the configured execution."""
        given = self.run.execution
        return Execution(
            workers=given.workers,
            memory_limit=given.memory_limit,
            scheduler=given.scheduler,
            ledger=self.ledger_location,
            checkpoint_seconds=given.checkpoint_seconds,
            cluster=given.cluster,
            tls=given.tls,
            insecure=given.insecure,
        )

    def open_input(self, model: Model | None = None) -> OpenedInput:
        """Open the input for a fit, or to be mapped by `model`."""
        source = self.open() if model is None else self._open_to_map(model)
        return self._opened(source, source.snapshot)

    def reuse_input(self, source: Source, snapshot: Snapshot) -> OpenedInput:
        """Return the same for a source that is open, with its labels if it has any, and its snapshot."""
        if isinstance(self.run.method, Supervised):
            return self._opened(source, lambda: snapshot)
        return self._opened(source.unlabelled(), lambda: unlabelled(snapshot))

    def _opened(self, source: Source, take_snapshot: Callable[[], Snapshot]) -> OpenedInput:
        def narrow(opened: Source, seen: Snapshot) -> Source:  # called after the outputs are checked
            return narrowed(self.run.method, opened, self.execution(), fresh=self.fresh, seen=seen)

        return OpenedInput(self.run, source, take_snapshot, narrow)

    def open(self) -> Source:
        """Open the configured source, with labels if the method uses them. Synthetic data is made first."""
        return self._open(labelled=isinstance(self.run.method, Supervised))

    def _open_to_map(self, model: Model) -> Source:
        """Open the source as rows to be mapped, with weights and labels if they belong to these rows.

        The rows may be others than those of the fit. Then weights and labels belong to the fit only, and the
        column of the labels may be missing.
        """
        given, rows = self.run.input, self._rows()
        labelled = isinstance(self.run.method, Supervised)
        column = given.label_column
        if column is not None and (
            rows.spec.n_cols != model.n_features or rows.column_beside(column) is not None
        ):
            rows = open_source(rows, label_column=column)
        with suppress(DataError):
            rows = open_source(rows, weights=given.weights)
        with suppress(DataError):
            rows = open_source(rows, labels=given.labels if labelled else None)
        rows = self._selected(rows)
        return rows if labelled else rows.unlabelled()

    def open_labelled(self) -> Source:
        """Open the configured source with its labels, if it has any, even if the method does not use them."""
        return self._open(labelled=True)

    def _open(self, *, labelled: bool) -> Source:
        given = self.run.input
        source = open_source(
            self._rows(),
            weights=given.weights,
            labels=given.labels if labelled else None,
            label_column=given.label_column,
        )
        if given.labels is not None:  # a missing array is an error even if the method does not use labels
            place = parse_location(given.labels)
            if within_hdf5(place) is None:
                require_exists(place, "labels")
        source = self._selected(source)
        return source if labelled else source.unlabelled()

    def _selected(self, source: Source) -> Source:
        """Return the rows of a source that the configuration selects: all, if it selects none."""
        selection = self.run.row_selection
        if selection is None:
            return source
        return open_source(source, where=selection.where, row_mask=selection.mask)

    def _rows(self) -> Source:
        """Open the input without weights and labels."""
        given = self.run.input
        if given.synthetic is not None:
            synthetic.ensure(Path(given.paths[0]), given.synthetic, progress=self.progress)
        if given.example is not None:
            datasets.ensure(Path(given.paths[0]), given.example)
        return open_source(
            given.path,
            array=given.array,
            columns=given.read_columns,
            sample_axis=given.sample_axis,
            variable=given.variable,
            sample_dims=given.sample_dims,
            select=given.select,
            balance_variables=given.balance_variables,
            feature_weights=given.feature_weights,
            min_observed=given.min_observed,
            order_by=given.order_by,
            mask=given.mask,
            missing_value=given.missing_value,
            allow_missing_chunks=given.allow_missing_chunks,
        )

    def may_replace(self, state: State) -> bool:
        """Whether an existing output may be replaced: it has the same recipe, or replacing was requested."""
        return state.ours or self.replace or self.run.output.overwrite

    def check_output(self, target: Backend, kind: OutputKind, state: State, key: str = "model") -> None:
        """Refuse an output that cannot or may not be written, before anything is read. `key` names it."""
        given, selection = self.run.input, self.run.row_selection
        beside = (given.weights, given.labels, given.mask, None if selection is None else selection.mask)
        try:
            target.check_output(
                kind=kind,
                inputs=[*expand(given.path), *(parse_location(path) for path in beside if path is not None)],
                overwrite=self.may_replace(state),
                other_outputs=[output.place for output in self.outputs if output.place != target.place],
            )
        except OverlapError as error:  # the configuration is wrong, not the store
            raise ParameterError(key, str(error)) from error

    @contextmanager
    def leased(self, targets: Sequence[Backend]) -> Iterator[Fence]:
        """Hold the lease on these outputs, and remove the remains of killed runs at the end."""
        with store.leased(targets, stop=self.stop, say=self.progress.message) as lease:
            yield lease.check
            for target in targets:
                target.sweep()

    def tidy(self, targets: Sequence[Backend]) -> None:
        """Remove the remains of runs that were killed after these outputs were complete."""
        with suppress(OSError, StoreError):  # remains do no harm
            if abandoned := [target for target in targets if store.is_abandoned(target)]:
                with self.leased(abandoned):
                    pass


P = ParamSpec("P")
R = TypeVar("R")


def add_error_positions(
    stage: Callable[Concatenate[RunContext, P], R],
) -> Callable[Concatenate[RunContext, P], R]:
    """Decorate a stage: errors of a parameter that depend on the data start with its line in the file."""

    @wraps(stage)
    def located(context: RunContext, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return stage(context, *args, **kwargs)
        except ParameterError as error:
            if error.located:
                raise
            problem = context.run.problem(error)
            raise type(error)(error.parameter, str(problem), located=True) from error

    return located


@contextmanager
def naming(source: Source) -> Iterator[None]:
    """Add the name of the input to errors of a method, which does not know the name."""
    try:
        yield
    except DataError as error:
        if isinstance(error, ParameterError) or str(error).startswith(source.names):
            raise
        raise DataError(f"{source.name}: {error}") from error
