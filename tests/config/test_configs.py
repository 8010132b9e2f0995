"""The configurations that ship: each runs as it stands, and what comes out is what it says."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import anndata
import jsonschema
import numpy as np
import pytest
import scanpy
import sparse_stores
import xarray as xr
import zarr
from command_line import SCRIPT, succeed
from narrowing import checked, present, values_of
from scipy.spatial.distance import pdist, squareform
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import KFold

from streamdr.config import comparison_schema, load, schema
from streamdr.config.problems import SourcePosition
from streamdr.config.yaml_source import parse_yaml
from streamdr.data.examples import sea_surface
from streamdr.methods import pca
from streamdr.methods.kernel_pca import KernelPCA
from streamdr.methods.kernel_pca.model import KernelPCAModel
from streamdr.methods.pca.model import PCAModel
from streamdr.store import load_model, open_embedding

CONFIGS = Path(__file__).parents[2] / "configs"
SCHEMAS = ("schema.json", "comparison-schema.json")
COMPARISONS = ("gallery",)  # of which one is run as a whole in test_comparison.py
NAMES = sorted(path.stem for path in CONFIGS.glob("*.yaml") if path.stem not in COMPARISONS)
WITH_MISSING = ("impute", "impute_mixture")
MAPS = ("classical_mds", "landmark_mds", "metric_mds", "nonmetric_mds")
KERNELS = ("kernel_pca", "kernel_search", "kernel_denoise", "sparse_kernel_pca")
SELECTION = ("select_correlation", "select_f_score", "select_forward", "select_mutual_info")
WITH_LABELS = ("lda", *SELECTION)  # which have tests of their own
UNITS = ("som",)
GRIDS = ("climate", "climate_nightly")
BIOLOGY = ("single_cells", "genotypes", "genotypes_ppca")


def exact_pca(values: np.ndarray, k: int, *, scale: bool) -> tuple[np.ndarray, np.ndarray, float]:
    """The leading variances and components in double precision, and all of the variance."""
    centred = values - values.mean(axis=0, dtype=np.float64)
    if scale:
        centred /= centred.std(axis=0, ddof=1)
    if len(values) < values.shape[1]:
        _, singular, components = np.linalg.svd(centred, full_matrices=False)
        variances = singular**2 / (len(values) - 1)
    else:
        variances, vectors = np.linalg.eigh(centred.T @ centred / (len(values) - 1))
        variances, components = variances[::-1], vectors.T[::-1]
    return variances[:k], components[:k], float(variances.sum())


def run(name: str, place: Path) -> PCAModel:
    """What the configuration makes of its data, checked against the same in memory."""
    configuration = load(CONFIGS / f"{name}.yaml")
    values = np.asarray(zarr.open_array(place / checked(str, configuration.input.path) / "X", mode="r")[:])
    model = load_model(place / configuration.output.model).model
    scale = checked(pca.PCA, configuration.method).scale
    variances, components, total = exact_pca(values, model.n_components, scale=scale)
    np.testing.assert_allclose(model.principal.explained_variance, variances, rtol=1e-5)
    assert model.total_variance == pytest.approx(total, rel=1e-5)
    # The two bases span the same subspace when all cosines of the angles between them are one.
    cosines = np.linalg.svd(model.principal.components @ components.T, compute_uv=False)
    np.testing.assert_allclose(cosines, 1, atol=1e-5)
    embedding = open_embedding(place / present(configuration.output.embedding))[:]
    np.testing.assert_allclose(embedding, model.transform(values), rtol=1e-5, atol=1e-5)
    return model


@pytest.fixture
def place(tmp_path):
    shutil.copytree(CONFIGS, tmp_path / "configs")
    return tmp_path


def test_the_quickstart_runs_as_the_readme_says(place):
    words = [SCRIPT, "run", "configs/quickstart.yaml", "--json"]
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    assert report["n_rows"] == 200_000
    assert report["peak_rss"] < 600_000_000
    assert run("quickstart", place).n_components == 10


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in NAMES
        if name not in ("quickstart", *WITH_MISSING, *KERNELS, *WITH_LABELS, *MAPS, *UNITS, *GRIDS, *BIOLOGY)
    ],
)
def test_an_example_runs_and_is_right(name, place):
    report = succeed("run", f"configs/{name}.yaml", "--json", cwd=place).report
    model = run(name, place)
    asked = checked(pca.PCA, load(CONFIGS / f"{name}.yaml").method)
    assert asked.solver in ("auto", model.solver)
    assert model.whiten == asked.whiten
    embedding = open_embedding(place / report["embedding"])[:].astype(np.float64)
    if name == "variance_fraction":
        ratios = np.cumsum(model.explained_variance_ratio)
        assert ratios[-2] < checked(float, asked.n_components) <= ratios[-1]
    elif name == "whiten_pca":
        np.testing.assert_allclose(np.cov(embedding.T), np.eye(6), atol=1e-4)
    elif name == "whiten_zca":
        np.testing.assert_allclose(np.cov(embedding.T), np.eye(32), atol=1e-4)
        values = np.asarray(zarr.open_array(place / "data" / "whiten_zca.zarr" / "X", mode="r")[:])
        crossed = np.corrcoef(embedding.T, values.T)[:32, 32:]
        assert np.array_equal(np.argmax(np.abs(crossed), axis=0), np.arange(32))
    elif name == "rotation":
        spread = np.diag(model.explained_variance)
        np.testing.assert_allclose(np.cov(embedding.T), spread, atol=1e-9 * spread[0, 0])
        assert not np.allclose(model.components @ model.components.T, np.eye(10), atol=1e-2)
    elif name == "cluster":
        words = ["--set", "execution.cluster=null", "--set", "output.model=out/threads/model.zarr"]
        succeed("fit", f"configs/{name}.yaml", *words, cwd=place)
        assert np.array_equal(model.components, load_model(place / "out/threads/model.zarr").model.components)


@pytest.mark.parametrize("name", WITH_MISSING)
def test_missing_values_are_imputed_and_the_error_is_reported_beside_that_of_others(name, place):
    report = succeed("run", f"configs/{name}.yaml", "--json", cwd=place).report
    configuration = load(CONFIGS / f"{name}.yaml")
    digits = load_digits().data
    given = np.asarray(zarr.open_array(place / configuration.input.path / "X", mode="r")[:])
    filled = np.asarray(zarr.open_array(place / configuration.output.imputed / "imputed", mode="r")[:])
    missing = np.isnan(given)
    assert missing.mean() == pytest.approx(present(configuration.input.example).missing, abs=0.01)
    np.testing.assert_array_equal(filled[~missing], digits[~missing])
    assert not np.isnan(filled).any()
    reported = report["transform"]["outputs"]["imputed"]["filling"]
    assert reported["holes"] == missing.sum()
    errors = reported["rms_error"]
    assert errors["streamdr"] == pytest.approx(np.sqrt(np.mean((filled - digits)[missing] ** 2)))
    means = np.where(missing, np.nanmean(given, axis=0), given)
    assert errors["column means"] == pytest.approx(np.sqrt(np.mean((means - digits)[missing] ** 2)))
    assert errors["streamdr"] < 0.75 * errors["column means"]
    if name == "impute_mixture":
        assert errors["streamdr"] < errors["scikit-learn IterativeImputer"]
        shares = zarr.open_array(place / configuration.output.responsibilities / "responsibilities", mode="r")
        np.testing.assert_allclose(values_of(shares).sum(axis=1), 1.0, rtol=1e-12)
    else:
        variance = zarr.open_array(
            place / configuration.output.imputed_variance / "imputed_variance", mode="r"
        )
        reported_variance = values_of(variance)
        assert not reported_variance[~missing].any()
        assert (reported_variance[missing] > 0).all()
        # Pixels are not normal with one noise for all, so the variances are no more than a guide: where they
        # are larger, so are the errors.
        errors_squared = (filled - digits)[missing] ** 2
        unsure = reported_variance[missing] > np.median(reported_variance[missing])
        assert errors_squared[unsure].mean() > errors_squared[~unsure].mean()
    again = succeed("run", f"configs/{name}.yaml", cwd=place)
    assert "up to date" in again.err


def in_signs_of(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Columns with the signs of others: those of components are arbitrary."""
    signs: np.ndarray = values * np.sign(np.sum(values * others, axis=0))
    return signs


