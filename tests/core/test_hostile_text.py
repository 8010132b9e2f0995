"""Names, labels and records from others are escaped: they control no terminal and add no lines."""

from __future__ import annotations

import io
import json
import os
import pty
import shutil
import subprocess
from contextlib import suppress
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import zarr
from command_line import SCRIPT, streamdr, write_config, write_store

from streamdr.core.progress import Bar, Lines, PassStart
from streamdr.core.safe_text import lines, one_line
from streamdr.errors import ConfigError, DataError, MemoryLimitError, ParameterError
from streamdr.workflow import report_tables, report_text, summary
from streamdr.workflow.reports import ComparedMethod, VerifyReport

HOSTILE = "a\x1b]0;title\x07\x1b[2J\r\nINJECTED: all is well\n\x9b31m\u202egnp.\u2028\u200bz"
"""Sets the title, clears the screen, begins lines, reverses the writing direction, and hides characters."""
CSV_ROW = "1,2\n3,4\n"


def harmless(text):
    return all(line.isprintable() and not line.startswith("INJECTED") for line in text.split("\n"))


@pytest.mark.parametrize(
    "letter", [*map(chr, [*range(32), *range(127, 160), 0x2028, 0x2029, 0x202E, 0x200B, 0xFEFF])]
)
def test_every_control_is_escaped(letter):
    shown = one_line(f"a{letter}b")
    assert shown.isprintable()
    assert shown.encode("ascii").decode("unicode_escape") == f"a{letter}b"
    assert lines(f"a{letter}b") == (f"a{letter}b" if letter == "\n" else shown)


def test_plain_text_is_unchanged_and_undecodable_bytes_are_escaped():
    assert one_line("Größe 東京 █ a\\nb") == "Größe 東京 █ a\\nb"
    assert one_line(os.fsdecode(b"a\xffb")) == r"a\udcffb"


@pytest.mark.parametrize(
    "kind",
    [
        DataError,
        lambda text: MemoryLimitError(text, 100, text),
        ConfigError,
        lambda text: ParameterError("x", text),
    ],
)
def test_no_error_message_contains_a_line_break(kind):
    error = kind(f"{HOSTILE}: not found")
    assert str(error).isprintable()
    assert repr(error).isprintable()
    assert str(DataError(f"again: {error}")).endswith(str(error)), "escaped text is not escaped again"


def test_each_problem_is_one_line():
    assert str(ConfigError("one\n", "two")) == "one\\n\ntwo"


def test_progress_stays_on_its_line():
    stream = io.StringIO()
    progress = Lines(stream)
    progress.message(HOSTILE)
    progress.start(PassStart(HOSTILE, 10))
    progress.finish()
    assert stream.getvalue().count("\n") == 2
    assert harmless(stream.getvalue())
    screen = io.StringIO()
    bar = Bar(screen)
    bar.start(PassStart(HOSTILE, 10))
    bar.message(HOSTILE)
    bar.finish()
    assert "\x1b]0" not in screen.getvalue()
    assert "\x1b[2J" not in screen.getvalue()
    assert "\nINJECTED" not in screen.getvalue()


def test_pages_and_tables_stay_on_their_lines():
    unknown: dict[str, Any] = dict.fromkeys(field.name for field in fields(ComparedMethod))
    name = f"{HOSTILE}|<img src=x>[a](b)`"
    row = ComparedMethod(**unknown | {"name": name, "method": "pca", "parameters": {"kernel": HOSTILE}})
    assert report_tables.text([row]).count("\n") == 1
    assert report_tables.markdown([row]).count("\n") == 3
    for shown in (report_tables.text([row]), report_tables.markdown([row]), str(report_tables.cells([row]))):
        assert harmless(shown)
    assert "<img" not in report_tables.markdown([row]).replace(r"\<img", "")
    checks: dict[str, Any] = dict.fromkeys(field.name for field in fields(VerifyReport))
    checks["checks"] = {HOSTILE: HOSTILE}
    assert harmless(report_text.verified(VerifyReport(**checks)))
    assert harmless(summary.literal(one_line(HOSTILE)))


# Commands


def store(place, **options):
    return write_store(place, np.random.default_rng(0).normal(size=(30, 3)), **options)


