"""The lowest versions that pyproject.toml allows, as requirements: what `make test-lowest` installs.

    python scripts/lowest_versions.py [EXTRA ...]

torch is left out: constraints.txt says which one is tested.
"""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]


def lowest(extras: list[str]) -> list[str]:
    """``name==version`` for every requirement that names a lower bound."""
    wanted = PROJECT["dependencies"] + [line for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    requirements = {}
    for line in wanted:
        match = re.match(r"([A-Za-z0-9_.-]+)(\[[a-z]+\])?>=([0-9.]+)", line)
        if match and match[1] != "torch":
            requirements[match[1]] = (
                f"{match[1]}{match[2] or ''}=={match[3]}.*" if match[3].count(".") < 2 else f"{match[1]}=={match[3]}"
            )
    return sorted(requirements.values())


if __name__ == "__main__":
    print("\n".join(lowest(sys.argv[1:])))