def test_single_cells_have_the_components_of_scanpy(place):
    report = succeed("run", "configs/single_cells.yaml", "--json", cwd=place).report
    with sparse_stores.plain_text():
        cells = anndata.read_zarr(place / "data/single_cells.zarr")
        cells = cells[(cells.obs["n_counts"] >= 300) & (cells.obs["pct_counts_mt"] < 10)].copy()
        cells.X = cells.X.astype(np.float64)
        scanpy.pp.normalize_total(cells, target_sum=1e4)
        scanpy.pp.log1p(cells)
        scanpy.pp.highly_variable_genes(cells, flavor="seurat", n_top_genes=300)
        scanpy.pp.pca(cells, n_comps=20, svd_solver="arpack", mask_var="highly_variable", dtype="float64")
        written = anndata.read_zarr(place / "out/single_cells/pca.zarr")
    assert report["n_rows"] == cells.n_obs < 2_000
    scores, wanted = open_embedding(place / report["embedding"])[:], cells.obsm["X_pca"]
    np.testing.assert_allclose(in_signs_of(scores, wanted), wanted, atol=1e-6)
    ours, theirs = written.uns["pca"], cells.uns["pca"]
    np.testing.assert_allclose(ours["variance"], theirs["variance"], rtol=1e-6)
    np.testing.assert_allclose(ours["variance_ratio"], theirs["variance_ratio"], rtol=1e-6)
    loadings = cells.varm["PCs"]
    np.testing.assert_allclose(in_signs_of(written.varm["PCs"], loadings), loadings, atol=1e-6)
    np.testing.assert_allclose(written.obsm["X_pca"], scores, atol=1e-10)  # of other blocks of rows
    assert written.obs_names.tolist() == cells.obs_names.tolist()
    assert written.var_names.tolist() == cells.var_names.tolist()
    assert "up to date" in succeed("run", "configs/single_cells.yaml", cwd=place).err


