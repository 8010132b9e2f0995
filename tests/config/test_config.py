"""Configuration: which files are valid, what they mean, and the errors for those that are not."""

import json
import os
from contextlib import suppress
from dataclasses import FrozenInstanceError, asdict, dataclass
from typing import Any, ClassVar, Literal

import jsonschema
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from narrowing import checked

from streamdr.config import ExecutionSection, Input, Output, load, parse, schema
from streamdr.core.execution import TLS, Adaptive, Cluster
from streamdr.data.examples.synthetic import Synthetic
from streamdr.errors import ConfigError, ParameterError
from streamdr.methods import METHODS
from streamdr.methods.pca import PCA

WHITEN = "expected 'pca', 'zca', true or false or null"
ALL_METHODS = ", ".join(f"'{name}'" for name in METHODS)

SMALL = """\
input:
  path: data/x.zarr
method:
  name: pca
output:
  model: out/model.zarr
"""

FULL = """\
input:
  path: data/x.zarr
  array: X
  sample_axis: 1
  weights: data/x.zarr/w
  mask: data/x.zarr/m
  missing_value: -9999
  allow_missing_chunks: true
  synthetic: {n_rows: 2000, n_cols: 25, rank: 3, noise: 0.5, offset: 100, dtype: float64, seed: 7}
method:
  name: pca
  n_components: 5
  whiten: zca
  scale: true
  tol: 1e-3
output:
  model: out/model.zarr
  embedding: out/z.zarr
  dtype: float32
  overwrite: true
execution:
  workers: 2
  memory_limit: 2GiB
  scheduler: processes
  ledger: out/ledger
  checkpoint_seconds: 1
"""


@dataclass(frozen=True)
class Toy:
    """A method with keys that PCA has not.

    Parameters
    ----------
    layers : list of int
        The widths.
    kernel : "rbf" or "linear"
        The shape,
        on two lines.
    """

    name: ClassVar[str] = "toy"
    model: ClassVar[type] = object

    layers: tuple[int, ...]
    kernel: Literal["rbf", "linear"] = "rbf"

    def check(self):
        if sum(self.layers) > 10:
            raise ParameterError("layers", "the widths add up to more than 10")


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", Toy)


def problems(text, *overrides):
    """The lines of the error that the text gives, without the file's name."""
    with pytest.raises(ConfigError) as caught:
        parse(text, overrides, name="x.yaml")
    return [line.removeprefix("x.yaml:") for line in str(caught.value).splitlines()]


def the_problem(text, *overrides):
    (line,) = problems(text, *overrides)
    return line


def with_line(section, line):
    """The small configuration with one more line in a section, and that line's number."""
    lines = SMALL.splitlines()
    if f"{section}:" not in lines:
        lines.append(f"{section}:")
    at = lines.index(f"{section}:") + 1
    lines.insert(at, f"  {line}")
    return "\n".join(lines), at + 1


# What a file means


def test_every_key_reaches_its_field():
    run = parse(FULL)
    assert run.input == Input(
        path="data/x.zarr",
        array="X",
        sample_axis=1,
        weights="data/x.zarr/w",
        mask="data/x.zarr/m",
        missing_value=-9999,
        allow_missing_chunks=True,
        synthetic=Synthetic(2000, 25, rank=3, noise=0.5, offset=100.0, dtype="float64", seed=7),
    )
    assert asdict(checked(PCA, run.method)) == asdict(PCA(5, whiten="zca", scale=True, tol=1e-3))
    assert run.output == Output("out/model.zarr", "out/z.zarr", dtype="float32", overwrite=True)
    assert run.execution == ExecutionSection(2, 2 * 1024**3, "processes", "out/ledger", 1.0)


def test_what_is_left_out_has_its_default():
    run = parse(SMALL)
    assert run.input == Input("data/x.zarr")
    assert asdict(checked(PCA, run.method)) == asdict(PCA())
    assert run.output == Output("out/model.zarr")
    assert run.execution == ExecutionSection()


@pytest.mark.parametrize("empty", ["execution:", "execution: {}", "execution: null", "execution: ~"])
def test_an_empty_section_is_no_section(empty):
    assert parse(SMALL + empty).execution == ExecutionSection()


def test_a_run_cannot_be_changed():
    run: Any = parse(SMALL)
    with pytest.raises(FrozenInstanceError):
        run.output = None


