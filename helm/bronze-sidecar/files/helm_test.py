"""What `helm test` runs: has every sidecar reached its back ends, and does the server take connections?"""

import os
import socket
import sys
import time
from http.client import HTTPConnection, HTTPException

SECONDS = float(os.environ.get("DEADLINE_SECONDS", "60"))


def main():
    end = time.monotonic() + SECONDS
    while (faults := [*sidecar_faults(os.environ["SIDECARS"]), *server_faults(os.environ["SERVERS"])]) and (
        time.monotonic() < end
    ):
        time.sleep(1)
    print("\n".join(faults) or "all sidecars have reached their back ends")
    return 1 if faults else 0


def sidecar_faults(address):
    """Ask each pod behind a headless service."""
    host, port = address.rsplit(":", 1)
    try:
        found = sorted({info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)})
    except OSError as error:
        return [f"no pod is found as {host}: {in_words(error)}"]
    return [f"{ip}: {answer}" for ip in found for answer in reached(ip, int(port)).splitlines()]


def reached(ip, port):
    """Return why a sidecar has not reached its back ends; nothing if it has."""
    connection = HTTPConnection(ip, port, timeout=5)
    try:
        connection.request("GET", "/reached")
        response = connection.getresponse()
        text = response.read().decode()
        return "" if response.status == 200 else text
    except (OSError, HTTPException) as error:
        return f"the sidecar does not answer: {error}"
    finally:
        connection.close()


def server_faults(addresses):
    """Connect to each port of the service."""
    for address in addresses.split():
        host, port = address.rsplit(":", 1)
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as error:
            yield f"the server does not take connections at {address}: {in_words(error)}"


def in_words(error):
    """Say what is missing where nothing resolves names."""
    if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
        return "the cluster's DNS does not answer, without which services are not found"
    return str(error)


sys.exit(main())
