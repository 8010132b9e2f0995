"""How fast this machine is: measured once, in about a second, and kept in the user's cache.

Speeds are for telling how long something will take. What is computed, and how, never depends on them.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from streamdr.core.blocks import Array
from streamdr.core.files import read_regular
from streamdr.core.system import available_cores
from streamdr.core.work import KINDS, Work
from streamdr.data.zarr.decoding_speed import decodings

_FORMAT, _VERSION = "streamdr speeds", 1
_MOST_BYTES = 1 << 16
_SECONDS, _ROUNDS = 0.006, 5
"""How long each speed is measured, and how often. The median counts: it has the usual load of the machine."""
_FILE_BYTES = 32 << 20


class Speed(NamedTuple):
    """Units per second: of one thread alone, and of threads on all cores together."""

    alone: float
    together: float


@dataclass(frozen=True)
class Calibration:
    """The speeds of a machine."""

    cores: int
    speeds: Mapping[str, Speed]
    """The speed of each kind of `Work`."""
    start: float
    """The seconds until a command begins its work."""

    def seconds(self, work: Work, workers: int = 1) -> float:
        """Return the time of work that is divided evenly among workers."""
        return sum(amount / self._at(self.speeds[kind], workers) for kind, amount in work.amounts.items())

    def _at(self, speed: Speed, workers: int) -> float:
        """Return the speed of some workers, between that of one and that of one on each core."""
        share = 0.0 if self.cores == 1 else min(workers - 1, self.cores - 1) / (self.cores - 1)
        return speed.alone + share * (speed.together - speed.alone)


_NOMINAL = {
    "product32": 4e10,
    "product64": 2e10,
    "square32": 6e10,
    "square64": 3e10,
    "thin32": 2e10,
    "thin64": 1e10,
    "moved": 1e10,
    "cached": 1e9,
    "functions": 2e8,
    "eigen": 2e9,
    "sparse": 1e9,
    "scattered": 2e8,
    "calls": 5e5,
    "read": 5e9,
    "disk": 5e8,
    "written": 3e8,
    "blosc": 3e9,
    "blosc_zstd": 1e9,
    "lz4": 2e9,
    "zstd": 1e9,
    "zlib": 2e8,
    "crc32c": 1e10,
}
"""The speeds of one thread of a usual machine."""
_ONE_DEVICE = ("disk", "written")
"""More threads are not faster."""


def nominal() -> Calibration:
    """Return the speeds of a usual machine, for where none were measured."""
    cores = available_cores()
    speeds = {
        kind: Speed(alone, alone * (1 if kind in _ONE_DEVICE else cores)) for kind, alone in _NOMINAL.items()
    }
    return Calibration(cores, speeds, start=1.0)


Origin = Literal["measured now", "measured earlier", "nominal"]


class Calibrated(NamedTuple):
    """The speeds of this machine, and where they come from."""

    speeds: Calibration
    origin: Origin
    problem: str = ""
    """Why they could not be kept; empty if they are."""


def calibrate(*, again: bool = False) -> Calibrated:
    """Return the speeds that were measured on this machine earlier, or measure them now and keep them.

    `again` measures them in any case. Speeds that cannot be kept are measured every time.
    """
    if not again and (kept := remembered()) is not None:
        return Calibrated(kept, "measured earlier")
    speeds = measure()
    try:
        keep(speeds)
    except OSError as error:
        return Calibrated(speeds, "measured now", f"{place().parent}: {error.strerror or error}")
    return Calibrated(speeds, "measured now")


def known() -> Calibrated:
    """Return the speeds that were measured on this machine earlier, or those of a usual machine."""
    kept = remembered()
    return Calibrated(nominal(), "nominal") if kept is None else Calibrated(kept, "measured earlier")


def place() -> Path:
    """Return the file in the cache of the user that has the speeds of this machine."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    # The specification says that a relative path is to be ignored.
    folder = Path(given) if os.path.isabs(given) else Path(os.path.expanduser("~"), ".cache")
    digest = hashlib.sha256(json.dumps(machine(), sort_keys=True).encode()).hexdigest()
    return folder / "streamdr" / f"speeds-{digest[:16]}.json"


