"""Lists what is in each image, as CycloneDX 1.6 in JSON: what the locks pin, and the bases.

The same locks give the same bytes. The builds of the images run it, so it needs nothing but Python, and
`packaging` for Python requirements with markers.
"""

from __future__ import annotations

import argparse
import base64
import json
import platform
import re
import sys
import tomllib
import urllib.parse
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import images

ROOT = Path(__file__).resolve().parent.parent
LICENCE = [{"license": {"id": "Apache-2.0"}}]
REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?:\[[\w,-]+\])?==(?P<version>[^\s;]+)(?: *; *(?P<marker>.+?))?"
    r"(?P<hashes>(?: +--hash=sha256:[0-9a-f]{64})+)"
)
MAVEN = "{http://maven.apache.org/POM/4.0.0}"
# Where a name ends with a registry's port there is no tag.
BASE = re.compile(r"(?P<repository>.+?)(?::(?P<tag>[^:/@]+))?(?:@sha256:(?P<digest>[0-9a-f]{64}))?")

Component = dict[str, Any]


@dataclass(frozen=True)
class Contents:
    """What an image is made of."""

    own: Callable[[Path], Component]
    """Describes the project's own package in it."""
    bases: tuple[str, ...]
    """The repositories of the images that it is made of."""
    requirements: str = ""
    """The lock of its Python packages, in requirements/."""
    node: str = ""
    """The folder with the lock of its Node packages."""
    jars: str = ""
    """The folder with the pom.xml and the hashes of its jars."""
    crates: str = ""
    """The lock of what its compiled part was built with."""
    debian: str = ""
    """The list of its packages of Debian, in requirements/."""


def own_python(root: Path) -> Component:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return _component("application", "pypi", project["name"], project["version"]) | {"licenses": LICENCE}


def own_node(root: Path) -> Component:
    package = json.loads((root / "client/node/package.json").read_text())
    return _component("library", "npm", package["name"], package["version"]) | {"licenses": LICENCE}


IMAGES = {
    "bronze-sidecar": Contents(
        own_python, ("python",), requirements="server.txt", crates="sidecar/native/Cargo.lock"
    ),
    "bronze-sidecar-pipeline": Contents(
        own_python,
        ("python", "eclipse-temurin"),
        requirements="pipeline.txt",
        jars="tools/spark",
        debian="debian.txt",
    ),
    "bronze-sidecar-tardis-machine": Contents(own_node, ("tardisdev/tardis-machine",), node="client/node"),
}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--output", type=Path, required=True, help="folder to write to")
    arguments.add_argument("--image", choices=IMAGES, help="this image alone")
    arguments.add_argument(
        "--base",
        action="append",
        help="with --image: a base that it has instead of those in requirements/images.txt",
    )
    given = arguments.parse_args()
    if given.base and not given.image:
        arguments.error("--base needs --image")
    given.output.mkdir(parents=True, exist_ok=True)
    for name in [given.image] if given.image else IMAGES:
        file = given.output / f"{name}.cdx.json"
        try:
            file.write_text(written(name, ROOT, given.base))
        except ValueError as error:
            print(f"sbom: {error}", file=sys.stderr)
            return 1
        print(f"sbom: wrote {file}")
    return 0


def written(name: str, root: Path, bases: list[str] | None = None) -> str:
    """Return the list of an image's parts as text."""
    content = document(name, root, bases)
    # Known by its content, so that the same content has the same number.
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    content["serialNumber"] = f"urn:uuid:{number}"
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def document(name: str, root: Path, bases: list[str] | None = None) -> dict[str, Any]:
    """Describe an image; raise ValueError if a lock has something without a hash."""
    contents = IMAGES[name]
    names = bases or [str(image) for image in images.read(root) if image.repository in contents.bases]
    own = contents.own(root)
    described = [base_image(each) for each in names]
    parts = list(described)
    if contents.requirements:
        lock = root / "requirements" / contents.requirements
        parts += python_packages(lock, python_version(names))
    if contents.node:
        parts += node_packages(root / contents.node / "package-lock.json")
    if contents.jars:
        parts += jars(root / contents.jars)
    if contents.crates:
        parts += crates(root / contents.crates)
    if contents.debian:
        parts += debian_packages(root / "requirements" / contents.debian)
    parts.sort(key=lambda part: str(part["bom-ref"]))
    references = [part["bom-ref"] for part in (own, *parts)]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "component": {
                "type": "container",
                "bom-ref": name,
                "name": name,
                "version": own["version"],
                "licenses": LICENCE,
            },
            "properties": [
                {
                    "name": "bronze-sidecar:hashes",
                    "value": "A package with several hashes was installed from a file with one of them.",
                }
            ],
        },
        "components": [own, *parts],
        "dependencies": [{"ref": name, "dependsOn": references}],
        # What is in the bases is listed by those who make them.
        "compositions": [{"aggregate": "unknown", "assemblies": [base["bom-ref"] for base in described]}],
    }


def _component(kind: str, ecosystem: str, name: str, version: str, group: str = "") -> Component:
    path = "/".join(urllib.parse.quote(part, safe="") for part in (group, name) if part)
    purl = f"pkg:{ecosystem}/{path}@{urllib.parse.quote(version, safe=':')}"
    found: Component = {"type": kind, "bom-ref": purl}
    if group:
        found["group"] = group
    return found | {"name": name, "version": version, "purl": purl}


