"""Asserts in the conformance suite, which is library code, tell what they compared."""

import pytest

pytest.register_assert_rewrite("tarry.store.conformance")

pytest_plugins = ["tests.servers.fixtures"]