def separation(scores: np.ndarray, groups: np.ndarray) -> float:
    """The share of rows that are nearest to the mean of their own group, in the first three components."""
    names = np.unique(groups)
    means = np.stack([scores[groups == name, :3].mean(axis=0) for name in names])
    nearest = names[np.argmin(pairwise_distances(scores[:, :3], means), axis=1)]
    return float(np.mean(nearest == groups))


@pytest.mark.parametrize("name", ["genotypes", "genotypes_ppca"])
def test_genotypes_with_missing_values_show_the_populations(name, place):
    report = succeed("run", f"configs/{name}.yaml", "--json", cwd=place).report
    store = place / "data/genotypes.zarr"
    stored = values_of(zarr.open_array(store / "X", mode="r"))
    populations = np.array(values_of(zarr.open_array(store / "population", mode="r")).tolist())
    genotypes = np.where(stored == -1, np.nan, stored.astype(np.float64))
    scores = open_embedding(place / report["embedding"])[:]
    assert separation(scores, populations) > 0.99
    if name == "genotypes":
        means = np.nanmean(genotypes, axis=0)
        rarer = np.minimum(means / 2, 1 - means / 2)
        kept = rarer >= 0.01
        scaled = (genotypes - means)[:, kept] / np.sqrt(means * (1 - means / 2))[kept]
        left, sizes, _ = np.linalg.svd(np.nan_to_num(scaled), full_matrices=False)
        # A missing value counts as the mean, so the columns are centred. Scores are in single precision.
        np.testing.assert_allclose(np.var(scores, axis=0, ddof=1), sizes[:10] ** 2 / 999, rtol=1e-4)
        wanted = (left * sizes)[:, :3]
        np.testing.assert_allclose(in_signs_of(scores[:, :3], wanted), wanted, atol=1e-3)
    else:
        filled = values_of(zarr.open_array(place / "out/genotypes_ppca/imputed.zarr/imputed", mode="r"))
        missing = np.isnan(genotypes)
        np.testing.assert_array_equal(filled[~missing], genotypes[~missing])
        assert not np.isnan(filled).any()
    assert "up to date" in succeed("run", f"configs/{name}.yaml", cwd=place).err