def test_a_file_is_read_under_its_own_name(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(FULL)
    assert load(path).to_dict() == load(str(path)).to_dict() == parse(FULL).to_dict()
    assert load(path).source_file == str(path)
    assert parse(FULL).source_file is None


@pytest.mark.parametrize("text", [SMALL, FULL])
def test_a_record_of_a_run_is_json_and_reads_back_as_that_run(text):
    record = json.dumps(parse(text).to_dict())
    assert parse(record).to_dict() == parse(text).to_dict()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("10", 10),
        ("0.9", 0.9),
        (".9", 0.9),
        ("9e-1", 0.9),
        ("1E1", None),
        ("0x10", 16),
        ("0o10", 8),
        ("010", 10),
        ("+3", 3),
        ("mle", "mle"),
        ("'mle'", "mle"),
        ("!!str mle", "mle"),
        ("null", None),
        ("~", None),
        ("", None),
    ],
)
def test_numbers_and_words_are_those_of_yaml_1_2(written, meant):
    text, line = with_line("method", f"n_components: {written}")
    if written == "1E1":  # a float, and no fraction
        assert the_problem(text).startswith(f"{line}:17: method.n_components: 10.0")
    else:
        value = checked(PCA, parse(text).method).n_components
        assert value == meant
        assert type(value) is type(meant)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("-9999", -9999),
        ("255", 255),
        ("999999999999999999", 10**18 - 1),
        ("1e20", 1e20),
        ("-9999.9", -9999.9),
        ("fill_value", "fill_value"),
        ("null", None),
    ],
)
def test_a_missing_value_is_a_number_or_that_of_the_store(written, meant):
    text, _ = with_line("input", f"missing_value: {written}")
    value = parse(text).input.missing_value
    assert value == meant
    assert type(value) is type(meant)
    assert parse(json.dumps(parse(text).to_dict())).input.missing_value == meant


@pytest.mark.parametrize("word", ["yes", "no", "on", "off", "y", "n"])
def test_only_true_and_false_are_booleans(word):
    text, line = with_line("method", f"scale: {word}")
    assert the_problem(text) == f"{line}:10: method.scale: expected true or false, not '{word}'"


def test_anchors_and_aliases_save_typing():
    text = SMALL.replace("path: data/x.zarr", "path: &here data/x.zarr\n  weights: *here")
    assert parse(text).input.weights == "data/x.zarr"


@pytest.mark.parametrize(
    ("written", "meant"),
    [("500MB", 500_000_000), ("1.5 GB", 1_500_000_000), ("4096", 4096), ("'4096'", 4096)],
)
def test_memory_is_counted_in_bytes(written, meant):
    text, _ = with_line("execution", f"memory_limit: {written}")
    assert parse(text).execution.memory_limit == meant


@pytest.mark.parametrize(
    "scheduler",
    ["threads", "processes", "tcp://10.0.0.1:8786", "tls://head:8786", "/shared/scheduler.json", "null"],
)
def test_a_scheduler_is_a_name_an_address_or_a_file(scheduler):
    text, _ = with_line("execution", f"scheduler: {scheduler}")
    assert parse(text).execution.scheduler == (None if scheduler == "null" else scheduler)


def test_a_cluster_is_a_name_with_what_it_takes():
    given = "{name: SLURMCluster, arguments: {cores: 8, queue: q}, adaptive: {maximum: 9}}"
    text, _ = with_line("execution", f"cluster: {given}")
    cluster = parse(text).execution.cluster
    assert cluster == Cluster("SLURMCluster", {"cores": 8, "queue": "q"}, adaptive=Adaptive(9, 0))


