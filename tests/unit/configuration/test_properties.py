"""Whatever an option's value: flag, variable and file read it alike, and the nearest source counts."""

from __future__ import annotations

import re
import string
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from bronze_sidecar.configuration.config import Config, load
from bronze_sidecar.routing.template import Template
from configurations import MINIMAL, problems_of, without
from hypothesis import example, given, settings
from hypothesis import strategies as st


class Written(NamedTuple):
    """A value, as text and as the file may hold it."""

    text: str
    in_file: Any
    value: Any


words = st.text(alphabet=string.ascii_letters + string.digits, min_size=1, max_size=8)
# Without what `key:value,…` gives a meaning, and without spaces at the ends, which do not count there.
plain_text = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zs"], exclude_characters=",:{}"),
    min_size=1,
    max_size=20,
).filter(lambda text: text == text.strip())
free_text = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)
hosts = st.builds(lambda host, port: f"{host}:{port}", words, st.integers(1, 65_535))
CASES = {
    "trade": ["trade", "TRADE", "Trade"],
    "bookChange": ["bookChange", "book_change", "BookChange", "book-change"],
    "groupedBookSnapshot": ["grouped_book_snapshot", "GROUPED-BOOK-SNAPSHOT"],
    "quote": ["quote", "q-u-o-t-e"],
}
cases = st.sampled_from([(spelling, case) for case, spellings in CASES.items() for spelling in spellings])
topics = st.one_of(words, st.builds("{}.{{{{exchange}}}}.{{{{ symbol }}}}".format, words))


def same(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[Written]:
    return strategy.map(lambda text: Written(text, text, text))


def number(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Written]:
    return strategy.map(lambda value: Written(str(value), value, value))


def listed(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[Written]:
    return st.lists(strategy, min_size=1, max_size=4, unique=True).map(
        lambda items: Written(" , ".join(items), items, tuple(items))
    )


def mapped(keys: st.SearchStrategy[str], entries: st.SearchStrategy[str]) -> st.SearchStrategy[Written]:
    return st.dictionaries(keys, entries, min_size=1, max_size=4).map(
        lambda pairs: Written(",".join(f"{key}:{entry}" for key, entry in pairs.items()), pairs, pairs)
    )


def reserved(name: str) -> bool:
    return name.lower().replace("_", "").replace("-", "") in {"payloadcase", "datatype", "eventid"}


OPTIONS: dict[str, st.SearchStrategy[Written]] = {
    "--grace-seconds": number(st.integers(0, 3600) | st.decimals(0, 3600, places=3).map(float)),
    "--max-queue-events": number(st.integers(1, 100_000_000)),
    "--log-level": same(st.sampled_from(["debug", "info", "warning", "error"])),
    "--kafka-client-id": same(free_text),
    "--kafka-brokers": listed(hosts),
    "--kafka-topic": same(topics),
    "--kafka-topic-routing": st.dictionaries(cases, topics, min_size=1, max_size=1).map(
        lambda pairs: Written(
            ",".join(f"{spelling}:{topic}" for (spelling, _), topic in pairs.items()),
            {spelling: topic for (spelling, _), topic in pairs.items()},
            {case: topic for (_, case), topic in pairs.items()},
        )
    ),
    "--kafka-include-payloads": st.lists(cases, min_size=1, max_size=4).map(
        lambda chosen: Written(
            ",".join(spelling for spelling, _ in chosen),
            [spelling for spelling, _ in chosen],
            frozenset(case for _, case in chosen),
        )
    ),
    "--kafka-static-headers": mapped(plain_text.filter(lambda name: not reserved(name)), plain_text),
    "--kafka-ssl": st.sampled_from(
        [Written("true", True, True), Written("off", False, False), Written("1", "yes", True)]
    ),
    "--redis-password": same(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)),
    "--sqs-queue-url": same(words.map("https://sqs.eu-west-1.amazonaws.com/1/{}".format)),
}
each_option = pytest.mark.parametrize("flag", OPTIONS)
check = settings(max_examples=25, deadline=None)


def names_of(flag: str) -> tuple[str, str, str]:
    """Return the variable, and the group and key in the file."""
    group, _, name = flag.removeprefix("--").partition("-")
    if group not in MINIMAL:
        group, name = "", flag.removeprefix("--")
    return "SIDECAR_" + flag.removeprefix("--").replace("-", "_").upper(), group, name.replace("-", "_")


def loaded(
    flag: str, *, by_flag: str | None = None, by_variable: str | None = None, in_file: Any = None
) -> Any:
    """Give an option by some of the sources; return its value."""
    variable, group, key = names_of(flag)
    arguments = list(without(MINIMAL.get(group, ()), flag))
    environ = {} if by_variable is None else {variable: by_variable}
    with tempfile.TemporaryDirectory() as folder:
        if in_file is not None:
            path = Path(folder, "sidecar.yaml")
            content = {group: {key: in_file}} if group else {key: in_file}
            path.write_text(yaml.safe_dump(content))
            arguments.append(f"--config={path}")
        if by_flag is not None:
            arguments.append(f"{flag}={by_flag}")
        return value_in(load(arguments, environ), group, key)


def value_in(config: Config, group: str, key: str) -> Any:
    value = getattr(config.backends[0] if group else config, re.sub("^ssl", "tls", key))
    if isinstance(value, Mapping):
        return {name: entry.text if isinstance(entry, Template) else entry for name, entry in value.items()}
    return value.text if isinstance(value, Template) else value


@each_option
@check
@given(data=st.data())
def test_flag_variable_and_file_read_a_value_alike(flag, data):
    written = data.draw(OPTIONS[flag])
    assert loaded(flag, by_flag=written.text) == written.value
    assert loaded(flag, by_variable=written.text) == written.value
    assert loaded(flag, in_file=written.text) == written.value
    assert loaded(flag, in_file=written.in_file) == written.value


@each_option
@check
@given(data=st.data())
def test_the_nearest_source_counts(flag, data):
    in_flag, in_variable, in_file = (data.draw(st.none() | OPTIONS[flag]) for _ in range(3))
    expected = in_flag or in_variable or in_file
    if expected is None:
        return
    assert (
        loaded(
            flag,
            by_flag=in_flag and in_flag.text,
            by_variable=in_variable and in_variable.text,
            in_file=in_file and in_file.in_file,
        )
        == expected.value
    )


@check
@given(
    st.lists(
        st.text(max_size=20) | st.sampled_from(["--config", "--kafka-topic", "--nats-pass", "-", "--", "="])
    )
)
@example(["--"])
@example(["--=x"])
@example(["---"])
@example([""])
def test_any_command_line_is_read_or_refused(arguments):
    assert all(": " in problem for problem in problems_of(*arguments))


@check
@given(
    st.binary(max_size=80) | st.text(alphabet="kafka: {}[]-\n'\"&*!|>%@`?,#\t", max_size=60).map(str.encode)
)
def test_any_file_is_read_or_refused(content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sidecar.yaml")
        path.write_bytes(content)
        for problem in problems_of(f"--config={path}"):
            assert problem.startswith(str(path))


@check
@given(st.dictionaries(st.sampled_from(["SIDECAR_KAFKA_TOPIC", "SIDECAR_X", "SIDECAR_LISTEN"]), st.text()))
def test_any_environment_is_read_or_refused(environ):
    for problem in problems_of(environ=environ):
        assert problem.startswith("SIDECAR_")
