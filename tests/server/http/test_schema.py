"""Requests made from the OpenAPI document: none is answered with a fault, and each answer is as the document says."""

import warnings
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings

import tarry
from tarry import App

with warnings.catch_warnings():
    # Of its own dependencies.
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.core.failures import FailureGroup
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
ENDLESS = {"stream_events"}
EXAMPLES = 10


def _call(case: Any) -> None:
    for part in (case.body, case.query):
        # Nobody puts what is waited for.
        if isinstance(part, dict) and "wait" in part:
            part["wait"] = 0
    case.call_and_validate(checks=CHECKS)


def failures(operation: Any) -> list[str]:
    """What is wrong with the answers to requests of this operation."""
    call = given(case=operation.as_strategy())(_call)
    try:
        settings(
            max_examples=EXAMPLES,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )(call)()
    except FailureGroup as group:
        return [f"{operation.label}: {failure}" for failure in group.exceptions]
    return []


def test_any_request_is_answered_as_the_document_says(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db", closures=True)

    @app.task(name="mail")
    def mail(to: str) -> None: ...

    app.named("mail").using(key="k").enqueue("ann")
    door = tarry.asgi(app, host_names=["*"])
    try:
        schema: Any = schemathesis.openapi.from_asgi("/v1/openapi.json", door)
        operations = [each.ok() for each in schema.get_all_operations()]
        assert len(operations) > 20
        wrong = [
            line
            for operation in operations
            if operation.definition.raw["operationId"] not in ENDLESS
            for line in failures(operation)
        ]
    finally:
        door.close()
        app.close()
    assert wrong == [], "\n".join(wrong)