def test_certificates_go_with_a_scheduler_that_speaks_tls():
    run = parse(SMALL, ["execution.scheduler=tls://h:1", "execution.tls={ca: a, cert: b, key: c}"])
    assert run.execution.tls == TLS("a", "b", "c")


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (
            "{cluster: {name: SlurmCluster}}",
            "cluster.name: 'SlurmCluster' is not one of 'LocalCluster', 'SLURMCluster', 'PBSCluster', "
            "'SGECluster', 'LSFCluster', 'HTCondorCluster', 'OARCluster', 'MoabCluster', 'KubeCluster', "
            "'Coiled'; did you mean 'SGECluster'?",
        ),
        ("{cluster: {}}", "cluster.name: required key is missing"),
        ("{cluster: {name: os.system}}", "cluster.name: 'os.system' is not one of 'LocalCluster', "),
        ("{cluster: {name: LocalCluster, workers: 0}}", "cluster.workers: 0 is not at least 1"),
        (
            "{cluster: {name: LocalCluster, wrokers: 1}}",
            "cluster.wrokers: unknown key; did you mean 'workers'?",
        ),
        (
            "{cluster: {name: LocalCluster, workers: 2, adaptive: {maximum: 3}}}",
            "cluster.adaptive: cannot be combined with workers, a fixed number; set one of them",
        ),
        (
            "{cluster: {name: LocalCluster, adaptive: {maximum: 3, minimum: 4}}}",
            "cluster.adaptive.minimum: 4 is not between 0 and 3, the maximum",
        ),
        (
            "{scheduler: threads, cluster: {name: LocalCluster}}",
            "cluster: cannot be combined with scheduler; start a cluster, or connect to the scheduler of one",
        ),
        ("{scheduler: 'tls://h:1', tls: {ca: a, cert: b}}", "tls.key: required key is missing"),
        (
            "{scheduler: 'tcp://h:1', tls: {ca: a, cert: b, key: c}}",
            "tls: is for a cluster, or for a scheduler whose address begins with tls://; ",
        ),
        ("{insecure: perhaps}", "insecure: expected true or false, not 'perhaps'"),
    ],
)
def test_a_wrong_place_to_run_is_pointed_at(lines, complaint):
    assert f"execution.{complaint}" in the_problem(SMALL, f"execution={lines}")


# Overrides


@pytest.mark.parametrize(
    ("argument", "section", "key", "meant"),
    [
        ("method.n_components=10", "method", "n_components", 10),
        ("method.n_components=0.5", "method", "n_components", 0.5),
        ("method.tol=1e-5", "method", "tol", 1e-5),
        ("method.whiten=null", "method", "whiten", None),
        ("method.whiten=", "method", "whiten", None),
        ("method.scale=false", "method", "scale", False),
        ("execution.memory_limit=1GiB", "execution", "memory_limit", 1024**3),
        ("execution.scheduler=tcp://host:8786", "execution", "scheduler", "tcp://host:8786"),
        ("input.path=a=b.zarr", "input", "path", "a=b.zarr"),
        ("input.synthetic=null", "input", "synthetic", None),
        ("input.synthetic.rank=2", "input", "synthetic", Synthetic(2000, 25, 2, 0.5, 100.0, "float64", 7)),
        ("input.synthetic={n_rows: 20, n_cols: 10}", "input", "synthetic", Synthetic(20, 10)),
        (" output.model = elsewhere", "output", "model", "elsewhere"),
    ],
)
def test_an_override_replaces_what_the_file_says(argument, section, key, meant):
    assert getattr(getattr(parse(FULL, [argument]), section), key) == meant


def test_overrides_make_the_sections_they_need_and_the_last_one_wins():
    run = parse(SMALL, ["execution.workers=3", "input.synthetic.n_rows=50", "input.synthetic.n_cols=20"])
    assert run.execution.workers == 3
    assert run.input.synthetic == Synthetic(50, 20)
    assert parse(SMALL, ["execution.workers=3", "execution.workers=4"]).execution.workers == 4


def test_an_override_mends_the_file():
    text, _ = with_line("method", "whiten: zcaa")
    assert checked(PCA, parse(text, ["method.whiten=zca"]).method).whiten == "zca"


@pytest.mark.parametrize(
    ("argument", "complaint"),
    [
        ("method.n_componets=10", "method.n_componets: unknown key; did you mean 'n_components'?"),
        ("methd.whiten=zca", "methd: unknown key; did you mean 'method'?"),
        (
            "method.whiten=zcaa",
            f"method.whiten: {WHITEN}, not 'zcaa'; did you mean 'zca'?",
        ),
        ("method.n_components=-1", "method.n_components: -1 is not at least 1"),
        (
            "method.name=pcaa",
            f"method.name: 'pcaa' is not one of {ALL_METHODS}; did you mean 'pca'?",
        ),
        ("input.synthetic.n_rows=50", "input.synthetic.n_cols: required key is missing"),
        ("input.path.deep=1", "input.path: 'data/x.zarr' is not a section and has no keys"),
        ("method.whiten=[zca", "while parsing a flow sequence, expected ',' or ']', but got '<stream end>'"),
        ("method.whiten", "expected key=value, such as method.n_components=10"),
        ("=3", "expected key=value, such as method.n_components=10"),
        ("method..whiten=3", "expected key=value, such as method.n_components=10"),
        ("workers=3", "workers: unknown key; it belongs in the section execution"),
    ],
)
def test_a_wrong_override_is_named(argument, complaint):
    assert the_problem(SMALL, argument) == f"--set {argument.partition('=')[0]}".strip() + f": {complaint}"


