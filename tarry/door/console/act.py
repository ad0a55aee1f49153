"""What a person may do: each act is a method of the HTTP API, with a form in place of JSON and a page as its answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from tarry.door.console.translation import Language
from tarry.door.http.method import ApiMethod
from tarry.door.http.problem import RequestError, wrong_value

Form = Sequence[tuple[str, str]]
"""The filled-in fields of a form."""

OWN_FIELDS = ("csrf", "next")
"""Fields of a form that are the console's, and not the method's."""
JSON_FIELD = ":json"
"""The end of the name of a field that is JSON: settings of tasks have values of any type, which text does not tell."""
MOST_FORM = 2**20
"""Bytes of a form."""
_MOST_FIELDS = 200
_DEEPEST = 6
"""Names in the name of a field: `settings.headers.X-Shop` has three."""


class ConsoleAct(Struct, frozen=True):
    """An act. done: what is said after it, with names of fields of its method's answer in braces; or a function that
    gives such a text for an answer."""

    method: ApiMethod
    done: str | Callable[[Any], str]
    page: Callable[[Any], str] | None = None
    """The page to show then, from the answer; None: the one that the form was on."""

    @property
    def route(self) -> str:
        """Where its form is sent: the path of the method, without /v1."""
        # A browser's form can only get and post, so what the verb says is said by the path.
        path = self.method.route.removeprefix("/v1")
        return f"{path}/delete" if self.method.verb == "DELETE" else path

    def said(self, answer: Any, language: Language) -> str:
        """What is said after it, in that language."""
        text = self.done if isinstance(self.done, str) else self.done(answer)
        return language.text(text).format(**(msgspec.structs.asdict(answer) if isinstance(answer, Struct) else {}))


def read_form(body: bytes) -> Form:
    """The filled-in fields of a form, as a browser sends them; RequestError."""
    try:
        text = body.decode("ascii")
        fields = parse_qsl(text, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise RequestError(f"the form cannot be read: {error}", "body") from None
    return [(name, value) for name, value in fields if value]


def form_values(fields: Form, kind: Any) -> Any:
    """The fields as the body that a method takes. `filter.queue` is the field `queue` of `filter`; a field that comes
    several times is a list; `enabled:json` is the field `enabled`, whose text is JSON. RequestError."""
    found: dict[str, Any] = {}
    for name, value in fields:
        if name not in OWN_FIELDS:
            path = name.removesuffix(JSON_FIELD)
            _put(found, path.split("."), value if path == name else _decoded(path, value))
    try:
        # Not strict: all values of a form are text.
        return msgspec.convert(found, kind, strict=False)
    except msgspec.ValidationError as error:
        raise wrong_value(error, "body") from None


def _decoded(name: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"{name}: {error}", name) from None


def _put(found: dict[str, Any], path: list[str], value: Any) -> None:
    if len(path) > _DEEPEST:
        raise RequestError("the form has a field within too many others", "body")
    *parents, last = path
    for name in parents:
        found = found.setdefault(name, {})
        if not isinstance(found, dict):
            raise RequestError(f"the form has a value and fields named {name}", name)
    before = found.get(last)
    if isinstance(before, Mapping):
        raise RequestError(f"the form has a value and fields named {last}", last)
    found[last] = value if before is None else [*before, value] if isinstance(before, list) else [before, value]
