"""Genotypes of samples from several populations: 0, 1 or 2 copies of an allele, and -1 where missing.

Populations drift apart from their ancestors (Balding and Nichols 1995): an allele of frequency p among the
ancestors has a frequency from the beta distribution with parameters p (1 - F) / F and (1 - p) (1 - F) / F in
a population that has drifted by F. Some alleles are rare, and some variants have one allele only. A sample
follows from its number, so more samples can be made later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from streamdr.core.blocks import Array
from streamdr.store.anndata.elements import write_element
from streamdr.store.anndata.zarr_nodes import ZarrWriter
from streamdr.store.arrays import ArrayLayout
from streamdr.store.matrix import NAME as MATRIX
from streamdr.store.matrix import create_matrix
from streamdr.store.publish import Staging
from streamdr.store.record import write_record

NAME = "genotypes"
SAMPLES = 1_000

_BAND = 500
"""The samples that are made with one stream of random numbers."""
_CHUNK_SAMPLES = 250
MISSING = -1
"""What stands for a genotype that is missing."""


@dataclass(frozen=True)
class Genotypes:
    """Genotypes of 3,000 variants in samples of four populations.

    Parameters
    ----------
    seed : int
        The seed of all random numbers.
    """

    seed: int = 0

    populations: ClassVar[tuple[str, ...]] = ("north", "south", "east", "island")
    drift: ClassVar[tuple[float, ...]] = (0.01, 0.02, 0.02, 0.08)
    """How far each population is from the ancestors (F)."""
    n_variants: ClassVar[int] = 3_000
    missing: ClassVar[float] = 0.03
    """The share of genotypes that are missing."""

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of the variants."""
        return tuple(f"1:{1_000 * (number + 1)}:A:G" for number in range(self.n_variants))

    @cached_property
    def frequencies(self) -> Array:
        """The frequency of the allele in each population (populations x variants)."""
        rng = np.random.default_rng([self.seed, 0])
        ancestral = rng.beta(0.6, 1.2, self.n_variants)
        ancestral[::100] = 0.0  # one allele only
        drifted = [
            rng.beta(
                np.maximum(ancestral * (1 - f) / f, 1e-300), np.maximum((1 - ancestral) * (1 - f) / f, 1e-300)
            )
            for f in self.drift
        ]
        found = np.stack(drifted)
        found[:, ::100] = 0.0
        return found

    def samples(self, n: int) -> tuple[Array, Array]:
        """Return the genotypes of the first samples, and the number of the population of each."""
        bands = [self._band(number) for number in range(-(-n // _BAND))]
        genotypes, populations = (np.concatenate(parts)[:n] for parts in zip(*bands, strict=True))
        return genotypes, populations

    def _band(self, number: int) -> tuple[Array, Array]:
        """Return the genotypes and populations of a band of samples."""
        rng = np.random.default_rng([self.seed, 1, number])
        populations = rng.integers(0, len(self.populations), _BAND)
        genotypes = rng.binomial(2, self.frequencies[populations]).astype(np.int8)
        genotypes[rng.random(genotypes.shape) < self.missing] = MISSING
        return genotypes, populations


def write(path: Path, made: Genotypes, recipe: Mapping[str, Any], n_samples: int) -> None:
    """Write samples to a new store, with their names and populations. It appears completely or not at all."""
    genotypes, populations = made.samples(n_samples)
    text = {
        "sample": [f"sample {number}" for number in range(1, n_samples + 1)],
        "population": np.array(made.populations)[populations].tolist(),
    }
    with Staging(path, kind="example", overwrite=False) as staging:
        chunks = (min(n_samples, _CHUNK_SAMPLES), made.n_variants)
        layout = ArrayLayout(genotypes.shape, chunks, genotypes.dtype, ("sample", "variant"))
        create_matrix(staging.path, layout, made.variants, name=MATRIX)[...] = genotypes
        writer = ZarrWriter(staging.path, 3)
        for name, values in text.items():
            write_element(writer, name, np.array(values, dtype=np.str_))
        write_record(staging.path, "example", {"recipe": dict(recipe)}, complete=True)
        staging.publish()