def test_problems_in_what_an_override_replaced_are_gone():
    text, _ = with_line("input", "synthetic: {n_rows: many, n_clos: 3}")
    expected = "--set input.synthetic: input.synthetic.n_cols: required key is missing"
    assert the_problem(text, "input.synthetic={n_rows: 9}") == expected


# What is wrong, and where


COUNT = "expected a whole number of at least 1 and of at most 1024 or null"
COMPONENTS = "expected a whole number, a fraction, 'mle', 'parallel', 'broken_stick' or null"
MISSING = "expected a whole number, a fraction, 'fill_value' or null"
SCHEDULER = (
    "is not 'threads', 'processes', an address such as 'tcp://host:8786' "
    "or the path of a scheduler file (.json)"
)


@pytest.mark.parametrize(
    ("key", "written", "complaint"),
    [
        ("method.n_components", "many", f"{COMPONENTS}, not 'many'"),
        ("method.n_components", "ml", f"{COMPONENTS}, not 'ml'; did you mean 'mle'?"),
        ("method.n_components", "true", f"{COMPONENTS}, not true"),
        ("method.n_components", ".inf", f"{COMPONENTS}, not '.inf'"),
        ("method.n_components", "0", "0 is not at least 1"),
        (
            "method.whiten",
            "zcaa",
            f"{WHITEN}, not 'zcaa'; did you mean 'zca'?",
        ),
        ("method.whiten", "3", f"{WHITEN}, not 3"),
        ("method.center", "3", "expected true or false, not 3"),
        ("method.tol", "1e999", "expected a number, not Infinity"),
        ("method.tol", "[1]", "expected a number, not [1]"),
        ("method.random_state", "99999999999999999999", "expected a whole number, not 1e+20"),
        ("input.array", "''", "expected text that is not empty or null, not ''"),
        ("input.array", "{a: 1}", "expected text that is not empty or null, not a section of keys"),
        ("input.sample_axis", "0.5", "expected a whole number, not 0.5"),
        ("input.mask", "''", "expected text that is not empty or null, not ''"),
        ("input.mask", "true", "expected text that is not empty or null, not true"),
        ("input.missing_value", "fill-value", f"{MISSING}, not 'fill-value'; did you mean 'fill_value'?"),
        ("input.missing_value", "true", f"{MISSING}, not true"),
        ("input.missing_value", ".nan", f"{MISSING}, not '.nan'"),
        ("input.synthetic", "5", "expected a section of keys, not 5"),
        ("output.dtype", "int8", "'int8' is not one of 'float32', 'float64', null"),
        (
            "output.embedding",
            "out/./model.zarr",
            "'out/./model.zarr' is where the model goes; choose another path",
        ),
        ("execution.workers", "two", f"{COUNT}, not 'two'"),
        ("execution.workers", "'2'", f"{COUNT}, not '2'"),
        ("execution.workers", "true", f"{COUNT}, not true"),
        ("execution.workers", "0", f"{COUNT}, not 0"),
        ("execution.checkpoint_seconds", "0", "expected a number above 0, not 0"),
        (
            "execution.memory_limit",
            "plenty",
            "'plenty' is not an amount of memory; write bytes as a whole number, "
            "or a size such as '500MB', '1.5 GB' or '2GiB'",
        ),
        ("execution.scheduler", "thread", f"'thread' {SCHEDULER}; did you mean 'threads'?"),
        ("execution.scheduler", "gopher://x", f"'gopher://x' {SCHEDULER}"),
    ],
)
def test_a_wrong_value_is_pointed_at(key, written, complaint):
    section, name = key.split(".")
    text, line = with_line(section, f"{name}: {written}")
    assert the_problem(text) == f"{line}:{len(name) + 5}: {key}: {complaint}"


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("method.n_componets", "did you mean 'n_components'?"),
        ("method.workers", "it belongs in the section execution"),
        ("output.scale", "it belongs in the section method"),
        (
            "input.<<",
            "expected path, array, columns, sample_axis, variable, sample_dims, select, balance_variables, "
            "feature_weights, min_observed, order_by, weights, labels, label_column, mask, missing_value, "
            "allow_missing_chunks, synthetic, example",
        ),
        (
            "execution.zzz",
            "expected workers, memory_limit, scheduler, ledger, checkpoint_seconds, cluster, tls, insecure",
        ),
    ],
)
def test_an_unknown_key_is_pointed_at(key, advice):
    section, name = key.split(".")
    text, line = with_line(section, f"{name}: 5")
    assert the_problem(text) == f"{line}:3: {key}: unknown key; {advice}"


