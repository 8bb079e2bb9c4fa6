"""The generated pages of the site, its navigation, and links that leave ``docs/``: hooks of MkDocs.

MkDocs calls the functions whose names begin with ``on_``. Nothing is written into ``docs/``: generated pages exist
while the site is built. A new page in ``docs/`` appears in the navigation by itself.
"""

import importlib
import json
import logging
import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))
log = logging.getLogger("mkdocs.plugins.site_pages")

SECTIONS: dict[str, tuple[str, ...]] = {
    "Start": ("index.md", "choose.md", "comparison.md"),
    "Tutorials": ("tutorials/index.md", "tutorials/first-campaign.md", "tutorials/"),
    "How to": ("how-to/index.md", "how-to/"),
    "Gallery": ("gallery.md", "kinds/"),
    "Explanation": ("how-it-works.md", "guarantees.md", "architecture.md", "decisions/"),
    "Results": ("results/README.md", "results/"),
    "API": ("api/index.md", "api/"),
    "Reference": ("commands.md", "command-line.md", "security.md", "changelog.md"),
}
"""Pages of each tab, in order; a folder stands for all of its pages that were not named before it."""
NESTED = {"decisions/": "Decisions"}
"""Folders that are a section of their own within a tab, and its title."""
REST = "Explanation"
"""Where a page goes that none of the sections names."""
OUTSIDE = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
"""Files outside ``docs/`` that are a page of the site."""


