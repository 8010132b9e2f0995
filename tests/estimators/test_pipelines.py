"""Pipelines of scikit-learn stream: no step is computed before the last one reads its rows."""

from __future__ import annotations

from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from sklearn.pipeline import Pipeline, make_pipeline

from streamdr import LDA, PCA, Chain, Log1p, NormalizeTotal, SelectFScore, Standardise
from streamdr.core.blocks import Span
from streamdr.data.sparse.source import CsrSource
from streamdr.data.transformed import TransformedSource
from streamdr.data.zarr.source import ZarrSource
from streamdr.errors import DataError
from streamdr.estimators.base import Estimator
from streamdr.estimators.mapped_rows import mapped_rows_of

N, D = 600, 10
pytestmark = pytest.mark.usefixtures("small_blocks")


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    rng = np.random.default_rng(11)
    rows = rng.poisson(rng.gamma(1.0, 1.5, D), (N, D)).astype("f4")
    rows[:, 3] += 1
    return rows


@pytest.fixture(scope="module")
def labels() -> np.ndarray:
    return np.random.default_rng(12).integers(0, 3, N)


@pytest.fixture
def path(rows, tmp_path) -> Path:
    zarr.create_array(tmp_path / "x.zarr", data=rows, chunks=(64, D))
    return tmp_path / "x.zarr"


@pytest.fixture
def reads(monkeypatch) -> list[int]:
    """How many rows each read of a store asks for."""
    found: list[int] = []
    for name in ("read", "read_scratch"):
        original = getattr(ZarrSource, name)

        def counted(self, rows, cols, original=original):
            found.append(len(rows))
            return original(self, rows, cols)

        monkeypatch.setattr(ZarrSource, name, counted)
    return found


def steps() -> list[Estimator]:
    return [NormalizeTotal(), Log1p(), PCA(3)]


def holders(rows: np.ndarray, path: Path) -> dict[str, object]:
    return {
        "path": path,
        "text": str(path),
        "zarr": zarr.open_array(path, mode="r"),
        "dask": da.from_array(rows, chunks=(90, 4)),
        "sparse chunks": da.from_array(rows, chunks=(90, D)).map_blocks(sp.csr_array),
    }


@pytest.mark.parametrize("kind", ["path", "text", "zarr", "dask", "sparse chunks"])
def test_a_pipeline_has_the_bits_of_the_chain(kind, rows, path):
    given = holders(rows, path)[kind]
    pipeline, chain = make_pipeline(*steps()).fit(given), Chain(steps()).fit(given)
    np.testing.assert_array_equal(pipeline[-1].components_, chain.components_)
    np.testing.assert_array_equal(pipeline[-1].mean_, chain.mean_)
    scores = pipeline.transform(given)
    assert isinstance(scores, da.Array)
    np.testing.assert_array_equal(scores.compute(), chain.transform(given).compute())
    np.testing.assert_array_equal(pipeline.fit_transform(given).compute(), scores.compute())


def test_nothing_is_gathered_and_every_step_that_learns_reads_once(rows, path, reads):
    pipeline = Pipeline([("n", NormalizeTotal(1e2)), ("l", Log1p()), ("pca", PCA(3, solver="covariance"))])
    pipeline.fit(path)
    assert sum(reads) <= N + 128  # the labels of a step, and a look at the first rows
    assert max(reads) <= 128
    reads.clear()
    scores = pipeline.transform(path)
    assert not reads
    scores[:64].compute()
    assert 0 < sum(reads) <= 128


def test_a_step_sees_the_source_and_not_a_graph(rows, path):
    made = Log1p().fit(path).transform(path)
    mapped = mapped_rows_of(made)
    assert mapped is not None
    source = mapped.source()
    assert isinstance(source, TransformedSource)
    assert (source.name, source.chunks[0]) == (str(path), 64)
    np.testing.assert_array_equal(made.compute(), np.log1p(rows))
    twice = Log1p().fit(made).transform(made)
    found = mapped_rows_of(twice)
    assert found is not None
    assert len(found.models) == 2
    np.testing.assert_array_equal(twice.compute(), np.log1p(np.log1p(rows)))


