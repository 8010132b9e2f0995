"""One run of a configuration: its input, its outputs, and how it is carried out."""

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
from streamdr.core.row_outputs import EMBEDDING, ROW_OUTPUTS, RowOutput
from streamdr.data import Source, open_source, require_exists
from streamdr.data.examples import datasets, synthetic
from streamdr.data.snapshot import Snapshot, unlabelled
from streamdr.errors import ConfigError, DataError, OverlapError, ParameterError, StoreError
from streamdr.store import Backend, Fence, OutputKind, open_backend
from streamdr.workflow.staleness import OpenedInput, State

LEDGER = ".streamdr-ledger"


@dataclass(frozen=True)
class RunContext:
    """What a stage needs besides its configuration."""

    run: Run
    progress: Progress
    stop: threading.Event
    fresh: bool = False
    """Whether to forget what earlier runs remembered."""
    replace: bool = False
    """Whether outputs that streamdr wrote are replaced when they are not what the configuration asks for."""
    ledger: Location | None = None
    """Where passes are remembered, when the configuration does not say."""

    @cached_property
    def model(self) -> Backend:
        """Where the model goes."""
        return open_backend(self.run.output.model)

    @property
    def embedding(self) -> Backend:
        """Where the embedding goes."""
        if self.run.output.embedding is None:
            raise ConfigError(
                f"{self.run.source_file or 'config'}: output.embedding: is not set, so there is nothing to "
                "transform to; give it a path"
            )
        return self.rows[EMBEDDING]

    @cached_property
    def rows(self) -> dict[RowOutput, Backend]:
        """Where what is asked for of rows goes: the embedding, if there is to be one, and the rest."""
        given = self.run.output.rows
        return {kind: open_backend(given[kind.name]) for kind in ROW_OUTPUTS if kind.name in given}

    @property
    def outputs(self) -> list[Backend]:
        """The model, and what is asked for of rows."""
        return [self.model, *self.rows.values()]

    @property
    def ledger_location(self) -> Location:
        """Where the ledger is: beside the model, shared by all models there, unless it is given."""
        given = self.run.execution.ledger
        return parse_location(given) if given else self.ledger or self.model.place.with_name(LEDGER)

    def execution(self) -> Execution:
        """The configured execution."""
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
        """What the configuration asks for, of the input opened now: to be fitted, or mapped by a model."""
        source = self.open() if model is None else self._opened_to_map(model)
        return OpenedInput(self.run, source, source.snapshot)

    def reuse_input(self, source: Source, snapshot: Snapshot) -> OpenedInput:
        """The same of an input that is open, with its labels if it has any, and was looked at already."""
        if isinstance(self.run.method, Supervised):
            return OpenedInput(self.run, source, lambda: snapshot)
        return OpenedInput(self.run, source.unlabelled(), lambda: unlabelled(snapshot))

    def open(self) -> Source:
        """The configured source, made on the spot where it is synthetic; with labels if they are of use."""
        return self._opened(labelled=isinstance(self.run.method, Supervised))

    def _opened_to_map(self, model: Model) -> Source:
        """The source as rows to be mapped. What only a fit needs comes along if it belongs to these rows.

        The rows may be others than those of the fit: weights and labels are then those of the fit, and the
        column of the labels may not be there.
        """
        given, rows = self.run.input, self._rows()
        labelled = isinstance(self.run.method, Supervised)
        if given.label_column is not None and rows.spec.n_cols != model.n_features:
            rows = open_source(rows, label_column=given.label_column)
        with suppress(DataError):
            rows = open_source(rows, weights=given.weights)
        with suppress(DataError):
            rows = open_source(rows, labels=given.labels if labelled else None)
        return rows if labelled else rows.unlabelled()

    def open_labelled(self) -> Source:
        """The configured source with its labels, if it has any, whatever the method makes of them."""
        return self._opened(labelled=True)

    def _opened(self, *, labelled: bool) -> Source:
        given = self.run.input
        source = open_source(
            self._rows(),
            weights=given.weights,
            labels=given.labels if labelled else None,
            label_column=given.label_column,
        )
        if given.labels is not None:  # even where they are of no use
            require_exists(parse_location(given.labels), "labels")
        return source if labelled else source.unlabelled()

    def _rows(self) -> Source:
        """The input by itself, without what stands beside it."""
        given = self.run.input
        if given.synthetic is not None:
            synthetic.ensure(Path(given.path), given.synthetic, progress=self.progress)
        if given.example is not None:
            datasets.ensure(Path(given.path), given.example)
        return open_source(
            given.path,
            array=given.array,
            sample_axis=given.sample_axis,
            mask=given.mask,
            missing_value=given.missing_value,
            allow_missing_chunks=given.allow_missing_chunks,
        )

    def may_replace(self, state: State) -> bool:
        """Whether what is there may go: it was made by the same recipe, or somebody said so."""
        return state.ours or self.replace or self.run.output.overwrite

    def check_output(self, target: Backend, kind: OutputKind, state: State) -> None:
        """Refuse, before anything is read, an output that could not or should not be written."""
        given = self.run.input
        inputs = (given.path, given.weights, given.labels, given.mask)
        try:
            target.check_output(
                kind=kind,
                inputs=[parse_location(path) for path in inputs if path is not None],
                overwrite=self.may_replace(state),
                other_outputs=[output.place for output in self.outputs if output.place != target.place],
            )
        except OverlapError as error:  # which the file can be blamed for, not what there is on the disk
            raise ParameterError(kind, str(error)) from error

    @contextmanager
    def leased(self, targets: Sequence[Backend]) -> Iterator[Fence]:
        """Be the one run that writes these outputs, and sweep up what killed runs left beside them."""
        with store.leased(targets, stop=self.stop, say=self.progress.message) as lease:
            yield lease.check
            for target in targets:
                target.sweep()

    def tidy(self, targets: Sequence[Backend]) -> None:
        """Sweep up after runs that were killed when these outputs were complete and all but released."""
        with suppress(OSError, StoreError):  # what cannot be removed does no harm
            if abandoned := [target for target in targets if store.is_abandoned(target)]:
                with self.leased(abandoned):
                    pass


P = ParamSpec("P")
R = TypeVar("R")


def add_error_positions(
    act: Callable[Concatenate[RunContext, P], R],
) -> Callable[Concatenate[RunContext, P], R]:
    """Let what is said of a parameter, once the data is known, begin with where it stands in the file."""

    @wraps(act)
    def acting(context: RunContext, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return act(context, *args, **kwargs)
        except ParameterError as error:
            if error.located:
                raise
            problem = context.run.problem(error)
            raise type(error)(error.parameter, str(problem), located=True) from error

    return acting


@contextmanager
def naming(source: Source) -> Iterator[None]:
    """Put the input's name before what a method, which never learns where data is from, says of the data."""
    try:
        yield
    except DataError as error:
        if isinstance(error, ParameterError) or str(error).startswith(source.names):
            raise
        raise DataError(f"{source.name}: {error}") from error
