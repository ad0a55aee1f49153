"""What a person may do: each act is a method of the HTTP API, with a form in place of JSON and a page as its answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from tarry.model.checks.decoders import convert_to
from tarry.operate.method import Method
from tarry.operate.problem import RequestError, wrong_value
from tarry.push.endpoint.written import read_written
from tarry.server.console.translation import Language
from tarry.server.http.method import ApiCall

Form = Sequence[tuple[str, str]]
"""The fields of a form, also those that are empty."""

OWN_FIELDS = ("csrf", "next")
"""Fields of a form that are the console's, and not the method's."""
JSON_FIELD = ":json"
"""The end of the name of a field that is JSON: settings of tasks have values of any type, which text does not tell."""
LIST_FIELD = ":list"
"""The end of the name of a field that is a list, also where it comes once."""
SETTING_FIELD = ":setting"
"""The end of the name of a field with a setting of a task, written as on the command line; null if it is empty."""
MOST_FORM = 2**20
"""Bytes of a form."""
_MOST_FIELDS = 200
_DEEPEST = 6
"""Names in the name of a field: `settings.headers.X-Shop` has three."""


class FormPage(Struct, frozen=True):
    """A page with a form that is shown again if what was typed is refused."""

    template: str
    show: Callable[[ApiCall, Form, Exception], Mapping[str, Any] | None]
    """What the template shows, of what was typed and of the error; None: the form was another one. May block."""


class ConsoleAct(Struct, frozen=True):
    """An act. done: what is said after it, with names of fields of its method's answer in braces; or a function that
    gives such a text for an answer."""

    method: Method
    done: str | Callable[[Any], str]
    page: Callable[[Any], str] | None = None
    """The page to show then, from the answer; None: the one that the form was on."""
    form: FormPage | None = None
    """Its form, to be shown again with what was typed; None: an error has a page of its own."""

    @property
    def route(self) -> str:
        """Where its form is sent: the path of the method, without /v1."""
        # A browser's form can only get and post, so what the verb says is said by the path.
        path = self.method.route.removeprefix("/v1")
        # Not the name alone: it may end as the path of another act does, `x/pause`, which would be called then.
        own = {"DELETE": "/delete", "PUT": "/set", "PATCH": "/change"}
        return path + own.get(self.method.verb, "")

    def said(self, answer: Any, language: Language) -> str:
        """What is said after it, in that language."""
        text = self.done if isinstance(self.done, str) else self.done(answer)
        return language.text(text).format(**(msgspec.structs.asdict(answer) if isinstance(answer, Struct) else {}))


def read_form(body: bytes) -> Form:
    """The fields of a form, as a browser sends them; RequestError."""
    try:
        text = body.decode("ascii")
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise RequestError(f"the form cannot be read: {error}", "body") from None


def without_empty(form: Form) -> Form:
    """The fields that are not empty: a browser sends also those that nobody has filled in."""
    return [(name, value) for name, value in form if value]


def form_values(fields: Form, kind: Any) -> Any:
    """The fields as the body that a method takes. `filter.queue` is the field `queue` of `filter`; a field that comes
    several times, or is named `states:list`, is a list; `enabled:json` is the field `enabled`, whose text is JSON;
    `delay:setting` is the setting `delay` of a task, null if it is empty. Any other empty field is left out.
    RequestError."""
    found: dict[str, Any] = {}
    for name, value in fields:
        if name in OWN_FIELDS:
            continue
        if name.endswith(SETTING_FIELD):
            path = name.removesuffix(SETTING_FIELD).split(".")
            _put(found, path, read_written(path[-1], value))
        elif value:
            whole = name.removesuffix(JSON_FIELD).removesuffix(LIST_FIELD)
            one = _decode_field(whole, value) if name.endswith(JSON_FIELD) else value
            _put(found, whole.split("."), one, name.endswith(LIST_FIELD))
    try:
        # Not strict: all values of a form are text.
        return convert_to(kind, found, strict=False)
    except msgspec.ValidationError as error:
        raise wrong_value(error, "body") from None


def _decode_field(name: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"{name}: {error}", name) from None


def _put(found: dict[str, Any], path: list[str], value: Any, is_list: bool = False) -> None:
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
    if before is None:
        found[last] = [value] if is_list else value
    else:
        found[last] = [*before, value] if isinstance(before, list) else [before, value]