def remembered() -> Calibration | None:
    """Return the speeds in the cache; None where there are none, or where the file is damaged or foreign."""
    try:
        return _parsed(json.loads(read_regular(place(), _MOST_BYTES)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def keep(speeds: Calibration) -> None:
    """Replace the file in the cache in one step."""
    path = place()
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {"format": _FORMAT, "version": _VERSION, "machine": machine(), "speeds": asdict(speeds)}
    descriptor, name = tempfile.mkstemp(prefix=".speeds-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(found, file, indent=1)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _parsed(found: Any) -> Calibration:
    """Return the speeds in a file, or raise an error if they are not those of this machine."""
    if (found["format"], found["version"], found["machine"]) != (_FORMAT, _VERSION, machine()):
        raise ValueError("these are the speeds of another machine, or of another version")
    given = found["speeds"]
    return Calibration(
        cores=available_cores(),
        speeds={kind: _speed(given["speeds"][kind]) for kind in KINDS},
        start=_positive(given["start"]),
    )


def _speed(given: Any) -> Speed:
    alone, together = given
    return Speed(_positive(alone), _positive(together))


def _positive(number: Any) -> float:
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise TypeError(f"{number!r} is not a number")
    if not 0 < number < math.inf:
        raise ValueError(f"{number!r} is not a speed")
    return float(number)


@cache
def machine() -> dict[str, Any]:
    """Return what speeds depend on: the processor and its cores, and the libraries that compute."""
    return {
        "node": platform.node(),
        "processor": _processor(),
        "cores": available_cores(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def _processor() -> str:
    """Return the name of the processor, as far as the system tells it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def measure() -> Calibration:
    """Measure the speeds of this machine, in about a second."""
    cores = available_cores()
    decoding = {kind: lambda each=each: Probe(each.size, each.decode) for kind, each in decodings().items()}
    with threadpool_limits(1, "blas"):
        speeds = {kind: _measured(probe, cores) for kind, probe in (_PROBES | decoding).items()}
    return Calibration(cores, speeds | _disk_speeds(cores), _start_seconds())


def _disk_speeds(cores: int) -> dict[str, Speed]:
    """Return the speeds of files in the cache or the temporary folder; nominal if neither is writable."""
    for folder in (place().parent, Path(tempfile.gettempdir())):
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".speeds-", dir=folder) as inside:
                return _file_speeds(Path(inside, "noise"), cores)
    found = nominal().speeds
    return {kind: found[kind] for kind in ("read", "disk", "written")}


class Probe(NamedTuple):
    """Some work to be timed, and its amount."""

    amount: float
    run: Callable[[], object]


def _measured(make: Callable[[], Probe], cores: int) -> Speed:
    """Return the speed of a probe on one thread, and on a thread per core."""
    alone = median(_rate([make()]) for _ in range(_ROUNDS))
    if cores == 1:
        return Speed(alone, alone)
    together = median(_rate([make() for _ in range(cores)]) for _ in range(_ROUNDS))
    return Speed(alone, max(alone, together))


def _rate(probes: list[Probe]) -> float:
    """Return the amount per second that threads do together."""
    rates = [0.0] * len(probes)
    barrier = threading.Barrier(len(probes))

    def work(number: int) -> None:
        amount, run = probes[number]
        run()  # its memory is touched
        barrier.wait()
        began, rounds = time.perf_counter(), 0
        while (passed := time.perf_counter() - began) < _SECONDS or not rounds:
            run()
            rounds += 1
        rates[number] = rounds * amount / passed

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, len(probes))]
    for thread in threads:
        thread.start()
    work(0)
    for thread in threads:
        thread.join()
    return sum(rates)


def _values(*shape: int, dtype: str = "f8") -> Array:
    """Return numbers between 0.5 and 1.5."""
    numbers: Array = (np.random.default_rng(0).random(shape) + 0.5).astype(dtype)
    return numbers


def _product(dtype: str) -> Probe:
    a, b = _values(512, 384, dtype=dtype), _values(384, 512, dtype=dtype)
    out = np.empty((512, 512), dtype)
    return Probe(512 * 384 * 512, lambda: np.matmul(a, b, out=out))


def _square(dtype: str) -> Probe:
    rows, out = _values(768, 384, dtype=dtype), np.empty((384, 384), dtype)
    return Probe(768 * 384 * 384, lambda: np.matmul(rows.T, rows, out=out))


def _thin(dtype: str) -> Probe:
    rows, few, out = (
        _values(4096, 256, dtype=dtype),
        _values(256, 16, dtype=dtype),
        np.empty((4096, 16), dtype),
    )
    return Probe(4096 * 256 * 16, lambda: np.matmul(rows, few, out=out))


def _moved() -> Probe:
    values, out = _values(3 << 20), np.empty(3 << 20)  # more than caches hold
    return Probe(2 * values.nbytes, lambda: np.add(values, 1.0, out=out))


def _cached() -> Probe:
    values, out = _values(1 << 15), np.empty(1 << 15)

    def run() -> None:
        for _ in range(8):
            np.multiply(values, values, out=out)

    return Probe(8 * values.size, run)


def _functions() -> Probe:
    values, out = _values(1 << 16), np.empty(1 << 16)
    return Probe(values.size, lambda: np.exp(values, out=out))


def _eigen() -> Probe:
    rows = _values(400, 400)
    matrix = rows @ rows.T
    return Probe(400.0**3, lambda: np.linalg.eigh(matrix))


def _sparse() -> Probe:
    rng = np.random.default_rng(0)
    stored, n_rows, width = 50, 512, 64
    columns = np.sort(rng.integers(0, 1000, (n_rows, stored)), axis=1).ravel()
    parts = (rng.random(n_rows * stored), columns, np.arange(0, n_rows * stored + 1, stored))
    rows, dense = csr_array(parts, shape=(n_rows, 1000)), _values(1000, width)
    return Probe(n_rows * stored * width, lambda: rows @ dense)


def _scattered() -> Probe:
    rng = np.random.default_rng(0)
    values, order, out = rng.random(1 << 17), rng.permutation(1 << 17), np.empty(1 << 17)
    return Probe(order.size, lambda: np.take(values, order, out=out, mode="clip"))


def _calls() -> Probe:
    values = _values(4)

    def run() -> None:
        for _ in range(100):
            values.sum()

    return Probe(100, run)


_PROBES: dict[str, Callable[[], Probe]] = {
    "product32": lambda: _product("f4"),
    "product64": lambda: _product("f8"),
    "square32": lambda: _square("f4"),
    "square64": lambda: _square("f8"),
    "thin32": lambda: _thin("f4"),
    "thin64": lambda: _thin("f8"),
    "moved": _moved,
    "cached": _cached,
    "functions": _functions,
    "eigen": _eigen,
    "sparse": _sparse,
    "scattered": _scattered,
    "calls": _calls,
}


def _file_speeds(path: Path, cores: int) -> dict[str, Speed]:
    """Return the speeds of writing a file, of reading it from memory, and of reading it from the disk."""
    noise = np.random.default_rng(0).bytes(_FILE_BYTES)
    written = median(_write_speed(path, noise) for _ in range(3))
    read = _measured(lambda: _from_memory(path), cores)
    with path.open("rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        began = time.perf_counter()
        file.readinto(bytearray(len(noise)))
        disk = len(noise) / (time.perf_counter() - began)
    return {"written": Speed(written, written), "read": read, "disk": Speed(disk, disk)}


def _write_speed(path: Path, noise: bytes) -> float:
    began = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        file.write(noise)
        os.fsync(file.fileno())
    return len(noise) / (time.perf_counter() - began)


def _from_memory(path: Path) -> Probe:
    buffer = bytearray(_FILE_BYTES // 4)

    def read() -> None:
        with path.open("rb", buffering=0) as file:
            file.readinto(buffer)

    return Probe(len(buffer), read)


def _start_seconds() -> float:
    """Return the seconds in which Python starts, and imports what every command needs."""
    began = time.perf_counter()
    words = [sys.executable, "-c", "import streamdr.workflow.pipeline"]
    subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return time.perf_counter() - began
