"""The whole configuration: declared here and by the back ends, read from all sources, checked together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bronze_cli.given import Given, Names, from_environment, from_flags, parsed
from bronze_cli.options import Option, Raw, option, options_of
from bronze_cli.problems import ConfigError, Fault, Problem
from bronze_cli.values import (
    Choice,
    File,
    Integer,
    ListenAddress,
    ListOf,
    Number,
    OutputFile,
    Size,
    SocketMode,
    Switch,
    WritableFolder,
    is_loopback,
)

from bronze_sidecar.configuration.bounds import (
    DEFAULT_MEMORY,
    LEAST_MEMORY,
    SUPERVISOR_MEMORY,
    available_memory,
    bounds,
    different_queues,
    least_dead_letter_bytes,
    worker_memory,
)
from bronze_sidecar.configuration.file import from_file
from bronze_sidecar.configuration.worker_count import WorkerCount, resolved
from bronze_sidecar.envelope.payloads import PAYLOAD_CASES
from bronze_sidecar.routing.route import trial_faults
from bronze_sidecar.sinks import BACKENDS, Backend

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Config:
    """How the process runs, and the back ends that are on."""

    backends: tuple[Backend, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Where each option that was given came from, by path: a flag, a variable, or a file and line."""

    config: Path | None = option(File(), "YAML file with options.", in_file=False)
    listen: tuple[str, ...] = option(
        ListOf(ListenAddress(unix=True)),
        "Address for producers to connect to: host:port or unix:///path; may be given several times.",
        default=("127.0.0.1:50051",),
    )
    admin_listen: str = option(
        ListenAddress(unix=False),
        "HTTP address for health, readiness and metrics.",
        default="127.0.0.1:9464",
    )
    tls_cert_file: Path | None = option(File(), "Certificate of the gRPC server, for non-loopback addresses.")
    tls_key_file: Path | None = option(File(), "Private key of that certificate.")
    tls_client_ca_file: Path | None = option(
        File(), "CA certificates that must have signed the producers' certificates, for mutual TLS."
    )
    insecure: bool = option(Switch(), "Allow non-loopback addresses without TLS.", default=False)
    socket_mode: int = option(SocketMode(), "File mode of unix sockets, in octal.", default=0o600)
    log_level: str = option(
        Choice("debug", "info", "warning", "error"), "Lowest level to log.", default="info"
    )
    log_format: str = option(
        Choice("auto", "console", "json"),
        "Log format; auto means console on a terminal, otherwise json.",
        default="auto",
    )
    grace_seconds: float = option(
        Number(0, 3600), "Time allowed on shutdown to deliver accepted events.", default=25.0
    )
    memory_limit: int = option(
        Size(LEAST_MEMORY, 1 << 50),
        "Memory that the process may use; by default the limit of its container, or this if there is none."
        " The bounds below follow from it unless they are given.",
        default=DEFAULT_MEMORY,
    )
    workers: int = option(
        WorkerCount(),
        "Processes that take events, each from streams of its own; auto means one for each processor that the"
        " container has. They share the memory limit; bounds that are given are those of each.",
        default=1,
    )
    max_event_bytes: int = option(
        Integer(1024, 64 * MEBIBYTE), "Largest event to accept, as JSON or as an envelope.", default=MEBIBYTE
    )
    max_queue_events: int = option(
        Integer(1, 100_000_000),
        "Maximum events waiting for one back end; from the memory limit if not given.",
        default=100_000,
    )
    max_queue_bytes: int = option(
        Integer(MEBIBYTE, 1 << 40),
        "Maximum bytes waiting for one back end; from the memory limit if not given.",
        default=64 * MEBIBYTE,
    )
    max_streams: int = option(
        Integer(1, 100_000),
        "Maximum producer streams open at once; from the memory limit if not given.",
        default=107,
    )
    max_sessions: int = option(
        Integer(1, 1_000_000),
        "Maximum producer runs to remember, so that they can resume; from the memory limit if not given.",
        default=428,
    )
    spool_dir: Path | None = option(
        WritableFolder(), "Folder for queues on disk, for back ends with the option when-full=spill."
    )
    spool_max_bytes: int = option(
        Size(MEBIBYTE, 1 << 50), "Maximum bytes waiting on disk for one back end.", default=1 << 30
    )
    retry_limit: int = option(
        Integer(0, 1_000_000),
        "How many times a write is retried before its events fail; 0 means no limit.",
        default=0,
    )
    retry_backoff_ms: int = option(Integer(1, 60_000), "Longest wait before the first retry.", default=100)
    retry_backoff_max_ms: int = option(Integer(1, 3_600_000), "Longest wait before any retry.", default=3_000)
    native: bool = option(
        Switch(), "Use the compiled package bronze-sidecar-native where it is installed.", default=True
    )
    tap: bool = option(
        Switch(),
        "Let `bronze-sidecar tap` on this machine show events as they pass; --no-tap switches it off.",
        default=True,
    )
    dead_letter_file: Path | None = option(
        OutputFile(),
        "File to which events are appended that were rejected or given up, one JSON object per line.",
    )
    dead_letter_max_bytes: int = option(
        Size(MEBIBYTE, 1 << 50),
        "Maximum bytes of the dead-letter file and the two before it, which end in .1 and .2.",
        default=96 * MEBIBYTE,
    )