@pytest.mark.parametrize(
    ("synthetic", "complaint"),
    [
        ("{n_rows: 50}", "2:3: input.synthetic.n_cols: required key is missing"),
        (
            "{n_rows: 50, n_cols: 0}",
            "2:35: input.synthetic.n_cols: expected a whole number of at least 1, not 0",
        ),
        (
            "{n_rows: 50, n_cols: 5}",
            "2:3: input.synthetic.rank: a matrix of 50 x 5 has a rank of at most 5, not 10",
        ),
        (
            "{n_rows: 50, n_cols: 5, rank: 6}",
            "2:44: input.synthetic.rank: a matrix of 50 x 5 has a rank of at most 5, not 6",
        ),
        (
            "{n_rows: 50, n_cols: 50, nois: 1}",
            "2:39: input.synthetic.nois: unknown key; did you mean 'noise'?",
        ),
    ],
)
def test_a_section_in_a_section_is_pointed_into(synthetic, complaint):
    text, _ = with_line("input", f"synthetic: {synthetic}")
    assert the_problem(text) == complaint


def test_all_problems_come_at_once_in_the_order_of_the_file():
    text = """\
execution:
  workers: two
inputs: {path: x}
method:
  name: pca
  wihten: zca
  ddof: many
output: {}
"""
    assert problems(text, "method.scale=maybe") == [
        "--set method.scale: method.scale: expected true or false, not 'maybe'",
        f"2:12: execution.workers: {COUNT}, not 'two'",
        "3:1: inputs: unknown key; did you mean 'input'?",
        "6:3: method.wihten: unknown key; did you mean 'whiten'?",
        "7:9: method.ddof: expected a whole number, not 'many'",
        "8:1: output.model: required key is missing",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "{}",
            [
                "1:1: input.path: required key is missing",
                f"1:1: method.name: required key is missing; choose {', '.join(METHODS)}",
                "1:1: output.model: required key is missing",
            ],
        ),
        (SMALL.replace("path", "pth"), ["2:3: input.pth: unknown key; did you mean 'path'?"]),
        (SMALL.replace("name", "nam"), ["4:3: method.nam: unknown key; did you mean 'name'?"]),
        (SMALL.replace("pca", "7"), [f"4:9: method.name: 7 is not one of {ALL_METHODS}"]),
        (SMALL.replace("  name: pca", "  [pca]"), ['4:3: method: expected a section of keys, not ["pca"]']),
        (SMALL.replace("  path: data/x.zarr", ""), ["1:1: input.path: required key is missing"]),
    ],
)
def test_what_is_missing_or_misplaced_is_said_once(text, expected):
    assert problems(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["1:1: expected the sections input, method, output, execution, found nothing"]),
        ("# nothing\n", ["1:1: expected the sections input, method, output, execution, found nothing"]),
        ("- a\n- b", ['1:1: expected the sections input, method, output, execution, found ["a", "b"]']),
        ("words", ["1:1: expected the sections input, method, output, execution, found 'words'"]),
        ("a: {b: [}", ["1:9: while parsing a flow node, expected the node content, but found '}'"]),
        ("a: b: c", ["1:5: mapping values are not allowed here"]),
        (
            "a: @b",
            ["1:4: while scanning for the next token, found character '@' that cannot start any token"],
        ),
        ("a: *b", ["1:4: found undefined alias 'b'"]),
        ("a: 1\n---\nb: 2", ["2:1: expected a single document in the stream, but found another document"]),
        ("a: 1\nb:  \x07", ["2:5: the character '\\x07' is not text"]),
        ('a: "\\a"', ["1:4: a: control characters are not text"]),
        ('a: "\\ud800"', ["1:4: a: control characters are not text"]),
        ('a: "\\UFFFFFFFF"', ["1:7: found an escape that is not a character"]),
        ("a: 1\na: 2", ["2:1: a: written twice; the first is at x.yaml:1:1"]),
        ("a: {b: 1, b: 2}", ["1:11: a.b: written twice; the first is at x.yaml:1:5"]),
        ("7: a\n[b]: c", ["1:1: a key must be a word", "2:1: a key must be a word"]),
        ("a: !!int b", ["1:4: a: 'b' is not a YAML int"]),
        (
            "a: !!python/object/apply:os.system [ls]\nb: !mine {c: d}\nc: !!set {d}",
            [
                "1:4: a: the tag !!python/object/apply:os.system has no meaning here; remove it",
                "2:4: b: the tag !mine has no meaning here; remove it",
                "3:4: c: the tag !!set has no meaning here; remove it",
            ],
        ),
    ],
)
def test_what_is_not_yaml_or_not_plain_is_refused(text, expected):
    assert problems(text) == expected


