"""Checks that a page of HTML is well-formed and refers to no other file."""

import html.parser

# Elements without an end tag: void elements of HTML, and those of SVG that the reports write so.
EMPTY = {"meta", "line", "path", "rect", "circle", "br"}


class Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in EMPTY:
            self.open.append(tag)
        for name, value in attrs:
            assert name not in ("src", "href"), f"{tag} needs {value}"

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        if tag not in EMPTY:
            assert self.open and self.open.pop() == tag, tag


def elements(text):
    """Returns the names of all elements, in order; fails if one is not closed."""
    reader = Reader()
    reader.feed(text)
    assert not reader.open, reader.open
    return reader.seen
