"""``python -m cicpe``: the same as the ``cicpe`` command."""

import sys

from cicpe.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
