"""Option documentation from the declarations: `--help`, JSON Schema and the Markdown tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bronze_cli.help import WIDTH, default_text, described, wrapped
from bronze_cli.options import Option

from bronze_sidecar.configuration.config import OPTIONS
from bronze_sidecar.sinks import BACKENDS

OVERVIEW = """
Options are given as flags, as environment variables and in a YAML file (--config). A flag beats its variable,
which beats the file. A back end is on when its required options are given.
"""


def groups() -> Iterator[tuple[str, str, list[Option[Any]]]]:
    """Yield the name, title and options of the process and of each back end."""
    for name, title in (("", "The process"), *((backend.name, backend.title) for backend in BACKENDS)):
        yield name, title, [each for each in OPTIONS if each.group == name]


def help_text(width: int = WIDTH) -> str:
    """Describe every option for a terminal."""
    lines = [*wrapped(OVERVIEW, width)]
    for name, title, options in groups():
        heading = f"{title} (below `{name}:` in the file)" if name else title
        lines += ["", f"{heading}:", *described(options, width)]
    return "\n".join(lines)


def option_tables() -> str:
    """Describe every option as Markdown tables."""
    tables = []
    for name, title, options in groups():
        rows = [
            f"| {_code(each.flag, bold=each.required)} | {_code(default_text(each))} | {_markdown(each)} |"
            for each in options
        ]
        heading = f"#### {title}" + (f" (`{name}:` in the file)" if name else "")
        tables.append(
            "\n".join((heading, "", "| option | default | meaning |", "| --- | --- | --- |", *rows))
        )
    return "\n\n".join(tables) + "\n"


def _code(text: str, *, bold: bool = False) -> str:
    if not text:
        return ""
    escaped = text.replace("|", "\\|")
    return f"**`{escaped}`**" if bold else f"`{escaped}`"


def _markdown(each: Option[Any]) -> str:
    choices = getattr(each.value_type, "words", ())
    doc = each.doc.replace("|", "\\|")
    if choices:
        doc += f" One of {', '.join(f'`{word}`' for word in choices)}."
    return f"{doc} Secret." if each.secret else doc


def json_schema() -> dict[str, Any]:
    """Describe the YAML file as JSON Schema."""
    properties: dict[str, Any] = {}
    for name, title, options in groups():
        entries: dict[str, Any] = {}
        for each in options:
            if each.in_file:
                entries |= _properties(each)
        if name:
            # A back end with nothing below it, such as one whose options are commented out, is off.
            properties[name] = _closed(entries) | {
                "type": ["object", "null"],
                "description": f"Options of {title}.",
            }
        else:
            properties |= entries
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of Bronze Sidecar",
        **_closed(properties),
    }


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _properties(each: Option[Any]) -> dict[str, Any]:
    schema = each.value_type.json_schema() | {"description": each.doc}
    if each.default is not None and not each.secret:
        schema["default"] = _plain(each)
    properties = {each.name: schema}
    if each.secret:
        properties[f"{each.name}_file"] = {
            "type": "string",
            "description": f"File that holds the {each.name}.",
        }
    return properties


def _plain(each: Option[Any]) -> Any:
    if isinstance(each.default, tuple):
        return list(each.default)
    return (
        each.default if isinstance(each.default, bool | int | float) else each.value_type.show(each.default)
    )