def test_aliases_cannot_multiply_without_bound():
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert the_problem("\n".join(levels)).endswith("more than 10,000 values, aliases expanded")


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {b: *a}", "[" * 5000, "{a: " * 5000, "- " * 5000])
def test_nesting_cannot_go_on_without_bound(text):
    assert the_problem(text).endswith("nested more than 16 deep")


def test_a_file_that_cannot_be_read_says_why(tmp_path):
    cases = {
        "absent.yaml": (None, "absent.yaml: cannot be read: No such file or directory"),
        "latin.yaml": (b"input:\n  path: caf\xe9", "latin.yaml:2:12: not UTF-8 text; is it a configuration?"),
        "huge.yaml": (b"#" * 300_000, "huge.yaml: more than 256 KiB is not a configuration; is it the data?"),
        "empty.yaml": (
            b"",
            "empty.yaml:1:1: expected the sections input, method, output, execution, found nothing",
        ),
    }
    for name, (content, complaint) in cases.items():
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            load(path)
        assert str(caught.value) == f"{tmp_path}/{complaint}"
    with pytest.raises(ConfigError, match="cannot be read: a directory is in the place of a file"):
        load(tmp_path)
    with pytest.raises(ConfigError, match="cannot be the name of a file"):
        load("a\0b")


def test_a_byte_order_mark_and_a_pipe_do_no_harm(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + SMALL.encode())
    assert load(path).input.path == "data/x.zarr"
    reader, writer = os.pipe()
    os.write(writer, SMALL.encode())
    os.close(writer)
    assert load(f"/dev/fd/{reader}").input.path == "data/x.zarr"
    os.close(reader)


def test_every_problem_is_one_printable_line():
    text = (
        'input: {path: x, "a\\nb": 1}\nmethod: {name: "p\\tca"}\noutput: {model: m, "' + "k" * 500 + '": 1}\n'
    )
    lines = problems(text, "output.overwrite=\n'a'")
    assert len(lines) == 4
    assert all(line.isprintable() and len(line) < 600 for line in lines)


FRAGMENTS = r"""
input method output execution path name pca n_components whiten model workers synthetic
: - { } [ ] , & * ! !! | > ' " % %YAML --- ... ? # @ ` \x \u \U \UFFFFFFFF 1 1e3 0x 0o null ~ true é
"""
fragments = st.lists(
    st.sampled_from(
        [*FRAGMENTS.split(), " ", "\n", "\n  ", "\t", "\r", "\x85", "\u2028", "\ufeff", "&a ", "*a "]
    ),
    max_size=40,
).map("".join)


@given(st.one_of(st.text(), fragments, st.text().map(SMALL.__add__)))
@example("%YAML 1.99999999999999999999999999999999999999\n---\n")
@example("%TAG ! tag:x,2000:\n--- !%FF%FE a")
@example("!<%zz> a")
@example("? ? ? ?")
def test_any_text_is_a_run_or_a_config_error(text):
    with suppress(ConfigError):
        parse(text)


@given(st.one_of(st.text(), st.builds("method.{}={}".format, st.text(), fragments)))
def test_any_override_is_a_run_or_a_config_error(argument):
    with suppress(ConfigError):
        parse(SMALL, [argument])


# A method's dataclass is all there is to its section


@pytest.mark.usefixtures("toy")
def test_a_new_method_is_configured_by_its_fields_alone():
    text = SMALL.replace("name: pca", "name: toy\n  layers: [3, 4]\n  kernel: linear")
    assert checked(Toy, parse(text).method) == Toy((3, 4), "linear")
    assert parse(text).to_dict()["method"] == {"name": "toy", "layers": (3, 4), "kernel": "linear"}
    jsonschema.validate(yaml.safe_load(text), schema())


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("kernel: rbf", "3:1: method.layers: required key is missing"),
        ("layers: 3", "5:11: method.layers: expected a list (each a whole number), not 3"),
        ("layers: [a]", '5:11: method.layers: expected a list (each a whole number), not ["a"]'),
        ("layers: [8, 9]", "5:11: method.layers: the widths add up to more than 10"),
        ("n_components: 3", "5:3: method.n_components: unknown key; expected name, layers, kernel"),
    ],
)
def test_a_new_methods_mistakes_are_pointed_at(line, complaint):
    text = SMALL.replace("name: pca", f"name: toy\n  {line}")
    assert complaint in problems(text)


