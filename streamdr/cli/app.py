"""The commands. Each imports what it needs when it runs, so that `--help` is fast."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from streamdr.cli import console
from streamdr.cli.plot_kinds import PLOT_KINDS
from streamdr.core.safe_text import keep_keys_secret
from streamdr.workflow import report_text

if TYPE_CHECKING:
    from streamdr.cli.supervisor import Channel
    from streamdr.config import Run
    from streamdr.data.ingest import IngestReport
    from streamdr.workflow.findings import ModelInspection, RowsInspection, StoreInspection
    from streamdr.workflow.pipeline import RunContext
    from streamdr.workflow.reports import (
        CompareReport,
        ExportReport,
        FitPlan,
        PlotReport,
        Report,
        VerifyReport,
    )

R = TypeVar("R", bound="Report")

app = typer.Typer(
    help="Dimensionality reduction for data that does not fit in memory.",
    epilog="Start with: streamdr run configs/quickstart.yaml",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
)
# The base class of what typer raises for an invalid command line, whichever click it bundles.
_UsageError: Any = typer.BadParameter.__base__

Config = Annotated[str, typer.Argument(metavar="CONFIG", help="The configuration, a YAML file.")]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Set a key, as in method.n_components=10. May be repeated."
    ),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Start again: ignore checkpoints and outputs that are up to date.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else, to stdout.")]


# The help option is defined here, because that of typer costs an import of pydantic.
@app.callback(invoke_without_command=True, add_help_option=False)
def top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    show_help: Annotated[bool, typer.Option("--help", "-h", help="Show this message and exit.")] = False,
    traceback: Annotated[bool, typer.Option("--traceback", hidden=True)] = False,
) -> None:
    """Handle the options that belong to no command."""
    if version:
        from streamdr import __version__

        typer.echo(f"streamdr {__version__}")
        raise typer.Exit
    if show_help or context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit
    if traceback:
        os.environ["STREAMDR_TRACEBACK"] = "1"


@app.command()
def run(config: Config, sets: Sets = None, fresh: Fresh = False, as_json: Json = False) -> int:
    """Fit, and transform if outputs of rows are configured. Run again to resume."""
    job = Job([config], sets or [], fresh, as_json)
    return job.run(lambda pipeline, context: pipeline.run_all(context, _show_plan(context)), report_text.ran)


@app.command()
def fit(config: Config, sets: Sets = None, fresh: Fresh = False, as_json: Json = False) -> int:
    """Fit the method, and save the model. Run again to resume."""
    job = Job([config], sets or [], fresh, as_json)
    return job.run(lambda pipeline, context: pipeline.fit(context, _show_plan(context)), report_text.fitted)


@app.command()
def transform(config: Config, sets: Sets = None, fresh: Fresh = False, as_json: Json = False) -> int:
    """Write the embedding and other outputs of rows with the saved model. Run again to resume."""
    job = Job([config], sets or [], fresh, as_json)
    return job.run(lambda pipeline, context: pipeline.transform(context), report_text.transformed, fits=False)


@app.command()
def reprocess(
    configs: Annotated[
        list[str], typer.Argument(metavar="CONFIG...", help="Configurations, or folders of them.")
    ],
    sets: Sets = None,
    as_json: Json = False,
) -> int:
    """Bring outputs up to date with configurations that changed.

    Only stale stages run, and data that several configurations need is read once. Outputs that streamdr wrote
    are replaced.
    """
    job = Job(configs, sets or [], fresh=False, as_json=as_json)
    return job.run_all_configurations(
        lambda pipeline, contexts: pipeline.reprocess(contexts), report_text.reprocessed
    )


@app.command()
def compare(
    config: Config,
    sets: Sets = None,
    out: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE",
            help="The table, a .md or .csv file, instead of output.table. May be repeated.",
        ),
    ] = None,
    fresh: Fresh = False,
    as_json: Json = False,
) -> int:
    """Run several methods on one input, and write a table of their costs and measures.

    Methods that are up to date do not run again.
    """

    def work(channel: Channel) -> CompareReport:
        import json

        from streamdr.config import load_comparison
        from streamdr.workflow import comparison

        tables = [f"output.table={json.dumps(out)}"] if out else []
        given = load_comparison(config, [*(sets or []), *tables])
        channel.check()
        return comparison.compare(given, channel, channel.stop, fresh=fresh)

    advice = f"finished work is kept. To resume, run: {console.resume_command()}"
    return console.conduct(work, report_text.compared, as_json=as_json, after_stop=advice)


@app.command()
def verify(config: Config, sets: Sets = None, as_json: Json = False) -> int:
    """Check the outputs against the input.

    Every file is read and compared with its checksum, and a sample of the rows is mapped again.
    """

    def check(pipeline: Any, context: RunContext) -> VerifyReport:
        from streamdr.workflow import verification

        return verification.verify(context)

    job = Job([config], sets or [], fresh=False, as_json=as_json)
    return job.run(check, report_text.verified, fits=False)


@app.command()
def plan(
    config: Config,
    sets: Sets = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Measure the speeds of this machine again. The first plan measures them."
        ),
    ] = False,
    as_json: Json = False,
) -> int:
    """Show which stages are stale, and how and how long they would run, without reading data.

    Times are predicted from the speeds of this machine. They are measured once, in a few seconds, and kept in
    $XDG_CACHE_HOME/streamdr (by default ~/.cache/streamdr).
    """
    job = Job([config], sets or [], fresh=False, as_json=as_json)
    return job.run(lambda pipeline, context: pipeline.plan(context, calibrate=calibrate), report_text.planned)


@app.command()
def inspect(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="A zarr store, a .npy file, a model or an embedding: a path or an address."
        ),
    ],
    as_json: Json = False,
) -> int:
    """Show what a store, a model or an output of rows contains."""

    def work() -> ModelInspection | RowsInspection | StoreInspection:
        from streamdr.core.addresses import parse_location
        from streamdr.workflow import inspection

        return inspection.inspect(parse_location(path))

    return console.conclude(work, report_text.inspected, as_json=as_json)


@app.command()
def plot(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A saved model: a path or an address.")],
    out: Annotated[
        str, typer.Option(metavar="FILE", help="The picture; its suffix is the format: png, pdf, svg, ...")
    ],
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help=f"{', '.join(PLOT_KINDS[:-1])} or {PLOT_KINDS[-1]}; by default one that suits the model.",
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="STORE", help="contours: points to show; by default the landmarks.")
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(metavar="STORE", help="contours, scores: one number per row, shown by colour."),
    ] = None,
    embedding: Annotated[
        str | None, typer.Option(metavar="STORE", help="scores, series: the embedding that the model wrote.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Draw a plot of a model.

    Contours are lines of equal score over two features, in one panel per component. Maps show components over
    the coordinates of the features, and series show scores over time.
    """

    def work(channel: Channel) -> PlotReport:
        from streamdr.core.addresses import local_path, parse_location
        from streamdr.workflow import plotting

        stores = {"data": data, "labels": labels, "embedding": embedding}
        given = {name: parse_location(text) for name, text in stores.items() if text is not None}
        channel.check()
        return plotting.draw(plotting.PlotRequest(parse_location(model), local_path(out), kind, **given))

    advice = f"nothing was written. To start again, run: {console.resume_command()}"
    return console.conduct(work, report_text.plotted, as_json=as_json, after_stop=advice)


