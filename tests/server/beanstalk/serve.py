"""`python -m tests.server.beanstalk.serve URL`: serves the beanstalk door of this store, and prints its port."""

import signal
import sys

from tarry import App
from tests.server.beanstalk.serving import serving


def main(url: str) -> None:
    """Until it is killed."""
    app = App(url, closures=True)
    with serving(app) as door:
        print(door.port, flush=True)
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
