"""Kernel PCA of stores: as in memory, the same bits everywhere, nothing read twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import yaml
from command_line import streamdr, succeed
from fits import bits, fit, stored
from narrowing import checked, present
from nightly import Nights

from streamdr import KernelPCA, store
from streamdr.core.method import Method
from streamdr.methods import kernel_pca
from streamdr.methods.kernel_pca.model import KernelPCAModel

N, D, K = 1200, 6, 3
ROW = 4 * D
SEARCH = {"search": {"rbf": {"gamma": [0.02, 0.2]}, "laplacian": {"gamma": [0.1]}, "linear": {}}, "folds": 4}
METHODS: dict[str, Method] = {
    "nystrom": kernel_pca.KernelPCA(K, gamma=0.1, approximation="nystrom", n_landmarks=40),
    "uniform": kernel_pca.KernelPCA(
        K, gamma=0.1, approximation="nystrom", n_landmarks=40, landmarks="uniform"
    ),
    "kmeans": kernel_pca.KernelPCA(K, gamma=0.1, approximation="nystrom", n_landmarks=20, landmarks="kmeans"),
    "fraction": kernel_pca.KernelPCA(K, gamma=0.1, approximation="nystrom", n_landmarks=0.9),
    "poly": kernel_pca.KernelPCA(K, kernel="poly", approximation="nystrom", n_landmarks=30),
    "laplacian": kernel_pca.KernelPCA(K, kernel="laplacian", approximation="nystrom", n_landmarks=30),
    "ridge": kernel_pca.KernelPCA(
        K, gamma=0.1, approximation="nystrom", n_landmarks=40, fit_inverse_transform=True
    ),
    "random features": kernel_pca.KernelPCA(K, gamma=0.1, approximation="random_features", n_landmarks=50),
    "search": kernel_pca.KernelPCA(K, kernel=SEARCH, n_landmarks=30),
    "sparse": kernel_pca.SparseKernelPCA(K, gamma=0.1),
}


def bent(n_rows=N, dtype="f4", seed=0):
    """Rows about a curved surface."""
    rng = np.random.default_rng(seed)
    u, v = rng.uniform(-2, 2, size=(2, n_rows))
    sheet = np.column_stack([u, v, u * v / 2, np.sin(2 * u), u**2 / 2, v])
    return (2 * sheet + 0.1 * rng.normal(size=(n_rows, D)) + 5.0).astype(dtype)


@pytest.fixture(autouse=True)
def _small_blocks(blocks_of):
    blocks_of(1 << 11)


@pytest.fixture
def path(tmp_path):
    return stored(tmp_path / "x.zarr", bent(), (40, 4))


# Kernels and landmarks that no example of the method has


@pytest.mark.parametrize("name", ["uniform", "poly", "laplacian", "ridge"])
def test_same_bits_on_any_number_of_threads_and_with_a_ledger(name, path, tmp_path):
    one = bits(fit(METHODS[name], path, workers=1).model)
    assert bits(fit(METHODS[name], path, workers=2).model) == one
    settings = {"workers": 2, "ledger": tmp_path / "ledger", "checkpoint_seconds": 0.0}
    assert bits(fit(METHODS[name], path, **settings).model) == one
    again = fit(METHODS[name], path, **settings)
    assert bits(again.model) == one
    assert again.bytes_read == 0


def scale_of(scores):
    return float(np.abs(scores).max())


@pytest.mark.parametrize("chunks", [(40, 4), (7, 6), (1200, 1), (111, 5)])
def test_a_store_gives_what_memory_gives(tmp_path, chunks):
    """For any chunks. The choice of landmarks depends on the layout, so both fits use those of the store."""
    rows = bent(dtype="f8")
    model = checked(KernelPCAModel, fit(METHODS["poly"], stored(tmp_path / "y.zarr", rows, chunks)).model)
    given: dict[str, Any] = {"kernel": model.kernel, "gamma": model.gamma}
    given["approximation"] = model.approximation
    given["landmarks"] = model.landmarks
    here = KernelPCA(K, **given).fit(rows)
    np.testing.assert_allclose(model.eigenvalues, here.eigenvalues_, rtol=1e-9)
    scores = here.transform(rows)
    np.testing.assert_allclose(model.transform(rows), scores, atol=1e-8 * scale_of(scores))
    assert model.captured_trace == pytest.approx(here.captured_trace_, rel=1e-9)


# How much is read


@pytest.mark.parametrize("name", ["nystrom", "uniform", "kmeans", "fraction", "random features", "sparse"])
def test_rows_are_sampled_and_then_read_once(name, path, monkeypatch):
    assert fit(METHODS[name], path).bytes_read <= 2 * N * ROW, "all of so few rows are sampled"
    if name in ("nystrom", "random features"):
        monkeypatch.setattr("streamdr.methods.kernel_pca.kernel_pca._SAMPLE_ROWS", 100)
        method = replace(checked(kernel_pca.KernelPCA, METHODS[name]), n_landmarks=10)
        assert N * ROW < fit(method, path).bytes_read < 1.3 * N * ROW, "a part of many rows is sampled"


def test_a_search_reads_every_row_once(path):
    assert fit(METHODS["search"], path).bytes_read == N * ROW


def test_given_landmarks_need_one_pass(path):
    method = kernel_pca.KernelPCA(K, gamma=0.1, approximation="nystrom", landmarks=bent()[:30])
    assert fit(method, path).bytes_read == N * ROW


def test_a_changed_number_of_components_reads_nothing(path, tmp_path):
    settings = {"workers": 2, "ledger": tmp_path / "ledger"}
    fit(METHODS["nystrom"], path, **settings)
    other = kernel_pca.KernelPCA(K + 2, gamma=0.1, approximation="nystrom", n_landmarks=40)
    assert fit(other, path, **settings).bytes_read == 0


# Through the pipeline


def nights(place, method, rows, **sections):
    return Nights(place, rows, {"method": method, **sections})


NYSTROM = {
    "name": "kernel_pca",
    "n_components": K,
    "gamma": 0.1,
    "approximation": "nystrom",
    "n_landmarks": 40,
}


def test_a_run_reports_what_the_estimator_gives(tmp_path):
    rows = bent(dtype="f8")
    outputs = {"embedding": str(tmp_path / "z.zarr"), "denoised": str(tmp_path / "denoised.zarr")}
    run = nights(tmp_path, NYSTROM, rows, output=outputs)
    run.write(N, chunks=(37, 4))
    report = run.run()
    landmarks = run.model()["landmarks"]
    here = KernelPCA(K, gamma=0.1, approximation="nystrom", landmarks=landmarks).fit(rows)
    scores = here.transform(rows)
    np.testing.assert_allclose(
        store.open_embedding(tmp_path / "z.zarr")[:], scores, atol=1e-8 * scale_of(scores)
    )
    denoised = store.open_rows(tmp_path / "denoised.zarr", "denoised")[...]
    np.testing.assert_allclose(denoised, here.denoise(rows), atol=1e-4)
    summary = report.fit.summary
    assert summary["captured_trace"] == pytest.approx(here.captured_trace_, rel=1e-9)
    assert summary["trace_error"] == pytest.approx(here.trace_error_, rel=1e-6)


def test_only_appended_rows_are_read_and_landmarks_stay(tmp_path):
    rows = bent(4000, dtype="f8")
    run = nights(tmp_path, NYSTROM, rows)
    run.write(3000)
    run.run()
    landmarks = run.model()["landmarks"]
    size = 3000
    for added in (200, 33, 500):
        size += added
        run.grow(size)
        report = run.run().fit
        # Incomplete grains are read again, and grains that are now part of a larger one.
        assert report.bytes_read <= (added + max(size / 16, 200)) * rows[0].nbytes
        assert report.n_rows == size
        np.testing.assert_array_equal(run.model()["landmarks"], landmarks)
    here = KernelPCA(K, gamma=0.1, approximation="nystrom", landmarks=landmarks).fit(rows[:size])
    np.testing.assert_allclose(run.model()["eigenvalues"], here.eigenvalues_, rtol=1e-9)
    model = store.load_model(tmp_path / "out/model.zarr").model
    scores = here.transform(rows)
    np.testing.assert_allclose(model.transform(rows), scores, atol=1e-8 * scale_of(scores))
    assert model.n_samples == size
    assert model.captured_trace == pytest.approx(here.captured_trace_, rel=1e-9)
    assert run.run().fit.bytes_read == 0


def test_appended_rows_that_differ_from_the_first_get_new_landmarks(tmp_path):
    rows = bent(4000, dtype="f8")
    rows[3000:] = bent(1000, dtype="f8", seed=1) + 50.0
    run = nights(tmp_path, NYSTROM, rows)
    run.write(3000)
    run.run()
    before = store.load_model(tmp_path / "out/model.zarr").model
    run.grow(4000)
    run.run()
    after = store.load_model(tmp_path / "out/model.zarr").model
    assert (after.landmarks > 30).any(), "some landmarks are new rows"
    kept = KernelPCA(K, gamma=0.1, approximation="nystrom", landmarks=before.landmarks).fit(rows)
    assert after.captured_trace > present(kept.captured_trace_) + 0.01
    again = KernelPCA(K, gamma=0.1, approximation="nystrom", landmarks=after.landmarks).fit(rows)
    np.testing.assert_allclose(after.eigenvalues, again.eigenvalues_, rtol=1e-9)


def test_an_append_after_a_search_uses_the_best_kernel(tmp_path):
    rows = bent(4000, dtype="f8")
    method = {"name": "kernel_pca", "n_components": K, "kernel": SEARCH, "n_landmarks": 30}
    run = nights(tmp_path, method, rows)
    run.write(3000)
    run.run()
    first = store.load_model(tmp_path / "out/model.zarr").model
    run.grow(3200)
    run.run()
    second = store.load_model(tmp_path / "out/model.zarr").model
    assert (second.kernel, second.gamma) == (first.kernel, first.gamma)
    assert second.candidate_kernels == first.candidate_kernels
    np.testing.assert_array_equal(second.landmarks, first.landmarks)
    assert second.n_samples == 3200
    given = {"kernel": second.kernel, "gamma": second.gamma, "landmarks": second.landmarks}
    here = KernelPCA(K, approximation="nystrom", **given).fit(rows[:3200])
    np.testing.assert_allclose(second.eigenvalues, here.eigenvalues_, rtol=1e-8)


@pytest.mark.parametrize("way", ["exact", "random_features"])
def test_other_approximations_can_be_appended_to(tmp_path, way):
    rows = bent(600, dtype="f8")
    method = {**NYSTROM, "approximation": way}
    run = nights(tmp_path, method, rows)
    run.write(500)
    run.run()
    first = store.load_model(tmp_path / "out/model.zarr").model
    run.grow(600)
    run.run()
    second = store.load_model(tmp_path / "out/model.zarr").model
    assert second.n_samples == 600
    if way == "exact":
        here = KernelPCA(K, gamma=0.1, approximation="exact").fit(rows)
        np.testing.assert_allclose(second.eigenvalues, here.eigenvalues_, rtol=1e-9)
    else:
        np.testing.assert_array_equal(second.frequencies, first.frequencies)


def test_the_number_of_random_features_stays_after_an_append(tmp_path):
    rows = bent(600, dtype="f8")
    run = nights(tmp_path, {**NYSTROM, "approximation": "random_features", "n_landmarks": None}, rows)
    run.write(500)
    run.run()
    first = store.load_model(tmp_path / "out/model.zarr").model
    run.grow(600)
    run.run()
    second = store.load_model(tmp_path / "out/model.zarr").model
    assert first.phases.shape == (500,)
    np.testing.assert_array_equal(second.phases, first.phases)
    assert second.n_samples == 600


def test_sparse_components_can_be_appended_to(tmp_path):
    rows = bent(4000, dtype="f8")
    run = nights(tmp_path, {"name": "sparse_kernel_pca", "n_components": K, "gamma": 0.1}, rows)
    run.write(3000)
    run.run()
    run.grow(3200)
    report = run.run().fit
    assert report.bytes_read <= (200 + 3200 / 16) * rows[0].nbytes
    model = store.load_model(tmp_path / "out/model.zarr").model
    assert model.n_samples == 3200
    assert model.landmarks.shape == (K, D)
    np.testing.assert_allclose(model.transform(rows[:3200]).mean(axis=0), 0.0, atol=1e-8)


def test_a_kernel_matrix_in_a_store(tmp_path):
    rows = bent(300, dtype="f8")
    apart = ((rows[:, None] - rows) ** 2).sum(axis=2)
    among = np.exp(-0.1 * apart)
    for approximation in ("exact", "nystrom"):
        place = tmp_path / approximation
        place.mkdir()
        method = {**NYSTROM, "kernel": "precomputed", "gamma": None, "approximation": approximation}
        run = nights(place, method, among, output={"embedding": str(place / "z.zarr")})
        run.write(300, chunks=(33, 100))
        run.run()
        model = store.load_model(place / "out/model.zarr").model
        given = {} if approximation == "exact" else {"landmarks": rows[model.landmark_rows.astype(int)]}
        here = KernelPCA(K, gamma=0.1, approximation=approximation, **given).fit(rows)
        np.testing.assert_allclose(model.eigenvalues, here.eigenvalues_, rtol=1e-8)
        scores = here.transform(rows)
        np.testing.assert_allclose(
            store.open_embedding(place / "z.zarr")[:], scores, atol=1e-7 * scale_of(scores)
        )


# From the command line


def configuration(place, **method):
    config = {
        "input": {"path": "x.zarr"},
        "method": {"name": "kernel_pca", "n_components": K, **method},
        "output": {"model": "out/model.zarr", "embedding": "out/z.zarr"},
    }
    (place / "config.yaml").write_text(yaml.safe_dump(config))
    return "config.yaml"


def test_a_search_prints_its_table(path, tmp_path):
    outcome = succeed("run", configuration(tmp_path, kernel=SEARCH, n_landmarks=30), cwd=tmp_path)
    model = store.load_model(tmp_path / "out/model.zarr").model
    lines = outcome.out.splitlines()
    order = np.argsort(model.candidate_errors.mean(axis=1))
    line_numbers = []
    for number in order:
        errors = model.candidate_errors[number]
        words = f"{model.candidate_kernels[number]} {errors.mean():.3%} {errors.std(ddof=1):.3%}"
        found = [row for row, line in enumerate(lines) if words in " ".join(line.split())]
        assert len(found) == 1, words
        line_numbers += found
    assert line_numbers == sorted(line_numbers), "the best first"
    assert model.kernel == model.candidate_kernels[order[0]].split()[0]


def test_a_users_function_is_refused_in_a_configuration(path, tmp_path):
    outcome = streamdr("run", configuration(tmp_path, kernel="my.function"), cwd=tmp_path)
    assert outcome.code != 0
    assert "kernel" in outcome.err


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ({"gamma": 0}, "gamma"),
        ({"n_landmarks": N + 1, "approximation": "nystrom"}, "n_landmarks"),
        ({"kernel": "precomputed"}, "square"),
        ({"kernel": {"search": {"rbf": {"gama": [1]}}}}, "gama"),
    ],
    ids=str,
)
def test_invalid_configurations_are_refused_in_one_line(path, tmp_path, method, words):
    outcome = streamdr("run", configuration(tmp_path, **method), cwd=tmp_path)
    assert outcome.code != 0
    assert words in " ".join(outcome.errors), outcome.err
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "out/model.zarr").exists()
