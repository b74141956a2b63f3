"""``python -m workbench``: the command of the same name."""

import sys

from workbench.cli import main

sys.exit(main())