def run_kernels(name: str, place: Path) -> tuple[dict[str, Any], KernelPCAModel, np.ndarray, np.ndarray]:
    """The report, the model, the data and the scores, which are what the model makes of the data."""
    report = succeed("run", f"configs/{name}.yaml", "--json", cwd=place).report
    configuration = load(CONFIGS / f"{name}.yaml")
    values = np.asarray(
        zarr.open_array(place / checked(str, configuration.input.path) / "X", mode="r")[:]
    ).astype(np.float64)
    model = load_model(place / configuration.output.model).model
    scores = open_embedding(place / present(configuration.output.embedding))[:]
    np.testing.assert_allclose(scores, model.transform(values), rtol=1e-3, atol=1e-4)
    assert "up to date" in succeed("run", f"configs/{name}.yaml", cwd=place).err
    return report, model, values, scores


def test_landmarks_stand_for_all_rows(place):
    _, model, values, scores = run_kernels("kernel_pca", place)
    between = rbf_kernel(values, model.landmarks, gamma=model.gamma)
    sizes, vectors = np.linalg.eigh(rbf_kernel(model.landmarks, gamma=model.gamma))
    features = between @ (vectors / np.sqrt(sizes))
    # Single precision leaves some 3e-4 of the trace uncertain.
    assert model.captured_trace == pytest.approx(np.sum(features**2) / len(values), abs=5e-4)
    expected = np.linalg.eigvalsh(np.cov(features.T, ddof=0))[::-1][: model.n_components]
    np.testing.assert_allclose(model.explained_variance, expected, rtol=1e-4)
    np.testing.assert_allclose(scores.var(axis=0), expected, rtol=1e-3)
    median = np.median(pairwise_distances(values[:1000], metric="sqeuclidean"))
    assert model.gamma == pytest.approx(1 / (2 * median), rel=0.2)
    assert (model.n_landmarks, present(model.captured_trace) > 0.99) == (300, True)


def test_a_search_tries_every_kernel_with_one_reading_and_fits_the_best(place):
    report, _, values, _ = run_kernels("kernel_search", place)
    assert report["fit"]["bytes_read"] == values.nbytes
    table = report["fit"]["summary"]["kernels"]
    kernel = checked(KernelPCA, load(CONFIGS / "kernel_search.yaml").method).kernel
    grid = checked(dict, kernel)["search"]
    assert len(table) == sum(np.prod([len(values) for values in given.values()]) for given in grid.values())
    assert {each["kernel"].split()[0] for each in table} == set(grid)
    assert [each["error"] for each in table] == sorted(each["error"] for each in table)
    assert report["fit"]["summary"]["kernel"] == table[0]["kernel"]
    assert all(0 < each["error"] < 1.01 and each["spread"] < 0.05 for each in table)
    # What ten linear components of four fifths of the digits leave of the others, by other means.
    left = []
    for known, other in KFold(5, shuffle=True, random_state=0).split(values):
        pca = PCA(10).fit(values[known])
        lost = values[other] - pca.inverse_transform(pca.transform(values[other]))
        left.append(np.sum(lost**2) / np.sum((values[other] - pca.mean_) ** 2))
    linear = next(each for each in table if each["kernel"] == "linear")
    assert linear["error"] == pytest.approx(np.mean(left), abs=0.005)


def test_noise_is_removed_and_the_error_is_reported_beside_that_of_linear_pca(place):
    report, model, values, _ = run_kernels("kernel_denoise", place)
    digits = load_digits().data
    output = load(CONFIGS / "kernel_denoise.yaml").output
    denoised = np.asarray(zarr.open_array(place / output.denoised / "denoised", mode="r")[:])
    np.testing.assert_allclose(denoised, model.denoise(values), atol=1e-6)
    reported = report["transform"]["outputs"]["denoised"]["denoising"]["rms_error"]
    assert reported["streamdr"] == pytest.approx(np.sqrt(np.mean((denoised - digits) ** 2)))
    assert reported["as it was given"] == pytest.approx(np.sqrt(np.mean((values - digits) ** 2)))
    same = PCA(model.n_components, svd_solver="full").fit(values)
    rebuilt = same.inverse_transform(same.transform(values))
    linear = reported[f"linear PCA, {model.n_components} components"]
    assert linear == pytest.approx(np.sqrt(np.mean((rebuilt - digits) ** 2)))
    (best,) = (error for means, error in reported.items() if means.endswith("its best"))
    assert reported["streamdr"] < 0.85 * best < best <= linear
    assert model.approximation == "exact"


