"""``cicpe data``: surveys, and the fields that are fitted to their regions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cicpe.cli.arguments import whole
from cicpe.cli.output import note, plain_table, print_json, print_table, say
from cicpe.display import amount
from cicpe.errors import InvalidInput

if TYPE_CHECKING:
    from cicpe.data.collection import Collection, Entry
    from cicpe.data.survey import Survey

data_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Surveys, and the fields fitted to their regions."
)

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FILE...", help="CSV files, or folders of them; without any, the fetched survey."),
]
ColumnNames = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="LAT,LON,VALUE,REGION",
        help="The four columns by name. Found without it in the USGS survey, and where they are lat, lon, cu_ppm, quad "
        "or latitude, longitude, value, region.",
    ),
]
Least = Annotated[int, typer.Option(parser=whole, metavar="N", help="Leave out regions with fewer samples.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


@data_app.command()
def fetch(
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Take a file that was downloaded elsewhere.")
    ] = None,
) -> None:
    """Download the National Geochemical Survey of the USGS (63 MB) and check it."""
    from cicpe.data.fetch import URL, fetch_survey, survey_path

    if source is None and not survey_path().is_file():
        note(f"fetching {URL}")
    say(str(fetch_survey(source)))


@data_app.command()
def show(files: Files = None, columns: ColumnNames = None, least: Least = 50, as_json: AsJson = False) -> None:
    """List the regions of a survey, with how many samples each has."""
    from cicpe.data.regions import regions_of

    survey = _survey(files, columns)
    rows = [
        {
            "region": region.name,
            "samples": region.samples,
            "places": len(region.value),
            "below_limit": region.below_limit,
            "kilometres": [round(metres / 1000, 1) for metres in region.size],
            "log_mean": round(region.log_mean, 3),
            "log_std": round(region.log_std, 3),
        }
        for region in regions_of(survey, least)
    ]
    smaller = len(set(survey.region)) - len(rows)
    if as_json:
        print_json({"samples": len(survey), "left_out": survey.left_out, "smaller_regions": smaller, "regions": rows})
        return
    table = plain_table()
    for heading in ("region", "samples", "places", "below limit", "km", "log mean", "log std"):
        table.add_column(heading)
    for row in rows:
        cells = {**row, "kilometres": "{:.0f} x {:.0f}".format(*row["kilometres"])}  # type: ignore[misc]
        table.add_row(*map(str, cells.values()))
    print_table(table)
    say(f"{amount(len(survey), 'sample')}; {amount(survey.left_out, 'row')} without a usable value, place or region")
    if smaller:
        say(f"{amount(smaller, 'region')} with fewer than {least} samples not shown")


@data_app.command()
def fit(
    files: Files = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="What to call the fitted fields.")] = "copper",
    columns: ColumnNames = None,
    least: Least = 50,
    region: Annotated[list[str] | None, typer.Option(metavar="R", help="Only this region; may be repeated.")] = None,
    steps: Annotated[int, typer.Option(parser=whole, metavar="N", help="Steps of the optimiser.")] = 1000,
    draws: Annotated[
        int, typer.Option(parser=whole, metavar="N", help="Draws and twins of each region, to vary tasks with.")
    ] = 24,
    jobs: Annotated[int, typer.Option(parser=whole, metavar="N", help="Processes at a time.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Fit a field to every region. What is fitted already is not fitted again, so it can be interrupted."""
    import torch

    from cicpe.data.collection import fit_regions
    from cicpe.data.fields import FitSettings
    from cicpe.data.regions import regions_of

    if not 1 <= jobs <= 1024:
        raise InvalidInput("jobs", jobs, "a whole number from 1 to 1024")
    regions = regions_of(_survey(files, columns), least, region or ())
    torch.set_num_threads(1)  # the matrices are small: more threads only get in each other's way

    def on_region(entry: "Entry") -> None:
        note(f"{entry.name}: {amount(entry.places, 'place')}, {entry.seconds:.1f} s")

    _print_fields(fit_regions(regions, name, FitSettings(steps=steps, draws=draws), jobs, on_region), as_json)


@data_app.command("fields")
def show_fields(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name that they were fitted under.")] = "copper",
    as_json: AsJson = False,
) -> None:
    """List fitted fields: length scales, noise, the group of each region, and the split that holds it out."""
    from cicpe.data.collection import open_collection

    _print_fields(open_collection(name), as_json)


def _survey(files: list[Path] | None, columns: str | None) -> "Survey":
    from cicpe.data.fetch import survey_path
    from cicpe.data.survey import Columns, read_surveys

    if not files and not survey_path().is_file():
        raise InvalidInput("file", None, "a CSV file, or nothing after cicpe data fetch")
    names = None if columns is None else [part.strip() for part in columns.split(",")]
    if names is not None and (len(names) != 4 or not all(names)):
        raise InvalidInput("columns", columns, "four names: latitude,longitude,value,region")
    return read_surveys(files or [survey_path()], None if names is None else Columns(*names))


def _print_fields(collection: "Collection", as_json: bool) -> None:
    rows = _field_rows(collection)
    if as_json:
        print_json({"name": collection.name, "digest": collection.digest, "regions": rows})
        return
    table = plain_table(f"{collection.name}@{collection.digest}")
    headings = (
        "region",
        "places",
        "length scales",
        "signal",
        "noise",
        "bound",
        "resolvable",
        "held out in",
        "fitted in",
    )
    for heading in headings:
        table.add_column(heading)
    for row in rows:
        east, north = row["lengthscale"]
        figures = [f"{row[key]:.2f}" for key in ("signal", "noise", "elbo")]
        group, fold = "yes" if row["resolvable"] else "no", "-" if row["split"] is None else f"split {row['split']}"
        scales, places = f"{east:.3f} {north:.3f}", str(row["places"])
        table.add_row(row["region"], places, scales, *figures, group, fold, f"{row['seconds']:.1f} s")
    print_table(table)


def _field_rows(collection: "Collection") -> list[dict[str, Any]]:
    from cicpe.data.splits import FOLDS, split

    fold: dict[str, int] = {}
    if len(collection.entries) >= FOLDS:
        fold = {name: k for k in range(FOLDS) for name in split(collection.boxes, k).held_out}
    return [
        {
            "region": entry.name,
            "samples": entry.samples,
            "places": entry.places,
            "lengthscale": list(entry.lengthscale),
            "signal": entry.signal,
            "noise": entry.noise,
            "elbo": entry.elbo,
            "resolvable": entry.resolvable,
            "split": fold.get(entry.name),
            "seconds": entry.seconds,
        }
        for entry in collection.entries
    ]
