"""The methods of the server, each by its name: `client.methods.pause_queue(queue="mail")`."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import msgspec

if TYPE_CHECKING:
    from tarry.operate.method import Method


class RemoteMethods:
    """What people and programs may do, as the HTTP API has it: its parameters by name, its answer as the same Struct as
    there. AttributeError for a name that no method has, TypeError for a parameter; the errors that the server answers
    with."""

    def __init__(self, call: Callable[..., bytes]) -> None:
        self._request = call

    def __getattr__(self, name: str) -> Any:
        # Here: who only enqueues needs none of them.
        from tarry.operate.catalog import METHODS  # noqa: PLC0415

        method = next((one for one in METHODS if one.name == name), None)
        if method is None:
            raise AttributeError(f"no method {name}: {', '.join(one.name for one in METHODS)}")
        return partial(self._call, method)

    def _call(self, method: "Method", /, **values: Any) -> Any:
        parts = _divide(method, values)
        path = method.route.format(**{name: quote(str(one), safe="") for name, one in parts["path"].items()})
        if parts["query"]:
            path += "?" + urlencode(parts["query"], doseq=True)
        answer = self._request(method.verb, path, parts["body"] if "body" in method.parts else None)
        return msgspec.json.decode(answer, type=method.answer) if answer and method.answer is not None else None


def _divide(method: "Method", values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The values of the path, the query and the body; TypeError."""
    found: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "body": {}}
    for part, kind in method.parts.items():
        names = {field.encode_name for field in msgspec.structs.fields(kind)}
        if part == "path" and not names <= values.keys():
            raise TypeError(f"{method.name} needs {', '.join(names - values.keys())}")
        found[part] = {name: values.pop(name) for name in names & values.keys()}
    if values:
        raise TypeError(f"{method.name} takes no {', '.join(values)}")
    return found
