"""The chart as Kubernetes would get it: rendered by real Helm, compared with Kubernetes' own schemas."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import referencing
import referencing.jsonschema
import yaml
from conftest import missing
from servers import Unavailable

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".cache/ship-tools"
CHART = ROOT / "helm/bronze-sidecar"
CASES = {
    path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*-values.yaml"))
}
HELMS = ("helm3", "helm4")
NEWEST, OLDEST_NATIVE, OLDEST = "1.37.0", "1.29.0", "1.25.0"

Object = dict[str, Any]


def tool(name: str) -> str:
    """Return the path of a program that set-up installs; skip the test if it is not there."""
    program = TOOLS / "bin" / name
    if not program.exists():
        missing(Unavailable(f"there is no {name}: `make test` installs it where that is possible"))
    return str(program)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def template(helm: str, *arguments: str, chart: Path = CHART) -> subprocess.CompletedProcess[str]:
    """Render the chart as the release `replay` in the namespace `market`."""
    return run(tool(helm), "template", "replay", str(chart), "--namespace", "market", *arguments)


def render(
    *values: str | Path, helm: str = "helm4", kubernetes: str = NEWEST, chart: Path = CHART
) -> dict[tuple[str, str], Object]:
    """Return the rendered objects by kind and name; values are files, or `key=value`."""
    arguments = ["--kube-version", kubernetes]
    for value in values:
        arguments += ["--values", str(value)] if isinstance(value, Path) else ["--set-json", value]
    objects = [each for each in yaml.safe_load_all(_rendered(helm, *arguments, chart=chart)) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


@functools.cache
def _rendered(helm: str, *arguments: str, chart: Path) -> str:
    done = template(helm, *arguments, chart=chart)
    assert done.returncode == 0, done.stderr
    return done.stdout


def containers(pod: Object) -> dict[str, Object]:
    """Return all containers of a pod's specification by name."""
    return {each["name"]: each for each in (*pod.get("initContainers", ()), *pod["containers"])}


def restricted_faults(pod: Object) -> list[str]:
    """Check what the Pod Security Standard "restricted" asks for."""
    faults = [field for field in ("hostNetwork", "hostPID", "hostIPC") if pod.get(field)]
    kinds = {"configMap", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
    faults += [volume["name"] for volume in pod.get("volumes", ()) if not volume.keys() & kinds]
    for name, container in containers(pod).items():
        security = pod["securityContext"] | container["securityContext"]
        wanted = {
            "allowPrivilegeEscalation": False,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
            # Not asked for by the standard, but by us.
            "readOnlyRootFilesystem": True,
        }
        faults += [f"{name}: {field}" for field, value in wanted.items() if security.get(field) != value]
        if security.get("runAsUser") == 0 or security.get("privileged"):
            faults.append(f"{name}: root")
    return faults


def schema_faults(item: Object, kubernetes: str) -> list[str]:
    """Return what Kubernetes' own strict schema says against an object."""
    group, _, version = item["apiVersion"].rpartition("/")
    parts = [item["kind"].lower(), *([group.partition(".")[0]] if group else []), version]
    schema = json.loads((_schemas(kubernetes) / f"{'-'.join(parts)}.json").read_text())
    validator = jsonschema.Draft202012Validator(schema, registry=_registry(kubernetes))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(item)]


def _schemas(kubernetes: str) -> Path:
    folder = TOOLS / "packages/kubernetes_validate/kubernetes-json-schema" / f"v{kubernetes}-local-strict"
    if not folder.is_dir():
        missing(Unavailable("Kubernetes' schemas are not there: `make test` installs them"))
    return folder


@functools.cache
def _registry(kubernetes: str) -> referencing.Registry[Any]:
    definitions = json.loads((_schemas(kubernetes) / "_definitions.json").read_text())
    resource = referencing.jsonschema.DRAFT202012.create_resource(definitions)
    # The schemas name it by this path.
    empty: referencing.Registry[Any] = referencing.jsonschema.EMPTY_REGISTRY
    registry: referencing.Registry[Any] = empty.with_resource("/api/_definitions.json", resource)
    return registry