def test_sparse_components_are_samples(place):
    _, model, values, scores = run_kernels("sparse_kernel_pca", place)
    assert present(model.landmarks).shape == (4, 16)
    np.testing.assert_array_equal(model.landmarks, values[present(model.landmark_rows).astype(int)])
    centred = rbf_kernel(values, model.landmarks, gamma=model.gamma)
    centred -= centred.mean(axis=0)
    onto_scores, *_ = np.linalg.lstsq(centred, scores, rcond=None)
    np.testing.assert_allclose(centred @ onto_scores, scores, atol=1e-4, err_msg="more than four kernels")
    assert 0.5 < model.explained_variance_ratio.sum() < 1


@pytest.mark.parametrize("name", SELECTION)
def test_columns_are_selected_and_copied(name, place):
    report = succeed("run", f"configs/{name}.yaml", "--json", cwd=place).report
    configuration = load(CONFIGS / f"{name}.yaml")
    values = np.asarray(zarr.open_array(place / configuration.input.path / "X", mode="r")[:])
    model = load_model(place / configuration.output.model).model
    kept = open_embedding(place / present(configuration.output.embedding))[:]
    np.testing.assert_array_equal(kept, values[:, np.sort(model.selected)])
    reported = [each["column"] for each in report["fit"]["summary"]["columns"]]
    assert reported == model.selected.tolist()
    k = vars(configuration.method)["k"]
    assert k in ("cv", len(reported))
    if k == "cv":
        picture = f"out/{name}.png"
        succeed("plot", configuration.output.model, "--out", picture, "--kind", "selection_path", cwd=place)
        assert (place / picture).stat().st_size > 10_000
    assert "up to date" in succeed("run", f"configs/{name}.yaml", cwd=place).err


@pytest.mark.parametrize("name", NAMES)
def test_an_example_writes_only_where_git_does_not_look(name):
    configuration = load(CONFIGS / f"{name}.yaml")
    output = configuration.output
    assert checked(str, configuration.input.path).startswith("data/")
    assert output.model.startswith("out/")
    assert present(output.embedding).startswith("out/")


def test_the_schema_that_editors_find_beside_them_is_current():
    runs, comparisons = (json.loads((CONFIGS / name).read_text()) for name in SCHEMAS)
    assert runs == schema(), "write it anew: streamdr schema > configs/schema.json"
    again = "write it anew: streamdr schema --comparison > configs/comparison-schema.json"
    assert comparisons == comparison_schema(), again
    for path in CONFIGS.glob("*.yaml"):
        compares = path.stem in COMPARISONS
        assert path.read_text().startswith(f"# yaml-language-server: $schema={SCHEMAS[compares]}\n")
        written = parse_yaml(path.read_text(), partial(SourcePosition, path.name)).data
        jsonschema.validate(written, comparisons if compares else runs)


@pytest.mark.parametrize("name", MAPS)
def test_maps_show_distances_as_well_as_they_say(place, name):
    command = [SCRIPT, "run", f"configs/{name}.yaml"]
    subprocess.run(command, cwd=place, capture_output=True, text=True, check=True)
    configuration = load(CONFIGS / f"{name}.yaml")
    given = np.asarray(zarr.open_array(place / configuration.input.path / "X", mode="r")[:])
    model = load_model(place / configuration.output.model).model
    points = open_embedding(place / present(configuration.output.embedding))[:]
    np.testing.assert_allclose(points, model.transform(given), rtol=1e-10, atol=1e-10)
    metric = vars(configuration.method)["metric"]
    wanted = squareform(given, checks=False) if metric == "precomputed" else pdist(given, metric)
    reached = pdist(points)
    if name == "metric_mds":
        there = wanted > 0
        sammon = np.sum((wanted - reached)[there] ** 2 / wanted[there]) / wanted.sum()
        assert model.stress == pytest.approx(sammon, rel=1e-10)
        return
    if name == "nonmetric_mds":
        wanted = IsotonicRegression().fit_transform(wanted.round(10), reached)
    stress = np.sqrt(np.sum((wanted - reached) ** 2) / np.sum(reached**2))
    assert model.stress == pytest.approx(stress, rel=0.03)  # of sampled pairs where there are many


