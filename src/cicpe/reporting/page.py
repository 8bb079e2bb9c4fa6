"""The page itself: sections of text, tiles, tables and figures, as HTML that loads nothing from anywhere."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from cicpe._version import __version__
from cicpe.files import write_atomic, write_json
from cicpe.plots.style import png, svg


class Text(NamedTuple):
    """A paragraph."""

    text: str

    def html(self) -> str:
        """The element."""
        return f"<p>{escape(self.text)}</p>"


class Tile(NamedTuple):
    """A number to see first."""

    value: str
    label: str


class Tiles(NamedTuple):
    """Numbers side by side."""

    tiles: Sequence[Tile]

    def html(self) -> str:
        """The element."""
        each = (f'<div class="tile"><b>{escape(t.value)}</b><span>{escape(t.label)}</span></div>' for t in self.tiles)
        return f'<div class="tiles">{"".join(each)}</div>'


class Table(NamedTuple):
    """Rows below a head; without one, names and what they are."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def html(self) -> str:
        """The element."""
        head = "".join(f"<th>{escape(cell)}</th>" for cell in self.head)
        head = f"<thead><tr>{head}</tr></thead>" if head else ""
        rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self.rows)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        kind = "" if head else ' class="facts"'
        return f'<div class="scroll"><table{kind}>{head}<tbody>{body}</tbody></table></div>'


class Picture(NamedTuple):
    """A figure with its caption; ``name`` is also that of its PNG file."""

    name: str
    figure: Figure
    caption: str

    def html(self) -> str:
        """The element; the figure follows the page's colours."""
        narrow = ' class="narrow"' if self.figure.get_figwidth() < 6 else ""
        drawn = svg(self.figure).replace("<svg", f'<svg role="img" aria-label="{escape(self.caption)}"', 1)
        return f"<figure{narrow}>{drawn}<figcaption>{escape(self.caption)}</figcaption></figure>"


Block = Text | Tiles | Table | Picture


class Section(NamedTuple):
    """A heading and what is below it."""

    heading: str
    blocks: Sequence[Block]

    @property
    def point_estimate(self) -> str:
        """Its place in the page."""
        return self.heading.lower().replace(" ", "-")

    def html(self) -> str:
        """The element."""
        inside = "\n".join(block.html() for block in self.blocks)
        return f'<section id="{escape(self.point_estimate)}"><h2>{escape(self.heading)}</h2>\n{inside}</section>'


class Report(NamedTuple):
    """Everything of a report, and the numbers in it as JSON."""

    title: str
    lead: str
    sections: Sequence[Section]
    numbers: dict[str, object]

    def html(self) -> str:
        """The page."""
        style = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
        links = " ".join(f'<a href="#{escape(s.point_estimate)}">{escape(s.heading)}</a>' for s in self.sections)
        body = "\n".join(section.html() for section in self.sections)
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(self.title)}</title>\n<style>\n{style}</style></head>\n<body><main>\n"
            f'<h1>{escape(self.title)}</h1><p class="lead">{escape(self.lead)}</p><nav>{links}</nav>\n{body}\n'
            f"<footer>Written by cicpe {__version__}. The numbers are in report.json beside this page.</footer>\n"
            "</main></body></html>\n"
        )

    def write(self, folder: Path) -> Path:
        """Writes ``index.html``, ``report.json`` and one PNG file a figure; returns the page's path."""
        page = folder / "index.html"
        for block in (block for section in self.sections for block in section.blocks):
            if isinstance(block, Picture):
                write_atomic(folder / f"{block.name}.png", png(block.figure))
        write_json(folder / "report.json", self.numbers)
        write_atomic(page, self.html().encode())
        return page