@app.command()
def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A saved model: a path or an address.")],
    onnx: Annotated[
        str,
        typer.Option(
            "--onnx", metavar="FILE", help="The file of ONNX. One that was exported before is replaced."
        ),
    ],
    dtype: Annotated[
        str, typer.Option(metavar="TYPE", help="The type of rows and results: float32 or float64.")
    ] = "float32",
    as_json: Json = False,
) -> int:
    """Write a linear model, or a chain of steps and one, for programs without streamdr.

    The input of the graph is X; the output is scores, with labels and probabilities for LDA.
    """

    def work() -> ExportReport:
        from streamdr.core.addresses import local_path, parse_location
        from streamdr.workflow import exporting

        return exporting.export_onnx(parse_location(model), local_path(onnx), dtype)

    return console.conclude(work, report_text.exported, as_json=as_json)


@app.command()
def schema(
    of_comparisons: Annotated[
        bool, typer.Option("--comparison", help="The schema of the configurations of `streamdr compare`.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Print the JSON Schema of configurations.

    Editors use it to complete and check configurations.
    """
    import json

    def work() -> Schema:
        from streamdr import config

        return Schema(config.comparison_schema() if of_comparisons else config.schema())

    def render(schema: Schema) -> str:
        return json.dumps(schema.document, indent=2)

    return console.conclude(work, render, as_json=as_json)


@dataclass(frozen=True)
class Schema:
    """A JSON Schema, as the report of a command."""

    document: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the schema itself."""
        return self.document


class Shell(StrEnum):
    """A shell that has completion."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


@app.command()
def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> int:
    """Print a script that completes commands and options.

    In bash: streamdr completion bash > ~/.local/share/bash-completion/completions/streamdr
    """
    from streamdr.cli import completion

    commands = completion.commands_of(typer.main.get_command(app))
    typer.echo(completion.script(shell.value, commands), nl=False)
    return 0


@app.command()
def ingest(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A .npy, CSV, Parquet or HDF5 file, or a directory of Parquet files."
        ),
    ],
    dest: Annotated[str, typer.Argument(metavar="DEST.zarr", help="The store to make; its array is X.")],
    dataset: Annotated[str | None, typer.Option(help="HDF5: the dataset, where there are several.")] = None,
    columns: Annotated[
        str | None, typer.Option(help="CSV, Parquet: the columns to keep, as in a,b,c.")
    ] = None,
    exclude: Annotated[
        str | None, typer.Option(help="CSV, Parquet: the columns to leave out, as in name,id_*.")
    ] = None,
    numeric_only: Annotated[
        bool, typer.Option("--numeric-only", help="CSV, Parquet: leave out columns that are not numbers.")
    ] = False,
    labels: Annotated[
        str | None,
        typer.Option(
            help="CSV, Parquet: the column of labels, text or numbers; it becomes the array labels."
        ),
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="The type to store, such as float32.")] = None,
    chunk_rows: Annotated[
        int | None, typer.Option(help="Rows per chunk; by default as many as make 16 MB.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="CSV: the character between fields.")] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="CSV: whether the first line has the names.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what was ingested before.")] = False,
    append: Annotated[
        bool, typer.Option("--append", help="Add the rows to what was ingested before, all or none of them.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Turn a file into a zarr store, or append its rows to one.

    The store is chunked for streaming. Memory stays bounded, whatever the size of the file.
    """

    def work(channel: Channel) -> IngestReport:
        from streamdr.core.addresses import local_path
        from streamdr.data.ingest import ingest

        return ingest(
            local_path(source),
            local_path(dest),
            dataset=dataset,
            columns=None if columns is None else _names("columns", columns),
            exclude=None if exclude is None else _names("exclude", exclude),
            numeric_only=numeric_only,
            labels=labels,
            dtype=dtype,
            chunk_rows=chunk_rows,
            delimiter=delimiter,
            header=header,
            overwrite=overwrite,
            append=append,
            progress=channel,
        )

    advice = f"nothing was written. To start again, run: {console.resume_command()}"
    return console.conduct(work, report_text.ingested, as_json=as_json, after_stop=advice)


@dataclass(frozen=True)
class Job:
    """A command that runs one or several configurations."""

    configs: list[str]
    sets: list[str]
    fresh: bool
    as_json: bool

    def run(
        self, act: Callable[[Any, RunContext], R], render: Callable[[R], str], *, fits: bool = True
    ) -> int:
        """Run a part of the pipeline, in a worker process that signals can stop."""

        def load() -> list[Run]:
            from streamdr import config

            return [config.load(self.configs[0], self.sets, fits=fits)]

        return self._run(load, lambda pipeline, contexts: act(pipeline, contexts[0]), render)

    def run_all_configurations(
        self, act: Callable[[Any, list[RunContext]], R], render: Callable[[R], str]
    ) -> int:
        """Run it for all configurations. Those in a folder are taken in the order of their names."""

        def load() -> list[Run]:
            from streamdr import config

            return config.load_all(self.configs, self.sets)

        return self._run(load, act, render)

    def _run(
        self,
        load: Callable[[], list[Run]],
        act: Callable[[Any, list[RunContext]], R],
        render: Callable[[R], str],
    ) -> int:
        def work(channel: Channel) -> R:
            from streamdr.workflow import pipeline

            runs = load()
            channel.check()
            return act(
                pipeline, [pipeline.RunContext(run, channel, channel.stop, self.fresh) for run in runs]
            )

        advice = f"finished work is kept. To resume, run: {console.resume_command()}"
        return console.conduct(work, render, as_json=self.as_json, after_stop=advice)


def _names(option: str, text: str) -> list[str]:
    """Return the names in a,b,c. A name that contains a comma is quoted."""
    import csv

    from streamdr.errors import ConfigError

    try:
        return next(csv.reader([text]))
    except csv.Error as error:
        raise ConfigError(f"--{option}: {text!r} is not a list of names such as a,b,c ({error})") from None


def _show_plan(context: RunContext) -> Callable[[FitPlan], None]:
    """Return a function that shows the plan of a fit, line by line."""

    def show(plan: FitPlan) -> None:
        for line in report_text.plan(plan).split("\n"):
            context.progress.message(line)

    return show


def _prepare_process() -> None:
    """Set streams, warnings and secrets for the whole process, before any work starts."""
    console.open_missing_streams()
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # warnings of libraries are for programmers
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a file name may be any bytes
    for word in sys.argv[1:]:
        for value in (word, word.partition("=")[2]):
            keep_keys_secret(value)


def main() -> None:
    """Run the command line, and exit."""
    _prepare_process()
    try:
        code = app(prog_name="streamdr", standalone_mode=False)
    except _UsageError as error:
        help_command = f"{error.ctx.command_path} --help" if error.ctx else "streamdr --help"
        message = f"{console.without_secrets(error.format_message())} See `{help_command}`."
        code = console.fail("UsageError", message, 2, as_json="--json" in sys.argv)
    except (typer.Abort, KeyboardInterrupt):  # Ctrl-C in a short command, which needs no checkpoint
        code = 130
    except SystemExit as ended:
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        code = 0  # the reader of the help closed the pipe, which is not a failure
    except Exception as error:
        code = console.fail_with(error, as_json="--json" in sys.argv)
    sys.exit(code)
