"""A release: dates the changelog, commits, and makes the tag. `make release` runs every check before it.

    python scripts/release.py --dry-run     # say what would be done

Pushing is left to you: git push --follow-tags.
"""

import argparse
import datetime
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADING = "## [Unreleased]"


def version_of(root: Path = ROOT) -> str:
    """The version that the package says it has; the citation has to say the same."""
    (version,) = re.findall(
        r'__version__ = "(.+)"', (root / "src" / "cicpe" / "_version.py").read_text(encoding="utf-8")
    )
    if f"version: {version}\n" not in (root / "CITATION.cff").read_text(encoding="utf-8"):
        sys.exit(f"CITATION.cff must say version {version}, as src/cicpe/_version.py does")
    return version


def dated(changelog: str, version: str, day: datetime.date) -> str:
    """The changelog with what was unreleased under the version, and an empty heading above it."""
    if f"## [{version}]" in changelog:
        sys.exit(f"CHANGELOG.md has an entry for {version} already: raise the version in src/cicpe/_version.py")
    before, found, after = changelog.partition(f"{HEADING}\n")
    if not found or not after.partition("\n## [")[0].strip():
        sys.exit(f"CHANGELOG.md must have something under {HEADING}")
    return f"{before}{HEADING}\n\n## [{version}] - {day.isoformat()}\n{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="change nothing")
    chosen = parser.parse_args()
    version, file = version_of(), ROOT / "CHANGELOG.md"
    text = dated(file.read_text(encoding="utf-8"), version, datetime.date.today())
    if subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True).stdout:
        sys.exit("the working tree must be clean: commit or stash first")
    print(f"release {version}: date the changelog, commit, tag v{version}")
    if chosen.dry_run:
        return
    file.write_text(text, encoding="utf-8")
    for command in (
        ["git", "commit", "-m", f"Release {version}", "--", "CHANGELOG.md"],
        ["git", "tag", "-a", f"v{version}", "-m", f"cicpe {version}"],
    ):
        subprocess.run(command, cwd=ROOT, check=True)
    print("now: git push --follow-tags")


if __name__ == "__main__":
    main()
