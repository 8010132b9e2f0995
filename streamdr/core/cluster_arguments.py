"""The arguments that a configuration may pass to each class of cluster.

Arguments that are not listed are refused: others name code to run, files to load or ports to open, and a
new release of a library brings new ones. Values are restricted too, since job scripts are shell scripts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from streamdr.errors import ParameterError

Schema = dict[str, Any]

MOST_LOCAL_WORKERS = 1024
"""The largest number of threads or processes on one machine."""
MOST_WORKERS = 10_000
"""The largest number of workers of a cluster."""

_PLAIN = "A-Za-z0-9_.,:@%+=/-"
"""Characters without a special meaning in a shell."""


def _integer(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def _text(pattern: str) -> Schema:
    return {"type": "string", "pattern": f"^(?:{pattern})$"}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items, "maxItems": 100}


_WORD = _text(f"[A-Za-z0-9_/][{_PLAIN}]{{0,199}}")
_SIZE = {"anyOf": [_integer(1, 2**60), _text(r"[0-9]{1,12}(\.[0-9]{1,6})? ?[kKMGTP]?i?[bB]?")]}
_SECONDS = {"anyOf": [_integer(1, 10**8), _text("[0-9]{1,8} ?[a-z]{0,12}")]}
_SWITCH: Schema = {"type": "boolean"}
_PORT = _integer(0, 65535)
# An environment variable (such as $TMPDIR) is expanded on the node, to text and never to commands.
_PATH = _text(
    rf"(?:~/|\$[A-Z_]+/?|\$\{{[A-Z_]+\}}/?|[A-Za-z0-9_./])[{_PLAIN}]{{0,999}}|\$[A-Z_]+|\$\{{[A-Z_]+\}}"
)
_IMAGE = _text(r"[a-z0-9][A-Za-z0-9_.:/-]{0,254}(@sha256:[0-9a-f]{64})?")
_LABEL = _text("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

_LOCAL: dict[str, Schema] = {
    "n_workers": _integer(1, MOST_LOCAL_WORKERS),
    "threads_per_worker": _integer(1, MOST_LOCAL_WORKERS),
    "memory_limit": _SIZE,
    "local_directory": _text(r"[^\x00-\x1f\x7f]{1,1000}"),
    "dashboard_address": _text(r"(127\.0\.0\.1|localhost):[0-9]{1,5}"),
}
_LOCAL_EXPOSING: dict[str, Schema] = {
    "host": _text("[A-Za-z0-9_.:-]{1,255}"),
    "interface": _text("[A-Za-z0-9_.:-]{1,64}"),
    "scheduler_port": _PORT,
    "dashboard_address": _text("[A-Za-z0-9_.:-]{1,255}"),
}
"""Arguments that let other machines reach a local cluster."""

_QUEUE: dict[str, Schema] = {
    "cores": _integer(1, 100_000),
    "memory": _SIZE,
    "processes": _integer(1, MOST_LOCAL_WORKERS),
    "n_workers": _integer(1, MOST_WORKERS),
    "queue": _WORD,
    "project": _WORD,
    "account": _WORD,
    "walltime": _text("[0-9][0-9:.hms-]{0,31}"),
    "job_name": _WORD,
    "job_directives_skip": _list(_text(f"[{_PLAIN}]{{1,200}}")),
    "log_directory": _PATH,
    "local_directory": _PATH,
    "shared_temp_directory": _PATH,
    "interface": _text("[A-Za-z0-9_.:][A-Za-z0-9_.:-]{0,63}"),
    "death_timeout": _SECONDS,
    "nanny": _SWITCH,
    "config_name": _text("[A-Za-z0-9_.-]{1,64}"),
}
_SPECIFIED = {"resource_spec": _WORD}
# The options of sbatch that say where and when a job runs. Others set environments, send mail or write files.
_SBATCH = (
    "qos|constraint|gres|gpus|exclusive|reservation|nodelist|exclude|partition|licenses|nice|requeue|"
    "no-requeue|hint|mem-per-cpu|nodes|ntasks|tmp|clusters|cluster-constraint|contiguous|priority|time-min"
)
_SLURM = {
    "job_cpu": _integer(1, 100_000),
    "job_mem": _text("[0-9]{1,12}[kKMGT]?"),
    "job_extra_directives": _list(_text(rf"--(?:{_SBATCH})(?:=[&|*\[\](){_PLAIN}]{{1,200}})?")),
}
_LSF = {
    "ncpus": _integer(1, 100_000),
    "mem": _integer(1, 2**60),
    "lsf_units": _text("[a-zA-Z]{1,4}"),
    "use_stdin": _SWITCH,
}
_QUANTITY = {"anyOf": [_integer(1, 2**60), _text("[0-9.]{1,16}[a-zA-Z]{0,3}")]}
_QUANTITIES = {
    "type": "object",
    "properties": dict.fromkeys(("cpu", "memory", "ephemeral-storage", "nvidia.com/gpu"), _QUANTITY),
    "additionalProperties": False,
}
_KUBERNETES: dict[str, Schema] = {
    "name": _LABEL,
    "namespace": _LABEL,
    "image": _IMAGE,
    "n_workers": _integer(1, MOST_WORKERS),
    "resources": {
        "type": "object",
        "properties": {"requests": _QUANTITIES, "limits": _QUANTITIES},
        "additionalProperties": False,
    },
    "idle_timeout": _integer(0, 10**8),
    "resource_timeout": _integer(1, 10**6),
}
_COILED: dict[str, Schema] = {
    "name": _WORD,
    "n_workers": _integer(1, MOST_WORKERS),
    "software": _WORD,
    "container": _IMAGE,
    "worker_vm_types": _list(_WORD),
    "scheduler_vm_types": _list(_WORD),
    "worker_cpu": _integer(1, 10_000),
    "worker_memory": _SIZE,
    "worker_disk_size": _SIZE,
    "worker_gpu": _integer(0, 100),
    "scheduler_cpu": _integer(1, 10_000),
    "scheduler_memory": _SIZE,
    "region": _WORD,
    "workspace": _WORD,
    "account": _WORD,
    "arm": _SWITCH,
    "spot_policy": _WORD,
    "idle_timeout": _SECONDS,
    "package_sync": _SWITCH,
    "private_to_creator": _SWITCH,
    "use_best_zone": _SWITCH,
}

ALLOWED: dict[str, dict[str, Schema]] = {
    "LocalCluster": _LOCAL,
    "SLURMCluster": _QUEUE | _SLURM,
    "PBSCluster": _QUEUE | _SPECIFIED,
    "SGECluster": _QUEUE | _SPECIFIED,
    "LSFCluster": _QUEUE | _LSF,
    "HTCondorCluster": _QUEUE | {"disk": _SIZE},
    "OARCluster": _QUEUE | _SPECIFIED | {"memory_per_core_property_name": _WORD},
    "MoabCluster": _QUEUE | _SPECIFIED,
    "KubeCluster": _KUBERNETES,
    "Coiled": _COILED,
}
"""The arguments of each kind of cluster, with the JSON Schema of their values."""

EXPOSING = {"LocalCluster": _LOCAL_EXPOSING}
"""The arguments that need `insecure: true`."""


def argument_schema() -> Schema:
    """The JSON Schema of the arguments of any kind of cluster."""
    every: dict[str, list[Schema]] = {}
    for known in (*ALLOWED.values(), *EXPOSING.values()):
        for name, accepted in known.items():
            if accepted not in every.setdefault(name, []):
                every[name].append(accepted)
    return {
        "type": "object",
        "properties": {
            name: choices[0] if len(choices) == 1 else {"anyOf": choices} for name, choices in every.items()
        },
        "additionalProperties": False,
    }


def check_arguments(kind: str, given: Mapping[str, Any]) -> None:
    """Refuse arguments that a configuration may not pass to a kind of cluster. Values are never shown."""
    if not isinstance(given, Mapping):
        raise ParameterError("arguments", "expected a section of keys")
    allowed, opened = ALLOWED[kind], EXPOSING.get(kind, {})
    for name, value in given.items():
        if name not in allowed and name not in opened:
            raise ParameterError(
                "arguments",
                f"{str(name)[:60]!r} is not an argument that a configuration may pass to {kind}; these are: "
                f"{', '.join(sorted(allowed))}. Set arguments that run code or open ports in dask's "
                "own configuration (~/.config/dask), and secrets in the environment",
            )
        if not any(_accepts(known[name], value) for known in (allowed, opened) if name in known):
            raise ParameterError(
                "arguments",
                f"{name!r} has an invalid value; expected {_expectation(allowed, opened, name)}",
            )


def exposing_argument(kind: str, given: Mapping[str, Any]) -> str | None:
    """The first argument that would let other machines reach the cluster, if there is one."""
    allowed = ALLOWED[kind]
    return next(
        (name for name in given if name not in allowed or not _accepts(allowed[name], given[name])), None
    )


def _accepts(schema: Schema, value: Any) -> bool:
    """Whether a value matches a schema, of the few forms of JSON Schema that are used above."""
    if "anyOf" in schema:
        return any(_accepts(choice, value) for choice in schema["anyOf"])
    match schema["type"]:
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            whole = isinstance(value, int) and not isinstance(value, bool)
            return whole and bool(schema["minimum"] <= value <= schema["maximum"])
        case "string":
            return isinstance(value, str) and re.fullmatch(schema["pattern"][1:-1], value) is not None
        case "array":
            return (
                isinstance(value, list | tuple)
                and len(value) <= schema["maxItems"]
                and all(_accepts(schema["items"], item) for item in value)
            )
        case _:
            known = schema["properties"]
            return isinstance(value, Mapping) and all(
                name in known and _accepts(known[name], below) for name, below in value.items()
            )


def _expectation(allowed: Mapping[str, Schema], opened: Mapping[str, Schema], name: str) -> str:
    schema = allowed.get(name) or opened[name]
    phrases = []
    for choice in schema.get("anyOf", [schema]):
        match choice["type"]:
            case "integer":
                phrases.append(f"a whole number from {choice['minimum']:,} to {choice['maximum']:,}")
            case "string":
                phrases.append(f"text like {choice['pattern']}")
            case "boolean":
                phrases.append("true or false")
            case "array":
                phrases.append(f"a list, each like {choice['items']['pattern']}")
            case _:
                phrases.append(f"the keys {', '.join(choice['properties'])}")
    return " or ".join(phrases)