def test_what_is_made_of_a_result_is_an_array_of_its_own(rows, path):
    made = Log1p().fit(path).transform(path)
    for other in (made + 1, made[:50], made.rechunk((100, 2)), made.persist(), made.copy()):
        assert mapped_rows_of(other) is None
    made[0] = 7.0
    assert mapped_rows_of(made) is None
    expected = np.log1p(rows)
    expected[0] = 7.0
    np.testing.assert_allclose(PCA(2).fit(made).mean_, expected.mean(axis=0), rtol=1e-5)


def test_sparse_rows_stay_sparse(rows, tmp_path, monkeypatch):
    sp.save_npz(tmp_path / "x.npz", sp.csr_array(rows), compressed=False)
    monkeypatch.setattr(CsrSource, "read", None)
    monkeypatch.setattr(CsrSource, "read_scratch", None)
    pipeline = make_pipeline(*steps()).fit(tmp_path / "x.npz")
    chain = Chain(steps()).fit(sp.csr_array(rows))
    np.testing.assert_allclose(pipeline[-1].explained_variance_, chain.explained_variance_, rtol=1e-6)


def test_labels_weights_and_selections_stream(rows, labels, path):
    weights = (np.arange(N) % 3).astype(float)
    pipeline = make_pipeline(Standardise(), SelectFScore(6), PCA(4), LDA())
    pipeline.fit(path, labels, lda__sample_weight=weights)
    scaled = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    kept = SelectFScore(6).fit(scaled, labels).transform(scaled)
    reduced = PCA(4).fit(kept).transform(kept)
    expected = LDA().fit(reduced, labels, sample_weight=weights)
    np.testing.assert_array_equal(pipeline.predict(path).compute(), expected.predict(reduced))
    found = pipeline.predict_proba(path).compute()
    np.testing.assert_allclose(found, expected.predict_proba(reduced), atol=1e-4)
    assert pipeline.score(path, labels) == expected.score(reduced, labels)
    chain = Chain([Standardise(), SelectFScore(6), PCA(4), LDA()]).fit(path, labels)
    assert make_pipeline(*chain.steps).fit(path, labels).predict(path).compute().tolist() == (
        chain.predict(path).compute().tolist()
    )


def test_names_of_features_reach_later_steps(rows, path):
    frame = pd.DataFrame(rows, columns=[f"g{i}" for i in range(D)])
    frame.to_parquet(path.with_suffix(".parquet"))
    pipeline = make_pipeline(*steps()).fit(path.with_suffix(".parquet"))
    assert pipeline[-1].feature_names_in_.tolist() == list(frame)


def test_errors_name_the_file_the_row_and_the_step(rows, tmp_path):
    bad = rows.copy()
    bad[417] = 0
    zarr.create_array(tmp_path / "bad.zarr", data=bad, chunks=(64, D))
    where = r"bad\.zarr: row 417: normalize_total: the total is 0"
    with pytest.raises(DataError, match=where):
        make_pipeline(NormalizeTotal(1.0), Log1p(), PCA(2)).fit(tmp_path / "bad.zarr")
    pipeline = make_pipeline(NormalizeTotal(1.0), Log1p(), PCA(2)).fit(rows)
    with pytest.raises(DataError, match=where):
        pipeline.transform(tmp_path / "bad.zarr").compute()


def test_features_that_do_not_fit_are_refused(path):
    made = Log1p().fit(path).transform(path)
    with pytest.raises(DataError, match="has 10 features, and the model takes 4"):
        PCA(2).fit(np.eye(4)).transform(made)
    mapped = mapped_rows_of(made)
    assert mapped is not None
    assert mapped.source().block(Span(0, 3)).values.shape == (3, D)
