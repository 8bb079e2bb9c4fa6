"""``cicpe session``: a campaign from the command line, over weeks, alone or with others."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cicpe.cli import options
from cicpe.cli.arguments import given, number, seed, whole
from cicpe.cli.output import note, print_json
from cicpe.cli.recent_campaigns import RecentCampaigns
from cicpe.cli.session_view import show_campaigns, show_log, show_next, show_status
from cicpe.cli.tasks import load_model
from cicpe.errors import InvalidInput

if TYPE_CHECKING:
    from cicpe.model import Model
    from cicpe.sessions.campaign import Campaign
    from cicpe.sessions.status import Status
    from cicpe.sessions.stores import CampaignRecord, Store

session_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Campaigns: ask what to measure, tell what came out, until it says stop.",
)

Name = Annotated[
    str | None,
    typer.Option(
        "--campaign",
        "-c",
        metavar="NAME",
        help="Its name, its id, or the first letters of its id. Default: the last one used.",
    ),
]
Place = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="CICPE_STORE",
        metavar="FILE|URL",
        help="Where campaigns are kept: a file, or postgresql://... Default: a file in your data directory.",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(metavar="K", help="A name for this change: sent again with the same one, it is made only once."),
]
Version = Annotated[
    int | None,
    typer.Option(
        parser=whole, metavar="N", help="Refuse if the campaign is not at this version. Default: as you last saw it."
    ),
]
StepOption = Annotated[
    int | None,
    typer.Option("--step", "-s", parser=whole, metavar="N", help="The number of the query that this is about."),
]
QueryOption = Annotated[
    str | None,
    typer.Option("--query", "-q", metavar="QUERY", help="The query that this is about: numbers with commas between."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Record it even though it is not a plausible value.")]
VALUES = {"ignore_unknown_options": True}
"""A negative number is no option."""


class SessionCommands(NamedTuple):
    """A store and what is remembered of it."""

    store: "Store"
    recent: RecentCampaigns

    def record(self, campaign: str | None) -> "CampaignRecord":
        """The campaign that is meant: by name, the last one used, or the only one."""
        if campaign is not None:
            return self.store.find(campaign)
        known = self.store.campaigns()
        last = [record for record in known if record.id == self.recent.last] or known
        if len(last) != 1:
            names = ", ".join(record.name for record in known[-9:])
            raise InvalidInput("campaign", None, f"one of {names}" if known else "begun first: cicpe session new")
        return last[0]

    def open(self, record: "CampaignRecord") -> "Campaign":
        """The live campaign: this is where the model is needed."""
        from cicpe.sessions.campaign import Campaign

        return Campaign.open(self.store, record.id, _load_and_look)

    def status(self, record: "CampaignRecord") -> "Status":
        """What a campaign says now; without the model, where that was seen before."""
        seen = self.recent.seen(record.id)
        return seen if seen is not None and seen.version == record.version else self.open(record).session.status()

    def remember(self, record: "CampaignRecord", status: "Status") -> None:
        """Keeps what is shown, or says that whoever sees it has to name the step in what follows."""
        failure = self.recent.remember(record.id, status)
        if failure is not None:
            note(f"what you see cannot be remembered ({failure})")
            if status.query is not None:
                note(f"so name the step when you tell:  cicpe session tell {status.step}: VALUE")


def _load_and_look(reference: str) -> "Model":
    """A campaign's model; says what has become of the problem that it was trained on, which it may not need."""
    model = load_model(reference)
    fault = model.description.problem_spec.fault
    if fault is not None:
        note(f"the problem of this campaign's model has changed: {fault}. The campaign goes on from the model itself")
    return model


@contextmanager
def _commands(place: str | None) -> Iterator[SessionCommands]:
    from cicpe.sessions.stores import default_store, open_store

    where = place or default_store()
    store = open_store(where)
    try:
        yield SessionCommands(
            store, RecentCampaigns(where if "://" in where else str(Path(where).expanduser().resolve()))
        )
    finally:
        store.close()


