"""``python -m cicpe``: the command line."""

import sys

from cicpe.cli.main import main

sys.exit(main())
