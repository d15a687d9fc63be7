"""The tree of an image: without what is never used, compiled, and always the same."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import image_tree
import pytest
from charts import ROOT

EPOCH = 1767225600
HASHED = 0b01  # and not compared


def environment(root: Path) -> Path:
    """Make something like an environment with what the sidecar's image leaves out; return its packages."""
    packages = root / "lib/python3.11/site-packages"
    for service in (*image_tree.AWS_SERVICES, "s3", "ec2"):
        (packages / "botocore/data" / service).mkdir(parents=True)
    for name in (
        *(
            "botocore/data/endpoints.json",
            "used/module.py",
            "used/types.pyi",
            "used/core.pyx",
            "used/core.pxd",
        ),
        *("used/core.h", "used/core.so", "zstandard/_cffi.so", "zstandard/backend_c.so"),
    ):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text("")
    (packages / "used/module.py").write_text("FACT = {'a', 'b'} and 7\n")
    # Some packages bring templates.
    (packages / "used/template.py").write_text("{{ no python }\n")
    return packages


def make(root: Path) -> subprocess.CompletedProcess[str]:
    environment(root / "opt/bronze")
    program = [sys.executable, str(ROOT / "tools/image_tree.py"), "--image=bronze-sidecar"]
    return subprocess.run(
        [*program, f"--prefix={root}/opt/bronze", f"--tree={root}/image"],
        env={"SOURCE_DATE_EPOCH": str(EPOCH), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


def content(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()
    }


def test_what_is_never_used_is_left_out(tmp_path: Path) -> None:
    packages = environment(tmp_path)
    image_tree.remove_unused(packages, "bronze-sidecar")
    assert content(packages).keys() == {
        *("botocore/data/endpoints.json", "used/module.py", "used/template.py", "used/core.so"),
        "zstandard/backend_c.so",
    }
    assert {path.name for path in (packages / "botocore/data").iterdir() if path.is_dir()} == {
        *("kinesis", "signin", "sqs", "sso", "sso-oidc", "sts")
    }


@pytest.mark.parametrize("gone", ["zstandard/_cffi.so", "botocore/data/sts"])
def test_a_list_that_is_out_of_date_stops_the_build(tmp_path: Path, gone: str) -> None:
    packages = environment(tmp_path)
    (packages / gone).rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"_cffi|no service sts"):
        image_tree.remove_unused(packages, "bronze-sidecar")


def test_the_same_sources_make_the_same_tree(tmp_path: Path) -> None:
    root = tmp_path / "build"
    trees = []
    for _ in range(2):
        done = make(root)
        assert done.returncode == 0, done.stderr
        assert {path.lstat().st_mtime for path in (root / "image").rglob("*")} == {EPOCH}
        trees.append(content(root / "image"))
        (root / "image").rename(tmp_path / f"image-{len(trees)}")
    assert trees[0] == trees[1]


def test_modules_are_compiled_where_they_will_be_and_never_compared_with_their_source(tmp_path: Path) -> None:
    assert make(tmp_path).returncode == 0
    tag = sys.implementation.cache_tag
    [module] = (tmp_path / "image").rglob(f"used/__pycache__/module.{tag}.pyc")
    data = module.read_bytes()
    assert data[:4] == importlib.util.MAGIC_NUMBER
    assert int.from_bytes(data[4:8], "little") == HASHED
    assert f"{tmp_path}/opt/bronze/lib/python3.11/site-packages/used/module.py".encode() in data
    standard = {path.name.partition(".")[0] for path in (tmp_path / "image").rglob(f"*.{tag}.pyc")}
    assert {"socket", "selectors", "base_events", "dataclasses"} <= standard
    assert "template" not in standard
    made = (path.relative_to(tmp_path / "image") for path in (tmp_path / "image").rglob("*.pyc"))
    assert {"ensurepip", "lib2to3", "test", "tests", "turtledemo"}.isdisjoint(
        part for path in made for part in path.parts
    )
