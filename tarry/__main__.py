"""`python -m tarry`."""

import sys

from tarry.cli.main import main

sys.exit(main())