@session_app.command()
def new(
    model: options.Model,
    epsilon: Annotated[
        float | None,
        typer.Option(
            parser=number, metavar="E", help="How far off the answer may be. Default: as the experiment file says."
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            parser=number, metavar="D", help="How often it may be farther off. Default: as the experiment file says."
        ),
    ] = None,
    sure: Annotated[
        float | None, typer.Option(parser=number, metavar="P", help="How sure the answer has to be: 1 - D.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Default: the model's, with a number.")] = None,
    noise: Annotated[float | None, typer.Option(parser=number, metavar="S", help="The noise level, if known.")] = None,
    context: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Anything else that the model wants to know.")
    ] = None,
    stop: Annotated[
        str,
        typer.Option(
            metavar="each|average|bellman",
            help="The stop rule. each: this campaign has to be as sure as asked; average: campaigns on average.",
        ),
    ] = "each",
    verify: options.Verify = 0,
    random_seed: Annotated[int, typer.Option("--seed", parser=seed, metavar="N", help="Seeds the queries.")] = 0,
    problem: options.OwnProblem = None,
    changed_problem: options.ChangedProblem = False,
    place: Place = None,
    as_json: options.Json = False,
) -> None:
    """Begin a campaign and show its first query."""
    from cicpe.sessions.campaign import Campaign

    if sure is not None and delta is not None:
        raise InvalidInput("sure", sure, "left out with --delta: the one is 1 minus the other")
    trained = load_model(model, problem, changed_problem)
    epsilon, delta = trained.promise(epsilon, delta if sure is None else round(1 - sure, 9))
    reference = _reference(model)
    named = _context(context or []) | given(noise=noise)
    known = trained.full_context(named)
    for taken in known.keys() - named.keys():
        note(f"{taken} is taken to be {known[taken]:g}, the usual one of this model, since none was named")
    with _commands(place) as commands:
        campaign = Campaign.new(
            commands.store,
            trained,
            reference,
            name=name or _free_name(commands.store, Path(model).name),
            epsilon=epsilon,
            delta=delta,
            seed=random_seed,
            stop=stop,
            context=known,
            verify=verify,
        )
        _show(commands, campaign.record, campaign.session.status(), as_json)


@session_app.command()
def adopt(
    campaign: Name = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="The model to go on with. Default: the campaign's own, as it is now."),
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Default: the old name, with a number.")] = None,
    problem: options.OwnProblem = None,
    changed_problem: options.ChangedProblem = False,
    place: Place = None,
    as_json: options.Json = False,
) -> None:
    """Go on with a campaign even though its model has changed: a new campaign with the same past.

    What was promised for the old model is not promised for the new one: its thresholds were calibrated on queries of
    its own. The old campaign stays as it is.
    """
    from cicpe.sessions.campaign import Campaign

    with _commands(place) as commands:
        record = commands.record(campaign)
        trained = load_model(model or record.model, problem, changed_problem)
        reference = record.model if model is None else _reference(model)
        new_name = name or _free_name(commands.store, record.name)
        adopted = Campaign.adopt(commands.store, record.id, trained, reference, new_name)
        note(f"{record.name} stays as it is; {new_name} goes on with its {len(adopted.session.log)} entries")
        _show(commands, adopted.record, adopted.session.status(), as_json)


@session_app.command()
def ask(
    campaign: Name = None,
    problem: options.OwnProblem = None,
    changed_problem: options.ChangedProblem = False,
    place: Place = None,
    as_json: options.Json = False,
) -> None:
    """Show the open query: the same one until it is told. Exit code 1 if the campaign has stopped."""
    with _commands(place) as commands:
        record = commands.record(campaign)
        if problem is not None:
            load_model(record.model, problem, changed_problem)  # and remember where it is
        status = commands.status(record)
        _show(commands, record, status, as_json)
    if status.stopped:
        raise typer.Exit(1)


@session_app.command(context_settings=VALUES)
def tell(
    values: Annotated[
        list[str], typer.Argument(metavar="[STEP:] VALUE...", help="What was measured at the open query.")
    ],
    campaign: Name = None,
    step: StepOption = None,
    query: QueryOption = None,
    at: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting that was really set to something else; may be repeated."),
    ] = None,
    yes: Yes = False,
    key: Key = None,
    version: Version = None,
    place: Place = None,
    as_json: options.Json = False,
) -> None:
    """Record what was measured at the open query, and show the next one.

    A value is recorded only at the query that it answers: the one that you saw last, or the one that you name. It is
    refused if another is open by now, or if it cannot be; one that is possible but not plausible needs --yes.

    \b
    Examples:
      cicpe session tell 0.76                      for the query that you saw last
      cicpe session tell 3: 0.76                   for query 3; also -s 3
      cicpe session tell 0.76 --query 0.25,-0.5    for the query at (0.25, -0.5)
      cicpe session tell yes                       where the measurement is yes or no; 7/20 where it is a count
      cicpe session tell 312 --at temperature=850  where the furnace went to 850 instead of 845
    """
    before, rest = _leading_step(values)
    if step is not None and before is not None and step != before:
        raise InvalidInput("step", step, f"the same as before the colon, {before}")
    about = OpenQuery(version, before if step is None else step, None if query is None else _numbers("query", [query]))
    really = _context(at or [], "at")
    _change(
        place,
        campaign,
        about,
        as_json,
        lambda open_campaign, which: open_campaign.tell(
            _observation(open_campaign, rest), at=really, confirm=yes, key=key, **which
        ),
    )