# The schema for editors


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(schema())
    assert schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    json.dumps(schema(), allow_nan=False)


def objects_in(node):
    if isinstance(node, dict):
        if "properties" in node:
            yield node
        for child in node.values():
            yield from objects_in(child)
    if isinstance(node, list):
        for child in node:
            yield from objects_in(child)


def test_every_section_is_closed_and_every_key_described():
    whole = schema()
    cluster = whole["properties"]["execution"]["properties"]["cluster"]["anyOf"][0]
    arguments = cluster["properties"]["arguments"].pop("anyOf")  # which other libraries describe
    assert all(each["additionalProperties"] is False for each in objects_in(arguments))
    found = list(objects_in(whole))
    inner = [
        "input.synthetic",
        "input.example",
        "execution.cluster",
        "execution.cluster.adaptive",
        "execution.tls",
    ]
    assert len(found) == 4 + len(inner) + len(METHODS)  # the file, three sections, theirs, and the methods
    for section in found:
        assert section["additionalProperties"] is False
        assert section["description"]
    for section in found[1:]:
        for name, key in section["properties"].items():
            assert key["description"], name


def test_the_schema_knows_the_defaults():
    properties = schema()["properties"]
    assert properties["execution"]["properties"]["checkpoint_seconds"]["default"] == 5.0
    assert properties["input"]["properties"]["array"]["default"] is None
    assert "default" not in properties["input"]["properties"]["path"]
    pca = next(method for method in properties["method"]["oneOf"] if method["title"] == "pca")
    assert pca["properties"]["name"]["const"] == "pca"
    assert pca["properties"]["solver"]["default"] == "auto"
    assert pca["properties"]["solver"]["enum"] == ["auto", "covariance", "gram", "krylov"]


@pytest.mark.parametrize("text", [SMALL, FULL, SMALL + "execution:", json.dumps(parse(FULL).to_dict())])
def test_the_schema_takes_what_loads(text):
    jsonschema.validate(yaml.safe_load(text.replace("1e-3", "0.001")), schema())


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("input", "path", None),
        ("input", "path", ""),
        ("input", "pth", "x"),
        ("input", "sample_axis", "0"),
        ("input", "synthetic", {"n_rows": 5}),
        ("input", "synthetic", {"n_rows": 5, "n_cols": 0}),
        ("method", "name", "pcaa"),
        ("method", "n_components", "many"),
        ("method", "whiten", "zcaa"),
        ("method", "n_componets", 3),
        ("output", "model", 3),
        ("output", "dtype", "int8"),
        ("execution", "workers", 0),
        ("execution", "workers", True),
        ("execution", "memory_limit", "plenty"),
        ("execution", "memory_limit", 2.5),
        ("execution", "checkpoint_seconds", 0),
        ("executon", "workers", 2),
    ],
)
def test_what_the_schema_refuses_does_not_load_either(section, key, value):
    content = parse(FULL).to_dict()
    content.setdefault(section, {})[key] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, schema())
    with pytest.raises(ConfigError):
        parse(json.dumps(content))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=3), children, max_size=3)
    ),
    max_leaves=5,
)


@given(st.sampled_from(sorted(parse(FULL).to_dict())), st.data())
def test_any_value_of_any_key_is_a_config_error_or_right_by_the_schema(section, data):
    content = parse(FULL).to_dict()
    key = data.draw(st.sampled_from(sorted(content[section])))
    content[section][key] = data.draw(
        json_values | st.sampled_from(["2 gib", "8G", "threads", "mle", 3, 0.5])
    )
    with suppress(ConfigError):
        parse(json.dumps(content))
        jsonschema.validate(content, schema())
