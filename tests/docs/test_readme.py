"""The README: one screen and a bit, with every link leading somewhere."""

import re

from commands import REPOSITORY

TEXT = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def broken_links(text: str) -> list[str]:
    """Relative links that lead to no file."""
    places = [place.partition("#")[0] for place in re.findall(r"\]\(([^)]+)\)", text) if "://" not in place]
    return [place for place in places if not (REPOSITORY / place).exists()]


def test_it_is_short() -> None:
    assert len(TEXT.splitlines()) < 120


def test_the_first_screen() -> None:
    """Two sentences, one figure, two commands, ten lines of an experiment of one's own."""
    about = TEXT.partition("![")[0].partition("**\n")[2] or TEXT.partition("** ")[2].partition("![")[0]
    assert len(re.findall(r"[.!?](?=\s)", about)) == 2
    assert TEXT.count("![") == 1
    first, own = re.findall(r"^```(?:text|toml)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)[:2]
    assert len(first.splitlines()) == 2
    assert len(own.splitlines()) == 10


def test_its_links_lead_somewhere() -> None:
    assert broken_links(TEXT) == []
    assert broken_links("[a](docs/nowhere.md) [b](LICENSE#x) [c](https://x.example)") == ["docs/nowhere.md"]


def test_the_table_says_what_each_agent_was_shown() -> None:
    rows = [line.split("|") for line in TEXT.partition("<!-- results -->")[2].splitlines() if line.startswith("| [")]
    assert {row[3].strip() for row in rows} == {"simulations", "the likelihood"}
