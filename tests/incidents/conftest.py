from tests.cli.conftest import disk  # noqa: F401 - a fixture
from tests.server.console.browser.conftest import browser  # noqa: F401 - a fixture