def base_image(name: str) -> Component:
    """Describe a base by its name; a digest tells more than a tag."""
    found = BASE.fullmatch(name)
    if not found:
        raise ValueError(f"'{name}' is not the name of an image")
    registry, _, rest = found["repository"].partition("/")
    elsewhere = bool(rest) and (registry == "localhost" or "." in registry or ":" in registry)
    group, _, last = (rest if elsewhere else found["repository"]).rpartition("/")
    digest, tag = found["digest"], found["tag"] or "latest"
    part = _component("container", "docker", last, f"sha256:{digest}" if digest else tag, group)
    part["version"] = tag
    if elsewhere:
        part["purl"] += f"?repository_url={urllib.parse.quote(registry, safe=':')}"
    if digest:
        part["hashes"] = [{"alg": "SHA-256", "content": digest}]
    return part


def python_version(bases: list[str]) -> str:
    """Return the version of Python in the image: its base's, or that of the Python that runs this."""
    for base in bases:
        found = re.search(r"(?:^|/)python:(\d+\.\d+\.\d+)", base)
        if found:
            return found[1]
    return platform.python_version()


def python_packages(lock: Path, version: str) -> Iterator[Component]:
    """Yield the packages that a lock pins for this Python on Linux."""
    for line in lock.read_text().replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        found = REQUIREMENT.fullmatch(re.sub(" +", " ", line.strip()))
        if not found:
            raise ValueError(f"{lock.name}: '{line.split()[0]}' is not pinned with a hash")
        if found["marker"] and not _applies(found["marker"], version):
            continue
        hashes = re.findall(r"sha256:([0-9a-f]{64})", found["hashes"])
        part = _component("library", "pypi", found["name"], found["version"])
        yield part | {"hashes": [{"alg": "SHA-256", "content": each} for each in hashes]}


def _applies(marker: str, version: str) -> bool:
    from packaging.markers import Marker  # noqa: PLC0415 - an image without such a line does without

    return Marker(marker).evaluate(
        {
            "implementation_name": "cpython",
            "os_name": "posix",
            "platform_python_implementation": "CPython",
            "platform_system": "Linux",
            "python_full_version": version,
            "python_version": ".".join(version.split(".")[:2]),
            "sys_platform": "linux",
        }
    )


def node_packages(lock: Path) -> Iterator[Component]:
    """Yield the packages that a lock has for use, not for development; each once."""
    seen = set()
    for path, package in json.loads(lock.read_text())["packages"].items():
        if not path or package.get("dev"):
            continue
        group, _, name = path.rpartition("node_modules/")[2].rpartition("/")
        part = _component("library", "npm", name, package["version"], group)
        if part["purl"] not in seen:
            seen.add(part["purl"])
            yield part | {"hashes": list(_integrity(package.get("integrity", ""), path))}


def _integrity(text: str, path: str) -> Iterator[dict[str, str]]:
    algorithms = {"sha256": "SHA-256", "sha384": "SHA-384", "sha512": "SHA-512"}
    known = [each.partition("-") for each in text.split() if each.partition("-")[0] in algorithms]
    if not known:
        raise ValueError(f"package-lock.json: '{path}' has no hash")
    for algorithm, _, value in known:
        yield {"alg": algorithms[algorithm], "content": base64.b64decode(value).hex()}


def jars(folder: Path) -> Iterator[Component]:
    """Yield the artefacts that a pom.xml names, which must be those whose hashes are listed."""
    lines = (folder / "jars.sha256").read_text().splitlines()
    hashes = {name: digest for digest, name in (line.split() for line in lines)}
    project = ET.parse(folder / "pom.xml")  # noqa: S314 - a file of this project
    for dependency in project.findall(f"{MAVEN}dependencies/{MAVEN}dependency"):
        group, name, version = (
            dependency.findtext(f"{MAVEN}{field}", "") for field in ("groupId", "artifactId", "version")
        )
        digest = hashes.pop(f"{name}-{version}.jar", "")
        if not digest:
            raise ValueError(
                f"{folder.name}/jars.sha256 has no hash of {name}-{version}.jar: run `make pin-jars`"
            )
        part = _component("library", "maven", name, version, group)
        yield part | {"hashes": [{"alg": "SHA-256", "content": digest}]}
    if hashes:
        raise ValueError(
            f"{folder.name}/jars.sha256 lists {', '.join(sorted(hashes))}, which pom.xml does not name"
        )


def crates(lock: Path) -> Iterator[Component]:
    """Yield the project's own crate and what it is built with."""
    for package in tomllib.loads(lock.read_text())["package"]:
        part = _component("library", "cargo", package["name"], package["version"])
        if "source" not in package:
            yield part | {"licenses": LICENCE}
        elif "checksum" in package:
            yield part | {"hashes": [{"alg": "SHA-256", "content": package["checksum"]}]}
        else:
            raise ValueError(f"{lock.name}: '{package['name']}' has no hash")


def debian_packages(file: Path) -> Iterator[Component]:
    """Yield listed packages; their hashes depend on the processor, and apt checks them."""
    for line in file.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, version = line.partition("=")
            yield _component("library", "deb", name, version, "debian")


if __name__ == "__main__":
    sys.exit(main())
