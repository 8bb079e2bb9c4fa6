"""What keeps the house in order, counted from the source itself: each count has a test that fails when it grows."""

import ast
from collections.abc import Iterator
from pathlib import Path

import cicpe

ROOT = Path(cicpe.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node


def called(tree: ast.AST) -> set[str]:
    """The names of methods that are called anywhere inside."""
    return {
        node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }


PROPOSING = {"propose", "assess", "look"}
"""Methods that propose a query, by their names now and before the redesign."""


def loops_that_play(path: Path, root: Path = ROOT) -> list[str]:
    """Functions with a loop in which queries are both proposed and observed: an episode, played by hand."""
    loops = []
    for function in functions(ast.parse(path.read_text(encoding="utf-8"))):
        for loop in ast.walk(function):
            if isinstance(loop, ast.For | ast.While) and "observe" in called(loop) and called(loop) & PROPOSING:
                loops.append(f"{path.relative_to(root)}:{function.name}")
                break
    return loops


def test_episodes_are_played_in_one_function() -> None:
    loops = [loop for path in FILES for loop in loops_that_play(path)]
    # The conformance suite of agents is no player: it compares several ways to the same states.
    assert [loop for loop in loops if not loop.startswith("testing/")] == ["episodes/play.py:play"]


def test_a_second_player_would_be_found(tmp_path: Path) -> None:
    """The negative control."""
    file = tmp_path / "second.py"
    file.write_text(
        "def run(agent, tasks):\n    state = agent.begin(0)\n    for t in range(9):\n"
        "        proposal = agent.propose(state, 0)\n"
        "        state = agent.observe(state, proposal.query, tasks.observe(1))\n"
    )
    assert loops_that_play(file, tmp_path) == ["second.py:run"]


KINDS = {"NetworkBelief", "ParticleBelief", "FunctionBelief"} | {
    "TrainingConfig",
    "PaperConfig",
    "NetworkTraining",
    "ParticleBeliefConfig",
    "FunctionBeliefConfig",
}


def kinds_asked_for(path: Path) -> list[str]:
    """Where an ``isinstance`` asks which kind of belief something is."""
    places = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            names = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
            if names & KINDS:
                places.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return places


def test_nobody_asks_a_belief_for_its_kind() -> None:
    asked = [place for path in FILES for place in kinds_asked_for(path)]
    # The training package tells its own two algorithms apart.
    assert [place for place in asked if not place.startswith("training/")] == []


RULES = {"bellman", "shaped"}


def test_stop_rules_are_named_where_they_are_made() -> None:
    """A new rule is a class and a line of the registry: no other module knows the names of rules."""
    named = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in RULES:
                named.add(str(path.relative_to(ROOT)))
    # Networks say which of the two their critic was trained for; the first format of a calibration named one.
    assert named == {"agents/stop_rules.py", "beliefs/network/belief.py", "calibration/table.py"}


def most_arguments(path: Path) -> Iterator[tuple[int, str]]:
    for function in functions(ast.parse(path.read_text(encoding="utf-8"))):
        names = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        yield len([name for name in names if name.arg not in ("self", "cls")]), function.name


def test_long_signatures_are_requests() -> None:
    """Functions with more than nine arguments; on the command line they are flags, ``train`` and ``new`` are fronts."""
    long = {
        name
        for path in FILES
        if "cli" not in path.relative_to(ROOT).parts
        for count, name in most_arguments(path)
        if count > 9
    }
    assert long <= {"train", "evaluate", "compare", "certify", "__init__", "_add", "new"}
