"""The types of options' values: how each is read, checked, described and shown."""

from bronze_cli.values.addresses import (
    UNIX,
    Broker,
    Host,
    ListenAddress,
    SocketMode,
    Url,
    host_port_fault,
    is_loopback,
)
from bronze_cli.values.scalars import (
    STANDARD_INPUT,
    Choice,
    File,
    InputFile,
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
    "STANDARD_INPUT",
    "UNIX",
    "Broker",
    "Choice",
    "File",
    "Host",
    "InputFile",
    "Integer",
    "ListOf",
    "ListenAddress",
    "Number",
    "Scalar",
    "Secret",
    "SocketMode",
    "Switch",
    "Text",
    "Url",
    "file_fault",
    "host_port_fault",
    "is_loopback",
]
