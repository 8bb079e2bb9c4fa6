"""Hostile requests to the server, made from its own OpenAPI schema: none may end in a 5xx or break its promises.

    python benchmarks/fuzz_server.py [--cases 5000] [--seed 0]

Half of the requests are made as the schema allows, half as it does not. A path is one of a campaign that is there
more often than not, so that requests get past the 404. Every answer is checked by schemathesis: no 5xx, a documented
code, the documented type, and a body of the documented shape.
"""

import argparse
import itertools
import json
import random
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest import SkipTest

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from cicpe.server.app import make_app
from cicpe.sessions.stores import open_store

HERE = "http://127.0.0.1"
MODEL = "binary-search-6d"
NEW = {"name": "titan", "model": MODEL, "epsilon": 0.2, "delta": 0.1}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


class Report(NamedTuple):
    """What became of the requests."""

    cases: int
    codes: dict[int, int]
    failures: list[dict[str, Any]]
    seconds: float


def fuzz_server(app: Any, cases: int, number: int = 0) -> Report:
    """Sends at least ``cases`` requests to an application, the same ones for the same number."""
    began = time.perf_counter()
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", app, headers={"Host": "127.0.0.1"})
    operations = [result.ok() for result in schema.get_all_operations()]
    create = next(one for one in operations if (one.method.upper(), one.path) == ("POST", "/api/campaigns"))
    look = next(one for one in operations if (one.method.upper(), one.path) == ("GET", "/api/campaigns/{campaign}"))
    create.Case(body=NEW, media_type="application/json").call(base_url=HERE)
    dice = random.Random(number)
    codes: Counter[int] = Counter()
    failures: list[dict[str, Any]] = []

    def version() -> int:
        return int(look.Case(path_parameters={"campaign": "titan"}).call(base_url=HERE).json()["status"]["version"])

    def send(case: Case) -> None:
        _aim(case, dice, version)
        code, wrong = _sent(case)
        codes[code] += 1
        if wrong:
            failures.append({"request": case.as_curl_command(), "code": code, "wrong": wrong})

    for turn in itertools.count():  # not every route can be asked wrongly, and a strategy may run out of examples
        missing = cases - sum(codes.values())
        if missing <= 0 or failures:
            break
        for operation in operations:
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                _draw(
                    operation.as_strategy(generation_mode=mode),
                    -(-missing // (2 * len(operations))),
                    number + turn,
                    send,
                )
    return Report(sum(codes.values()), dict(sorted(codes.items())), failures, time.perf_counter() - began)


def _draw(strategy: Any, many: int, number: int, send: Callable[[Case], None]) -> None:
    """Passes on up to this many examples."""
    quietly = settings(
        max_examples=many,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with suppress(Unsatisfiable, SkipTest):  # nothing of this kind can be made, such as a wrong body of a GET
        seed(number)(quietly(given(case=strategy)(lambda case: send(case))))()


def _aim(case: Case, dice: random.Random, version: Callable[[], int]) -> None:
    """Most requests at the campaign that is there, as it is now, some with numbers that it can take."""
    if "campaign" in (case.path_parameters or {}) and dice.random() < 0.8:
        case.path_parameters["campaign"] = "titan"
    if case.path_parameters and "name" in case.path_parameters and dice.random() < 0.5:
        case.path_parameters["name"] = MODEL
    if isinstance(case.body, dict):
        for field, width in (("observation", 6), ("query", 6)):
            if field in case.body and dice.random() < 0.5:
                case.body[field] = [dice.choice([-1.0, 1.0, 0.3, 1e30, 0]) for _ in range(width)]
        if case.path.endswith(("/tell", "/skip", "/undo")) and dice.random() < 0.7:
            case.body.pop("step", None)
            case.body.pop("query", None)
            case.body["expected_version"] = version()
        if "model" in case.body and dice.random() < 0.5:
            case.body["model"] = MODEL


def _sent(case: Case) -> tuple[int, str]:
    """The code of the answer, and what was wrong with it."""
    try:
        response = case.call(base_url=HERE)
    except Exception as error:  # the application broke: a server would have answered 500
        return 500, f"{type(error).__name__}: {error}"
    try:
        case.validate_response(response, checks=CHECKS)
    except BaseExceptionGroup as group:
        return response.status_code, "; ".join(f"{type(one).__name__}: {one}"[:1000] for one in group.exceptions)
    except AssertionError as error:
        return response.status_code, str(error)[:1000]
    return response.status_code, ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "campaigns.db")
        report = fuzz_server(make_app(store), chosen.cases, chosen.seed)
        store.close()
    print(json.dumps(report._asdict(), indent=1))
    raise SystemExit(1 if report.failures else 0)


if __name__ == "__main__":
    main()