@pytest.mark.parametrize("name", GRIDS)
def test_components_of_a_grid_are_maps(place, name):
    if name == "climate_nightly":
        for _ in range(3):
            sea_surface.deliver(place / "data" / "days", initial=400)
    report = succeed("run", f"configs/{name}.yaml", "--json", cwd=place).report
    configuration = load(CONFIGS / f"{name}.yaml")
    stores = sorted(place.glob(checked(str, configuration.input.path)))
    given = xr.concat([xr.open_zarr(store, consolidated=False) for store in stores], "time").sst.load()
    chosen = (configuration.input.select or {"lat": [-90, 90]})["lat"]
    given = given.sel(lat=slice(*checked(list, chosen)))
    rows = given.stack(cell=("lat", "lon")).dropna("cell")
    weights = np.sqrt(np.cos(np.deg2rad(rows.lat.values)))
    centred = (rows.values.astype(np.float64) - rows.values.mean(axis=0, dtype=np.float64)) * weights
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    model = xr.open_zarr(place / configuration.output.model, consolidated=False)
    np.testing.assert_allclose(model.explained_variance, sizes[:4] ** 2 / (len(rows) - 1), rtol=1e-5)
    assert model.components.dims == ("component", "lat", "lon")
    np.testing.assert_array_equal(model.lat, given.lat)
    np.testing.assert_array_equal(np.isnan(model.components[0]), np.isnan(given[0]))
    found = model.components.stack(cell=("lat", "lon")).dropna("cell").values
    np.testing.assert_allclose(np.abs(np.sum(found * axes[:4], axis=1)), 1, atol=1e-5)
    scores = xr.open_zarr(place / present(configuration.output.embedding), consolidated=False)
    np.testing.assert_array_equal(scores.time, given.time)
    np.testing.assert_allclose(scores.embedding, centred @ found.T, atol=1e-3)
    assert (report["n_rows"], len(scores.time)) == (len(rows), len(rows))
    assert "up to date" in succeed("run", f"configs/{name}.yaml", cwd=place).err


@pytest.mark.parametrize("name", UNITS)
def test_every_row_has_its_nearest_unit_and_similar_rows_are_near_on_the_map(place, name):
    report = succeed("run", f"configs/{name}.yaml", "--json", cwd=place).report
    configuration = load(CONFIGS / f"{name}.yaml")
    digits = load_digits()
    model = load_model(place / configuration.output.model).model
    units = values_of(zarr.open_array(place / configuration.output.predicted / "predicted", mode="r"))
    distances = pairwise_distances(digits.data, model.codebook)
    # Distances are rounded as single precision is.
    np.testing.assert_allclose(np.sort(distances, axis=1)[:, 0], distances[np.arange(len(units)), units])
    reported = report["fit"]["summary"]
    assert reported["quantization_error"] == pytest.approx(distances.min(axis=1).mean(), rel=1e-5)
    points = open_embedding(place / present(configuration.output.embedding))[:]
    np.testing.assert_allclose(points, model.coordinates[units], rtol=1e-6)
    first, second = np.argsort(distances, axis=1)[:, :2].T
    apart = np.linalg.norm(model.coordinates[first] - model.coordinates[second], axis=1) > 1.001
    assert reported["topographic_error"] == pytest.approx(apart.mean(), abs=0.002)
    # Rows of a unit are of one digit, mostly: the map never had the labels.
    same = [np.bincount(digits.target[units == unit]).max() for unit in np.unique(units)]
    assert sum(same) > 0.9 * len(units)
    for kind in ("u_matrix", "component_planes", "hits", "quantization"):
        succeed("plot", configuration.output.model, "--out", f"out/{kind}.png", "--kind", kind, cwd=place)
        assert (place / f"out/{kind}.png").stat().st_size > 10_000
    assert "up to date" in succeed("run", f"configs/{name}.yaml", cwd=place).err