@session_app.command(context_settings=VALUES)
def correct(
    step: Annotated[int, typer.Argument(parser=whole, metavar="STEP", help="Its number in the history, from 1.")],
    values: Annotated[list[str], typer.Argument(metavar="VALUE...", help="What was really measured.")],
    campaign: Name = None,
    yes: Yes = False,
    key: Key = None,
    place: Place = None,
    as_json: options.Json = False,
) -> None:
    """Replace the value of an earlier step. The log keeps both; everything after is computed anew."""
    _change(
        place,
        campaign,
        EarlierStep(step),
        as_json,
        lambda open_campaign, which: open_campaign.correct(
            step, _observation(open_campaign, values), confirm=yes, key=key, **which
        ),
    )


@session_app.command()
def release(
    reason: Annotated[str, typer.Argument(metavar="[REASON]", help="Why it may stop all the same.")] = "",
    campaign: Name = None,
    key: Key = None,
    version: Version = None,
    place: Place = None,
    as_json: options.Json = False,
) -> None:
    """Let a campaign stop that the alarm holds, once you have looked at its data. The log keeps that, and why."""
    about = OpenQuery(version)
    _change(
        place, campaign, about, as_json, lambda open_campaign, which: open_campaign.release(reason, key=key, **which)
    )


@session_app.command()
def verify(
    queries: Annotated[int, typer.Argument(parser=whole, metavar="K", help="How many; 0 for none.")],
    campaign: Name = None,
    key: Key = None,
    place: Place = None,
    as_json: options.Json = False,
) -> None:
    """Ask for K redundant queries before a stop is final: they expose a prior that is wrong."""
    _change(place, campaign, None, as_json, lambda open_campaign, _: open_campaign.ask_to_verify(queries, key=key))


@session_app.command()
def undo(
    campaign: Name = None,
    key: Key = None,
    version: Version = None,
    place: Place = None,
    as_json: options.Json = False,
) -> None:
    """Take back the last change: the query before it is open again. The log keeps both."""
    _change(
        place, campaign, OpenQuery(version), as_json, lambda open_campaign, which: open_campaign.undo(key=key, **which)
    )


@session_app.command()
def skip(
    reason: Annotated[str, typer.Argument(metavar="[REASON]", help="Why it cannot be measured.")] = "",
    campaign: Name = None,
    step: StepOption = None,
    key: Key = None,
    version: Version = None,
    place: Place = None,
    as_json: options.Json = False,
) -> None:
    """The open query cannot be measured: show another, away from it."""
    about = OpenQuery(version, step)
    _change(place, campaign, about, as_json, lambda open_campaign, which: open_campaign.skip(reason, key=key, **which))


@session_app.command(context_settings=VALUES)
def attach(
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY|FILE.csv",
            help="Where it was measured: numbers, or NAME=VALUE, with commas between; or a table of measurements.",
        ),
    ],
    value: Annotated[
        str | None, typer.Argument(metavar="VALUE", help="What was measured: numbers with commas between.")
    ] = None,
    campaign: Name = None,
    yes: Yes = False,
    key: Key = None,
    place: Place = None,
    as_json: options.Json = False,
) -> None:
    """Record measurements made elsewhere: one, or all of a table with a column per setting and one for the value.

    \b
    Examples:
      cicpe session attach 0.1,0.2 1.5
      cicpe session attach temperature=850,time=60 318
      cicpe session attach last-year.csv
    """
    if value is None:
        if not query.endswith(".csv"):
            raise InvalidInput("value", None, "given: attach QUERY VALUE, or attach FILE.csv")
        _change(
            place, campaign, None, as_json, lambda open_campaign, _: _attach_table(open_campaign, Path(query), yes, key)
        )
        return
    _change(place, campaign, None, as_json, lambda open_campaign, _: _attach_one(open_campaign, query, value, yes, key))


