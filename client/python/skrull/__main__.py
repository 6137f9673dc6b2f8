"""``python -m skrull``."""

import sys

from skrull.cli import main

sys.exit(main())
