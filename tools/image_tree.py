"""Makes the tree of an image of what was installed: without what is never used, compiled, of one time.

The same sources make the same tree, and so the same layer. Compiled Python has the hash of its source and no
time, and nobody compares it again; files have the time SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import argparse
import os
import py_compile
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

# Of some 400 services that botocore describes: those that are called, the last ones for credentials.
AWS_SERVICES = ("kinesis", "sqs", "sts", "sso", "sso-oidc", "signin")

# What packages bring that no program of the image uses. Each pattern must find something, or the build stops.
UNUSED_SOURCES = ("**/*.pyi", "**/*.pyx", "**/*.pxd", "**/*.h")
UNUSED = {
    "bronze-sidecar": (
        *UNUSED_SOURCES,
        "zstandard/_cffi*.so",  # for PyPy
    ),
    "bronze-sidecar-pipeline": (
        *UNUSED_SOURCES,
        "**/tests",
        "pyarrow/include",
        "pyarrow/*flight*",
        "pyspark/examples",
        # PySpark has this as a whole only for workers that have no packages, and would import it uncompiled.
        "pyspark/python/lib/*.zip",
        # The server and the shell of Spark Connect.
        "pyspark/jars/spark-connect_*",
        "pyspark/jars/connect-repl",
        # Machine learning.
        "pyspark/jars/spark-mllib*",
        "pyspark/jars/breeze*",
        "pyspark/jars/spire*",
        "pyspark/jars/cats-kernel*",
        "pyspark/jars/*lapack*",
        "pyspark/jars/*arpack*",
        # Hive's server and metastore; ORC needs hive-storage-api.
        "pyspark/jars/spark-hive*",
        "pyspark/jars/hive-[!s]*",
        "pyspark/jars/hive-se*",
        "pyspark/jars/hive-sh*",
        "pyspark/jars/datanucleus*",
        "pyspark/jars/derby*",
    ),
}
# Of the standard library, what no server imports.
NOT_COMPILED = {
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
    "tkinter",
    "turtledemo",
}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--image", choices=UNUSED, required=True)
    arguments.add_argument("--prefix", type=Path, required=True, help="environment to move into the tree")
    arguments.add_argument("--tree", type=Path, required=True, help="folder to make the tree in")
    given = arguments.parse_args()
    place = given.tree / given.prefix.relative_to("/")
    place.parent.mkdir(parents=True)
    shutil.move(given.prefix, place)
    [packages] = place.glob("lib/python*/site-packages")
    try:
        remove_unused(packages, given.image)
    except ValueError as error:
        print(f"tree: {error}", file=sys.stderr)
        return 1
    shown = given.prefix / packages.relative_to(place)
    compile_folder(packages, shown, packages)
    standard = Path(sysconfig.get_path("stdlib"))
    compile_folder(standard, standard, given.tree / standard.relative_to("/"), leave_out=NOT_COMPILED)
    set_times(given.tree, int(os.environ["SOURCE_DATE_EPOCH"]))
    return 0


def remove_unused(packages: Path, image: str) -> None:
    """Remove what the image never uses; raise ValueError if the list names something that is not there."""
    found = [*unused_services(packages)]
    for pattern in UNUSED[image]:
        matching = list(packages.glob(pattern))
        if not matching:
            raise ValueError(f"nothing is called {pattern}, so this list is out of date.")
        found += matching
    for path in found:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def unused_services(packages: Path) -> Iterator[Path]:
    services = {path.name: path for path in (packages / "botocore/data").iterdir() if path.is_dir()}
    for name in AWS_SERVICES:
        if name not in services:
            raise ValueError(f"botocore describes no service {name}.")
    yield from (path for name, path in services.items() if name not in AWS_SERVICES)


def compile_folder(
    folder: Path, shown: Path, into: Path, leave_out: frozenset[str] | set[str] = frozenset()
) -> None:
    """Compile all modules of a folder, as if it were at `shown`, to a folder that may be another one.

    One after the other, in their order: what a compiled module looks like depends on those before it.
    """
    for source in sorted(folder.rglob("*.py")):
        module = source.relative_to(folder)
        if leave_out.isdisjoint(module.parts):
            target = (
                into / module.parent / "__pycache__" / f"{module.stem}.{sys.implementation.cache_tag}.pyc"
            )
            # Some packages bring templates, which are no Python.
            py_compile.compile(
                str(source),
                str(target),
                str(shown / module),
                quiet=2,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )


def set_times(tree: Path, seconds: int) -> None:
    for path in (tree, *tree.rglob("*")):
        os.utime(path, (seconds, seconds), follow_symlinks=False)


if __name__ == "__main__":
    sys.exit(main())