@session_app.command()
def status(
    campaign: Name = None,
    place: Place = None,
    as_json: options.Json = False,
) -> None:
    """Draw what is known: confidence, the answer with its credible intervals, and the last steps."""
    with _commands(place) as commands:
        record = commands.record(campaign)
        live = commands.open(record)
        now, record = live.session.status(), live.record
        commands.remember(record, now)
    if as_json:
        print_json(record.model_dump(mode="json") | now.model_dump(mode="json"))
        return
    limits = live.session.answer_limits
    show_status(record, now, None if limits is None else limits.tolist(), 1 - record.delta)


@session_app.command("log")
def show_events(
    campaign: Name = None,
    place: Place = None,
    as_json: options.Json = False,
) -> None:
    """Print everything that happened, corrections and undone entries included."""
    with _commands(place) as commands:
        record = commands.record(campaign)
        events, seen = commands.store.events(record.id), commands.recent.seen(record.id)
    if as_json:
        entries = [event.model_dump(mode="json") for event in events]
        print_json({"campaign": record.name, "id": record.id, "events": entries})
        return
    print(f"{record.name} ({record.id[:8]})")
    show_log(events, None if seen is None else seen.units)


@session_app.command()
def export(
    campaign: Name = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to; FILE.csv for a table. Default: standard output.")
    ] = None,
    place: Place = None,
    as_json: options.Json = False,
) -> None:
    """Write one JSON document with everything: the model's hash, the settings, the log, and what follows from it.

    With --out FILE.csv write the measurements as a table, which `cicpe session attach FILE.csv` reads again.
    """
    from cicpe.files import write_atomic, write_json
    from cicpe.sessions.tables import table_of

    with _commands(place) as commands:
        live = commands.open(commands.record(campaign))
        document = live.export()
    if out is not None and out.suffix == ".csv":
        write_atomic(out, table_of(live.session).encode())
        print_json({"campaign": live.record.name, "file": str(out)}) if as_json else print(
            f"The measurements of {live.record.name} are in {out}."
        )
        return
    if out is None:
        print_json(document)
        return
    write_json(out, document)
    if as_json:
        print_json({"campaign": document["campaign"]["name"], "file": str(out)})
    else:
        print(f"{document['campaign']['name']} is in {out}.")


@session_app.command("list")
def list_campaigns(
    place: Place = None,
    as_json: options.Json = False,
) -> None:
    """List the campaigns of a store; a star marks the last one used."""
    with _commands(place) as commands:
        records, last = commands.store.campaigns(), commands.recent.last
    if as_json:
        print_json({"campaigns": [record.model_dump(mode="json") for record in records], "last": last})
    elif records:
        show_campaigns(records, last)
    else:
        print("There are no campaigns yet. Begin one: cicpe session new binary-search-6d --epsilon 0.1 --delta 0.1")


class OpenQuery(NamedTuple):
    """What the user said of the query that a change is about."""

    version: int | None = None
    step: int | None = None
    query: list[float] | None = None

    def checked(self, seen: "Status | None", campaign: "Campaign") -> dict[str, Any]:
        """What is checked before anything is recorded: never nothing."""
        if self.version is None and self.step is None and self.query is None:
            if seen is None:
                raise _nothing_seen(campaign)
            return {"expected_version": seen.version}
        named: dict[str, Any] = {"expected_version": self.version, "step": self.step, "query": self.query}
        if self.query is None and seen is not None and seen.query is not None and seen.step == self.step:
            named["query"] = seen.query  # the same number may be another place by now, after a skip
        return {name: value for name, value in named.items() if value is not None}


class EarlierStep(NamedTuple):
    """A step of the history that a change is about."""

    step: int

    def checked(self, seen: "Status | None", campaign: "Campaign") -> dict[str, Any]:
        """Where the step was measured, as the user has seen it: the same number may be another measurement by now."""
        known = seen is not None and 0 < self.step <= len(seen.history)
        return {"query": seen.history[self.step - 1].query} if known and seen is not None else {}


def _nothing_seen(campaign: "Campaign") -> InvalidInput:
    now, name = campaign.session.status(), campaign.record.name
    if now.query is None:
        return InvalidInput("version", None, f"the version that you saw: look with  cicpe session ask -c {name}")
    is_open = f"query {now.step} of {name} is open, at {now.units.query_words(now.query)}"
    how = f"look with  cicpe session ask,  or name it: --step {now.step} (for undo: --version {now.version})"
    return InvalidInput("step", None, f"the query that this is about, which you have not seen here. {is_open}; {how}")