VARIABLE_PREFIX = "SIDECAR_"
OPTIONS: tuple[Option[Any], ...] = (
    *options_of(Config, variable_prefix=VARIABLE_PREFIX),
    *(
        each
        for backend in BACKENDS
        for each in options_of(backend, backend.name, variable_prefix=VARIABLE_PREFIX)
    ),
)
PROCESS_OPTIONS = tuple(each for each in OPTIONS if not each.group)
NAMES = Names(OPTIONS, listed_by="bronze-sidecar help options")

# Kubernetes sets these for Services whose names begin with 'sidecar'.
_SERVICE_VARIABLE = re.compile(
    r"SIDECAR_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
# These belong to the client in tardis-machine, which may share our environment.
_VARIABLES_OF_CLIENT = re.compile(r"BRONZE_SIDECAR_TLS(_(CA|CERT|KEY)_FILE)?")


def load(arguments: Sequence[str], environ: Mapping[str, str]) -> Config:
    """Return the checked configuration; raise ConfigError with everything that is wrong."""
    return configure(from_flags(arguments, NAMES), environ)


def configure(flags: Given, environ: Mapping[str, str]) -> Config:
    """Return the checked configuration that flags, variables and the file give together."""
    variables = from_environment(_own_variables(environ), NAMES, VARIABLE_PREFIX)
    problems = [*flags.problems, *variables.problems, *_mistaken_variables(environ)]
    given = {**variables.values, **flags.values}
    if "config" in given:
        file = _file(given["config"], problems)
        problems += file.problems
        given = {**file.values, **given}
    values = parsed(given, NAMES, problems)
    backends = [
        backend for cls in BACKENDS if (backend := _backend(cls, given, values, problems)) is not None
    ]
    own = {each.attribute: values[each.path] for each in PROCESS_OPTIONS if each.path in values}
    own.setdefault("memory_limit", available_memory())
    own["workers"] = resolved(own.get("workers", 1), own["memory_limit"])
    each = worker_memory(own["memory_limit"], own["workers"])
    every = frozenset(PAYLOAD_CASES)
    queues = different_queues([backend.include_payloads or every for backend in backends])
    derived = bounds(each, own.get("max_event_bytes", MEBIBYTE), queues)._asdict()
    config = Config(
        backends=tuple(backends),
        places={path: where for path, (where, _) in given.items()},
        **{**derived, **own},
    )
    for attribute, fault in _process_faults(config):
        if attribute in given and attribute not in values:
            continue  # what is wrong with it has been said
        where = given[attribute][0] if attribute in given else NAMES.by_path[attribute].flag
        problems.append(Problem(where, fault.what, fault.remedy))
    if problems:
        raise ConfigError(problems)
    return config


def _own_variables(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environ.items()
        if name in NAMES.variables or not _SERVICE_VARIABLE.fullmatch(name)
    }


def _mistaken_variables(environ: Mapping[str, str]) -> Iterator[Problem]:
    """Yield variables that are meant for us but begin with the product's name."""
    for name, value in sorted(environ.items()):
        meant = VARIABLE_PREFIX + name.removeprefix("BRONZE_").removeprefix(VARIABLE_PREFIX)
        if (
            name.startswith("BRONZE_")
            and value
            and meant in NAMES.variables
            and not _VARIABLES_OF_CLIENT.fullmatch(name)
        ):
            yield Problem(name, "is not read by the sidecar.", f"Did you mean {meant}?")


def _spool_faults(config: Config) -> Iterator[tuple[str, Fault]]:
    spilling = [backend.name for backend in config.backends if backend.when_full == "spill"]
    if spilling and config.spool_dir is None:
        yield (
            "spool_dir",
            Fault(f"is needed for --{spilling[0]}-when-full=spill.", "Add a folder that lasts."),
        )
    if config.spool_dir and not spilling:
        yield "spool_dir", Fault("has no effect on its own.", "Add --<back end>-when-full=spill.")
    if spilling and config.workers > 1:
        yield (
            "workers",
            Fault(
                f"does not go with --{spilling[0]}-when-full=spill: what one worker has on disk would come"
                " behind what its stream sends through another.",
                "Remove one of them.",
            ),
        )


def _process_faults(config: Config) -> Iterator[tuple[str, Fault]]:
    """Yield conflicts between the process's own options, each with the option to name."""
    if config.retry_backoff_ms > config.retry_backoff_max_ms:
        yield "retry_backoff_ms", Fault("is greater than --retry-backoff-max-ms.")
    if config.max_event_bytes > config.max_queue_bytes:
        yield "max_event_bytes", Fault("is larger than the whole queue, --max-queue-bytes.")
    yield from _spool_faults(config)
    if worker_memory(config.memory_limit, config.workers) < LEAST_MEMORY:
        least = config.workers * LEAST_MEMORY + SUPERVISOR_MEMORY
        yield (
            "workers",
            Fault(f"{config.workers} need a --memory-limit of {Size(0, least).show(least)} or more."),
        )
    least = least_dead_letter_bytes(config.max_event_bytes) * config.workers
    if config.dead_letter_file and config.dead_letter_max_bytes < least:
        yield (
            "dead_letter_max_bytes",
            Fault("is too little for the largest event.", f"With this --max-event-bytes it needs {least}."),
        )
    if (config.tls_cert_file is None) != (config.tls_key_file is None):
        given, absent = ("cert", "key") if config.tls_cert_file else ("key", "cert")
        yield f"tls_{given}_file", Fault("has no effect on its own.", f"Add --tls-{absent}-file.")
    if config.tls_client_ca_file and not config.tls_cert_file:
        yield (
            "tls_client_ca_file",
            Fault("has no effect on its own.", "Add --tls-cert-file and --tls-key-file."),
        )
    if config.insecure and config.tls_cert_file:
        yield "insecure", Fault("does not go with --tls-cert-file.", "Remove one of them.")
    for address in config.listen:
        if not is_loopback(address) and not config.tls_cert_file and not config.insecure:
            yield (
                "listen",
                Fault(
                    f"'{address}' is not a loopback address, and TLS is off.",
                    "Add --tls-cert-file and --tls-key-file, or --insecure if the network is trusted.",
                ),
            )


def _file(given: tuple[str, Raw | None], problems: list[Problem]) -> Given:
    where, raw = given
    path = [] if raw is None else File().parse(raw)
    if isinstance(path, list):
        problems += [Problem(where, fault.what, fault.remedy) for fault in path]
        return Given()
    return from_file(path, NAMES)


def _backend(
    cls: type[Backend],
    given: Mapping[str, tuple[str, Raw | None]],
    values: Mapping[str, Any],
    problems: list[Problem],
) -> Backend | None:
    """Make a back end from its options, if any are given; check them together once each is valid."""
    options = [each for each in OPTIONS if each.group == cls.name]
    mine = {each.name: given[each.path][0] for each in options if each.path in given}
    if not mine:
        return None
    missing = [
        each for each in options if each.required and not mine.keys() & {each.name, *each.alternatives}
    ]
    if missing:
        problems.append(_half_configured(cls, next(iter(mine.values())), missing))
        return None
    if any(each.path in given and each.path not in values for each in options):
        return None
    backend = cls(**{each.attribute: values[each.path] for each in options if each.path in values})
    attributes = {each.attribute: each for each in options}
    for attribute, fault in (*backend.faults(), *trial_faults(backend)):
        where = mine.get(attributes[attribute].name, attributes[attribute].flag)
        problems.append(Problem(where, fault.what, fault.remedy))
    return backend


def _half_configured(cls: type[Backend], where: str, missing: Sequence[Option[Any]]) -> Problem:
    names = " and ".join(each.name.replace("_", " ") for each in missing)
    remedy = ", ".join(
        f"{each.flag} ({each.variable}, or {each.path} in the file)"
        + "".join(f" or --{cls.name}-{other}" for other in each.alternatives)
        for each in missing
    )
    verb = "are" if len(missing) > 1 or names.endswith("s") else "is"
    return Problem(where, f"{cls.title} is half configured: its {names} {verb} missing.", f"Add {remedy}.")