def group(place):
    root = zarr.open_group(place, mode="w", zarr_format=3)
    for name in (HOSTILE, "b"):
        array = root.create_array(
            name, shape=(30, 3), chunks=(10, 3), dtype="f8", dimension_names=[HOSTILE, "y"]
        )
        array[...] = 1.0
    return place


def configured(place, **sections):
    return write_config(place, **{"input": {"path": "x.zarr"}, **sections})


def edited(file, change):
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def array_names(place):
    return ["inspect", group(place / "g.zarr")]


def wrong_array(place):
    group(place / "x.zarr")
    return ["plan", configured(place, input={"array": "nosuch"})]


def array_of_many(place):
    group(place / "x.zarr")
    return ["plan", configured(place)]


def named_array(place):
    store(place / "x.zarr")
    return ["plan", configured(place), "--set", f"input.array={json.dumps(HOSTILE)}"]


def dimension_names(place):
    return ["inspect", store(place / "x.zarr", dimension_names=[HOSTILE, HOSTILE]).store.root]


def label_column(place):
    store(place / "x.zarr", dimension_names=[HOSTILE, HOSTILE])
    return [
        "plan",
        configured(place),
        "--set",
        "method.name=lda",
        "--set",
        f"input.label_column={json.dumps(HOSTILE)}",
    ]


def place_of_input(place):
    store(place / HOSTILE)
    return ["run", configured(place), "--set", f"input.path={json.dumps(HOSTILE)}"]


def no_input(place):
    return ["run", configured(place), "--set", f"input.path={json.dumps(HOSTILE)}"]


def place_of_output(place):
    store(place / "x.zarr")
    words = ["run", configured(place), "--set", f"output.model={json.dumps(HOSTILE)}"]
    streamdr(*words, cwd=place)
    return words  # the second run finds the output up to date


def output_in_the_way(place):
    store(place / "x.zarr")
    (place / HOSTILE).mkdir()
    return ["run", configured(place), "--set", f"output.model={json.dumps(HOSTILE)}"]


def config_name(place):
    store(place / "x.zarr")
    shutil.copy(configured(place), place / f"{HOSTILE}.yaml")
    return ["reprocess", place / f"{HOSTILE}.yaml"]


def broken_config(place):
    (place / f"{HOSTILE}.yaml").write_text("input: [")
    return ["plan", place / f"{HOSTILE}.yaml"]


def no_config(place):
    return ["plan", place / HOSTILE]


def inspected(place):
    store(place / HOSTILE)
    return ["inspect", place / HOSTILE]


def nothing_to_inspect(place):
    return ["inspect", place / HOSTILE]


def damaged_json(place):
    store(place / "x.zarr")
    (place / "x.zarr" / "zarr.json").write_text(json.dumps({"zarr_format": HOSTILE, "node_type": HOSTILE}))
    return ["inspect", place / "x.zarr"]


def codec_name(place):
    store(place / "x.zarr")
    edited(place / "x.zarr" / "zarr.json", lambda document: document["codecs"].append({"name": HOSTILE}))
    return ["inspect", place / "x.zarr"]


def type_name(place):
    store(place / "x.zarr")
    edited(place / "x.zarr" / "zarr.json", lambda document: document.update(data_type=HOSTILE))
    return ["plan", configured(place)]


def record_of_an_ingestion(place):
    (place / f"{HOSTILE}.csv").write_text(CSV_ROW)
    assert streamdr("ingest", f"{HOSTILE}.csv", "y.zarr", cwd=place).code == 0
    return ["inspect", "y.zarr"]


def record_of_a_model(place):
    store(place / "x.zarr")
    assert streamdr("fit", configured(place), cwd=place).code == 0
    file = place / "out" / "model.zarr" / "zarr.json"
    file.write_text(file.read_text().replace('"pca"', json.dumps(HOSTILE)))
    return ["inspect", "out/model.zarr"]


def column_name(place):
    (place / "x.csv").write_text(f'"{HOSTILE}",b\n1,2\n')
    return ["ingest", "x.csv", "y.zarr", "--columns", HOSTILE.replace("\n", "")]