def _change(
    place: str | None,
    name: str | None,
    about: "OpenQuery | EarlierStep | None",
    as_json: bool,
    change: "Callable[[Campaign, dict[str, Any]], None]",
) -> None:
    """Makes a change, for the query or the version that the user has seen or named, and shows what comes next."""
    with _commands(place) as commands:
        record = commands.record(name)
        seen = commands.recent.seen(record.id)
        campaign = commands.open(record)
        then = len(campaign.session.log)
        change(campaign, {} if about is None else about.checked(seen, campaign))
        if not as_json:
            _say_what_happened(campaign, then)
        _show(commands, campaign.record, campaign.session.status(), as_json)


def _say_what_happened(campaign: "Campaign", before: int) -> None:
    from cicpe.sessions.events import Undone, in_words

    log = campaign.session.log
    if len(log) == before:
        note(f"{campaign.record.name}: recorded before under this key; nothing was added")
    for event in log[before:]:
        units = campaign.session.units
        undone = f": {in_words(log[event.position], units)}" if isinstance(event, Undone) else ""
        note(f"{campaign.record.name}: {in_words(event, units)}{undone}")


def _show(commands: SessionCommands, record: "CampaignRecord", status: "Status", as_json: bool) -> None:
    commands.remember(record, status)
    if as_json:
        print_json({"campaign": record.name, "id": record.id} | status.model_dump(mode="json", exclude={"history"}))
    else:
        show_next(record, status)


def _leading_step(words: Sequence[str]) -> tuple[int | None, list[str]]:
    """The step that a value answers, in the short form ``3: 0.76``, and the rest."""
    before, colon, after = " ".join(words).partition(":")
    return (whole(before.strip()), [after]) if colon else (None, list(words))


def _words(words: Sequence[str]) -> list[str]:
    """What has spaces or commas between."""
    return re.split(r"[\s,;]+", " ".join(words).strip(" ,;"))


def _numbers(field: str, words: Sequence[str]) -> list[float]:
    """Numbers with spaces or commas between."""
    values = []
    for word in _words(words):
        try:
            values.append(float(word))
        except ValueError:
            raise InvalidInput(field, word, "numbers, such as 0.5 -1") from None
    return values


def _observed(words: Sequence[str]) -> list[float | str]:
    """Numbers, and words such as yes and no: the campaign knows which of them mean something."""
    values: list[float | str] = []
    for word in _words(words):
        try:
            values.append(float(word))
        except ValueError:
            values.append(word)
    return values


def _reference(model: str) -> str:
    """How a store names a model: by its name in the zoo, or by its folder from the root."""
    from cicpe import zoo
    from cicpe.model.model import model_folder

    return model if model in zoo.names() else str(model_folder(model).resolve())


def _context(pairs: Sequence[str], field: str = "context") -> dict[str, Any]:
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidInput(field, pair, "NAME=VALUE")
        values[name.strip()] = number(value)
    return values


def _observation(campaign: "Campaign", words: Sequence[str]) -> list[float | str] | str:
    """What was measured, as the campaign's units want it: text that they read, or numbers and words."""
    return " ".join(words).strip() if campaign.session.units.readout is not None else _observed(words)


def _attach_one(campaign: "Campaign", query: str, value: str, confirm: bool, key: str | None) -> None:
    where = _context(re.split(r"\s*[,;]\s*", query), "query") if "=" in query else _numbers("query", [query])
    campaign.attach(where, _observation(campaign, [value]), confirm=confirm, key=key)


def _attach_table(campaign: "Campaign", file: Path, confirm: bool, key: str | None) -> None:
    from cicpe.sessions.tables import read_table

    count = campaign.attach_all(read_table(file, campaign.session), confirm=confirm, key=key)
    note(f"{campaign.record.name}: attached {count} measurements of {file}")


def _free_name(store: "Store", model: str) -> str:
    """The model's name, with a number where it is taken."""
    taken = {record.name for record in store.campaigns()}
    wish = re.sub(r"[^A-Za-z0-9._-]", "-", model).lstrip("-._")[:56] or "campaign"
    return next(name for i in range(len(taken) + 1) if (name := wish if i == 0 else f"{wish}-{i + 1}") not in taken)
