"""The types of options' values: how each is read, checked, described and shown."""

from bronze_sidecar.kinds.addresses import (
    UNIX,
    Address,
    Broker,
    Host,
    SocketMode,
    Url,
    host_port_fault,
    is_loopback,
)
from bronze_sidecar.kinds.rules import Cases, Destination, Headers, Pairs, Routing, TemplatedHeaders
from bronze_sidecar.kinds.scalars import (
    Choice,
    File,
    Integer,
    ListOf,
    Number,
    Scalar,
    Secret,
    Switch,
    Text,
    file_fault,
)

__all__ = [
    "UNIX",
    "Address",
    "Broker",
    "Cases",
    "Choice",
    "Destination",
    "File",
    "Headers",
    "Host",
    "Integer",
    "ListOf",
    "Number",
    "Pairs",
    "Routing",
    "Scalar",
    "Secret",
    "SocketMode",
    "Switch",
    "TemplatedHeaders",
    "Text",
    "Url",
    "file_fault",
    "host_port_fault",
    "is_loopback",
]