INDEXES = {
    "how-to": ("How to ...", "A page for each job."),
    "tutorials": ("Tutorials", "From the beginning to the end of something, every command run."),
}
"""Folders whose first page lists the others: its title, and a sentence."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages, and then the navigation."""
    for name, text in generated_pages().items():
        files.append(File.generated(config, name, content=text))
    pages = [file.src_uri for file in files.documentation_pages() if not file.inclusion.is_excluded()]
    config.nav = navigation(pages)
    files.append(File.generated(config, "llms.txt", content=llms_text(config)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to files outside ``docs/`` become pages of the site, or addresses in the repository."""
    return outside_links(markdown, page.file.src_uri, config.extra["repository"])


def generated_pages() -> dict[str, str]:
    """Every page that is made from something else, by its name."""
    pages = {"commands.md": command_page(), "gallery.md": gallery_page(), "changelog.md": changelog_page()}
    pages |= {f"{folder}/index.md": index_page(folder, *words) for folder, words in INDEXES.items()}
    return pages


def navigation(pages: Iterable[str]) -> list[dict[str, list[Any]]]:
    """The tabs with their pages, as MkDocs takes them."""
    left = sorted(pages)
    tabs: dict[str, list[Any]] = {}
    for title, entries in SECTIONS.items():
        tabs[title] = []
        for entry in entries:
            chosen = [name for name in left if name == entry or (entry.endswith("/") and name.startswith(entry))]
            tabs[title] += [{NESTED[entry]: chosen}] if entry in NESTED and chosen else chosen
            left = [name for name in left if name not in chosen]
    tabs[REST] += left
    return [{title: names} for title, names in tabs.items() if names]


def outside_links(markdown: str, source: str, repository: str) -> str:
    """The text with every relative link that leaves ``docs/`` replaced; one that leads nowhere is a warning."""
    folder = (ROOT / "docs" / source).parent

    def replace(match: re.Match[str]) -> str:
        path, _, anchor = match[1].partition("#")
        target = (folder / path).resolve()
        if not path or target.is_relative_to(ROOT / "docs") or "://" in path:
            return match[0]
        if not target.exists():
            log.warning("%s links to %s, which is not there", source, path)
            return match[0]
        inside = str(target.relative_to(ROOT))
        if inside in OUTSIDE:
            up = "../" * source.count("/")
            return f"]({up}{OUTSIDE[inside]})"
        return f"]({repository}/blob/main/{inside}{'#' + anchor if anchor else ''})"

    return re.sub(r"\]\((\.\./[^)\s]+)\)", replace, markdown)


def index_page(folder: str, title: str, sentence: str) -> str:
    """A list of the pages of a folder, each with how it begins."""
    lines = [f"# {title}", "", sentence, ""]
    for file in sorted((ROOT / "docs" / folder).glob("*.md")):
        heading, beginning = opening(file.read_text(encoding="utf-8"))
        lines += [f"- **[{heading}]({file.name})**: {beginning}"]
    return "\n".join(lines) + "\n"


def opening(text: str) -> tuple[str, str]:
    """The title of a page and the first sentence of its first paragraph."""
    heading, _, rest = text.removeprefix("# ").partition("\n")
    paragraph = " ".join(rest.strip().partition("\n\n")[0].split())
    return heading, re.split(r"(?<=[.:?])\s", paragraph)[0]


def changelog_page() -> str:
    """The changelog of the root."""
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def command_page() -> str:
    """Every command with its arguments and options, from the commands themselves."""
    import typer

    from cicpe.cli.main import app

    lines = [
        "# Commands",
        "",
        "Written from the commands themselves; `cicpe COMMAND --help` says the same. `--json` prints one JSON object on",
        "standard output and nothing else there. Exit codes: 0 done, 1 the answer is no, 2 bad input (one line that",
        "names the field, the value and what is allowed).",
        "",
        "Shell completion of commands and models: `cicpe --install-completion` (bash, zsh, fish, PowerShell), once.",
        "`python -m cicpe` is the same as `cicpe`.",
        "",
    ]
    for words, command in sorted(commands_of(typer.main.get_command(app), ())):
        lines += command_lines(words, command)
    return "\n".join(lines)


def commands_of(command: Any, words: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
        return
    for name, child in inner.items():
        if not child.hidden:
            yield from commands_of(child, (*words, name))


def command_lines(words: tuple[str, ...], command: Any) -> list[str]:
    """The section of one command."""
    title, _, rest = (command.help or "").strip().partition("\n")
    text, _, examples = rest.partition("Examples:")
    arguments = [option for option in command.params if option.param_type_name == "argument"]
    options = [option for option in command.params if option.param_type_name == "option" and not option.hidden]
    called = " ".join(["cicpe", *words, *(["[OPTIONS]"] if options else []), *map(argument_name, arguments)])
    lines = [f"## cicpe {' '.join(words)}", "", title, ""]
    lines += [unwrapped(text), ""] if text.strip("\b \n") else []
    lines += ["```text", called, "```", ""]
    if examples.strip():
        lines += ["```text", *(line.strip() for line in examples.strip("\b \n").splitlines()), "```", ""]
    if arguments or options:
        lines += ["| argument or option | default | what it is |", "|---|---|---|"]
        lines += [f"| `{argument_name(one)}` | | {cell(one.help)} |" for one in arguments]
        lines += [f"| `{flags(one)}` | {default_of(one)} | {cell(one.help)} |" for one in options]
        lines.append("")
    return lines


def unwrapped(text: str) -> str:
    """Paragraphs of a help text as Markdown: lines joined, but for those that Click is told to leave as they are."""
    parts = [part.strip(" \n") for part in text.split("\n\n")]
    return "\n\n".join(
        kept_lines(part) if part.startswith("\b") else plain(part) for part in parts if part.strip("\b ")
    )


def kept_lines(paragraph: str) -> str:
    """A paragraph whose lines stay lines."""
    return "\n".join(["```text", textwrap.dedent(paragraph.removeprefix("\b").strip("\n")), "```"])


def plain(text: str) -> str:
    """A text on one line, in which square brackets outside of code are no links."""
    parts = " ".join(text.split()).split("`")
    return "`".join(re.sub(r"([\[\]<>])", r"\\\1", part) if i % 2 == 0 else part for i, part in enumerate(parts))


def argument_name(argument: Any) -> str:
    """An argument as it is typed."""
    name = argument.metavar or argument.name.upper()
    name = name if argument.required or name.startswith("[") else f"[{name}]"
    return f"{name} ..." if argument.nargs == -1 and "..." not in name else name


def flags(option: Any) -> str:
    """An option as it is typed, with what it takes."""
    names = ", ".join([*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} {option.metavar or option.name.upper()}"


def default_of(option: Any) -> str:
    """The default in words; nothing for a flag, or where there is none."""
    if option.required:
        return "required"
    if option.is_flag or option.default in (None, (), "") or callable(option.default):
        return ""
    return f"`{option.default}`"


def cell(text: str | None) -> str:
    """A text that fits into a cell of a table."""
    return plain(text or "").replace("|", "\\|")


def gallery_page() -> str:
    """Templates of experiments, where this version has them, and the models that ship with it."""
    lines = [
        "# Gallery",
        "",
        "Kinds of experiment to begin with, each a file that is complete as it is, and [the models](#models) that ship with the",
        "library. Copy the file of a kind, change names, units and ranges to your own, and train. The figures are what",
        "`cicpe check NAME --png FILE` draws: eight experiments of the kind that might happen, with a dozen measurements each.",
        "",
    ]
    return "\n".join(lines + template_lines() + MODELS + zoo_lines())


def template_lines() -> list[str]:
    """A card for every template of an experiment file: what it says in words, eight draws, and its text."""
    from cicpe.experiments import Experiment
    from cicpe.experiments.words import in_words

    lines = []
    for name, text in templates().items():
        plan = Experiment.from_toml(text)
        lines += [f"## {name}", "", f"**{plan.title}.** {plain(' '.join(in_words(plan)))}", ""]
        lines += [f"![Eight experiments of the kind {name}](images/kind-{name}.png)", ""]
        lines += ["```text", f"cicpe new --template {name} --out {name}.toml", "```", ""]
        lines += [
            f'??? note "{name}.toml"',
            "",
            "    ```toml",
            *(f"    {line}" for line in text.splitlines()),
            "    ```",
            "",
        ]
    return lines


def templates() -> dict[str, str]:
    """The experiment files that ship with the package, by name."""
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted((ROOT / "src").rglob("templates/*.toml"))}


MODELS = [
    "## Models { #models }",
    "",
    "Each name can be given wherever a MODEL is asked for, as in `cicpe session new gp-max-1d --epsilon 0.2 --delta 0.1`.",
    "",
]
FAMILY_FIGURES = {
    "binary-search": (
        "trajectory",
        "Find a point by asking, coordinate by coordinate, on which side of a place it lies.",
    ),
    "best-arm": ("comparison-best-arm-5d", "Find the best direction on a sphere, from noisy rewards."),
    "gp-max": ("gp-paths", "Find the greatest value of a smooth function, measured with noise."),
    "ackley": ("ackley-plane", "Find the lowest point of a rugged function of unknown shape."),
    "geochem": ("copper-maps", "Find the peak of a region's copper field, learned from surveys of other regions."),
}
"""Per family: its figure in ``docs/images`` and what it is, in a sentence."""


def zoo_lines() -> list[str]:
    """A section per family of the zoo, with a row per model."""
    zoo = importlib.import_module("cicpe.zoo")
    captions = json.loads((ROOT / "docs" / "images" / "captions.json").read_text(encoding="utf-8"))
    families: dict[str, list[str]] = {}
    for name in zoo.names():
        config = json.loads((zoo.folder(name) / "config.json").read_text(encoding="utf-8"))
        low, high = config["training"]["epsilon"]
        row = f"| `{name}` | {low:g} to {high:g} | {config['horizon']} | {config['minutes']:.1f} |"
        families.setdefault(config["problem"], []).append(row)
    lines = []
    for family, rows in families.items():
        figure, sentence = FAMILY_FIGURES.get(family, (f"kind-{family}", ""))
        lines += [f"### {family} {{ #zoo-{family} }}", "", sentence, ""]
        if (ROOT / "docs" / "images" / f"{figure}.png").exists():
            lines += [
                f"![{family}](images/{figure}.png)",
                "",
                f"*{captions[figure]}*" if figure in captions else "",
                "",
            ]
        lines += ["| model | epsilon | queries, at most | minutes to train |", "|---|---|---|---|", *rows, ""]
        if (ROOT / "docs" / "results" / f"{family}.md").exists():
            lines += [f"[What was measured](results/{family}.md)", ""]
    return lines


def llms_text(config: MkDocsConfig) -> str:
    """``llms.txt``: what the project is and where its pages are, for programs that read."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for tab in config.nav or []:
        for title, names in tab.items():
            lines += [f"## {title}", ""]
            lines += [f"- [{name.removesuffix('.md')}]({config.site_url}{web_address(name)})" for name in flat(names)]
            lines.append("")
    return "\n".join(lines)


def flat(entries: Iterable[Any]) -> Iterable[str]:
    """The pages of a tab, those of its sections among them."""
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for names in entry.values():
                yield from flat(names)


def web_address(name: str) -> str:
    """Where a page lies on the site."""
    return re.sub(r"README$|index$", "index", name.removesuffix(".md")) + ".html"
