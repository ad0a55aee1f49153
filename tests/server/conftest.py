from tests.apps import nowhere  # noqa: F401 - a fixture of all tests here