def cell(place):
    (place / "x.csv").write_text(f'a,b\n1,2\n3,"{HOSTILE}"\n')
    return ["ingest", "x.csv", "y.zarr"]


def ingested_file(place):
    return ["ingest", f"{HOSTILE}.csv", "y.zarr"]


def ingested_type(place):
    (place / "x.csv").write_text(CSV_ROW)
    return ["ingest", "x.csv", "y.zarr", "--dtype", HOSTILE]


def text_labels(place):
    store(place / "x.zarr")
    labels = np.array([f"{HOSTILE}{number % 2}" for number in range(30)], dtype="U80")
    zarr.create_array(place / "y.zarr", data=labels)
    return ["run", configured(place, input={"labels": "y.zarr"}, method={"name": "lda", "n_components": 1})]


def one_label(place):
    store(place / "x.zarr")
    zarr.create_array(place / "y.zarr", data=np.array([HOSTILE] * 30, dtype="U80"))
    return ["run", configured(place, input={"labels": "y.zarr"}, method={"name": "lda", "n_components": 1})]


def value(place):
    store(place / "x.zarr")
    return ["plan", configured(place), "--set", f"method.solver={json.dumps(HOSTILE)}"]


def key(place):
    store(place / "x.zarr")
    return ["plan", configured(place), "--set", f"method.{HOSTILE}=1"]


def no_key(place):
    store(place / "x.zarr")
    return ["plan", configured(place), "--set", HOSTILE]


def option(place):
    return ["inspect", f"--{HOSTILE}", "x"]


def no_command(place):
    return [HOSTILE]


def extra_word(place):
    return ["inspect", "x", HOSTILE]


def wrong_number(place):
    return ["ingest", "x.csv", "y.zarr", "--chunk-rows", HOSTILE]


def picture(place):
    return ["plot", HOSTILE, "--out", "x.png"]


def kind_of_picture(place):
    store(place / "x.zarr")
    assert streamdr("fit", configured(place), cwd=place).code == 0
    return ["plot", "out/model.zarr", "--out", f"{HOSTILE}.png", "--kind", HOSTILE]


def scheduler(place):
    store(place / "x.zarr")
    return ["run", configured(place), "--set", f"execution.scheduler={json.dumps(HOSTILE + '.json')}"]


def lease(place):
    store(place / "x.zarr")
    (place / "out").mkdir()
    (place / "out" / ".model.zarr.lease").write_text(HOSTILE)
    return ["run", configured(place)]


QUICK = [array_names, no_input, key, extra_word, text_labels]
ROUTES = [
    *(
        wrong_array,
        array_of_many,
        named_array,
        dimension_names,
        label_column,
        place_of_input,
        place_of_output,
    ),
    *(output_in_the_way, config_name, broken_config, no_config, inspected, nothing_to_inspect, damaged_json),
    *(codec_name, type_name, record_of_an_ingestion, record_of_a_model, column_name, cell, ingested_file),
    *(ingested_type, one_label, value, no_key, option, no_command, wrong_number, picture, kind_of_picture),
    *(scheduler, lease),
]


@pytest.mark.parametrize(
    "route", [*QUICK, *(pytest.param(route, marks=pytest.mark.slow) for route in ROUTES)]
)
def test_no_command_prints_hostile_text_unescaped(tmp_path, route):
    words = route(tmp_path)
    for more in ([], ["--json"]):
        outcome = streamdr(*words, *more, cwd=tmp_path, environment={"STREAMDR_TRACEBACK": "1"})
        assert outcome.out or outcome.err
        assert harmless(outcome.out), outcome.out
        assert harmless(outcome.err), outcome.err


def test_no_hostile_text_reaches_a_terminal(tmp_path):
    words = array_names(tmp_path)
    parent, child = pty.openpty()
    with subprocess.Popen([SCRIPT, *map(str, words)], stdin=child, stdout=child, stderr=child):
        os.close(child)
        seen = b""
        with suppress(OSError):  # the other side is closed
            while piece := os.read(parent, 65536):
                seen += piece
    os.close(parent)
    assert b"INJECTED" in seen
    assert b"\x1b" not in seen
    assert harmless(seen.decode().replace("\r\n", "\n"))
