"""The pages: how long the README may be, for whom each page is, and whether links lead somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_pages import DOCS, PAGES, README, anchors, links, name_of


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 200


@pytest.mark.parametrize("page", DOCS, ids=name_of)
def test_a_page_begins_with_its_title_and_a_sentence(page: Path) -> None:
    title, empty, sentence, *_ = page.read_text().splitlines()
    assert title.startswith("# ")
    assert empty == ""
    assert sentence[0].isalpha()


@pytest.mark.parametrize("page", DOCS, ids=name_of)
def test_the_readme_leads_to_every_page(page: Path) -> None:
    assert name_of(page) in links(README)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    lost = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if not place.exists() or (anchor and anchor not in anchors(place)):
            lost.append(target)
    assert not lost


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("## Kinesis and SQS FIFO", "kinesis-and-sqs-fifo"),
        ("### Kafka (`kafka:` in the file)", "kafka-kafka-in-the-file"),
        ("# From [Node.js](x.md)", "from-nodejs"),
        ("```sh\n# not a heading\n```\n# One\n# One", "one-1"),
    ],
)
def test_anchors_are_those_of_github(heading: str, anchor: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{heading}\n")
    assert anchor in anchors(page)
    assert not any(each.startswith("not-a") for each in anchors(page))
