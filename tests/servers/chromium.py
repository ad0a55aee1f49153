"""The browser of the tests of pages."""

import shutil

# Without a window it starts with half the CPU time.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, _NAMES)), None)
"""Its path; None: there is none."""
