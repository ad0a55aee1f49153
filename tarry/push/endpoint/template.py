"""Texts with placeholders that the JSON body of a job fills in: `https://shop.example/orders/{order.id}?n={items.0}`.

Each value is escaped for its place. A body cannot choose scheme, host or port, and cannot change the path: a value is
one segment or a part of one. `{{` and `}}` are literal braces.
"""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

from msgspec import Struct

from tarry.push.rule.json_path import ABSENT, get_child
from tarry.push.rule.rule_errors import SettingSyntaxError

MOST_URL, MOST_FILLED = 2000, 8000
"""Characters of a url as written, and with the values filled in."""

_CHOOSES = "a placeholder in scheme, host or port; put it behind: a body must not choose who is called"
_PART = re.compile(r"\{\{|\}\}|\{(?P<path>[^{}]*)\}|[{}]|[^{}]+")
_NAME = re.compile(r"[^\s/?#%\\]+")
_AUTHORITY = re.compile(r"(?i:https?)://(?P<authority>[^/?#]*)")
_STRANGE = re.compile(r"[\x00-\x20\x7f-\xa0\\<>\"^`|\ud800-\udfff]")
_DOTS = re.compile(r"(?:\.|%2e){1,2}", re.IGNORECASE)
_MISPERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


class TemplateError(ValueError):
    """The body lacks a value that a placeholder needs. A retry cannot help."""


class Placeholder(Struct, frozen=True):
    """`{customer.id}`: a path of field names and list positions."""

    path: str

    def value(self, body: Any) -> str:
        """The value in the body as text; TemplateError unless it is a text, a number, true or false."""
        value = body
        for name in self.path.split("."):
            if (value := get_child(value, name)) is ABSENT:
                raise TemplateError(f"{{{self.path}}}: the body has no {name} there")
        match value:
            # First, since a bool is an int too.
            case bool():
                return "true" if value else "false"
            case str() | int() | float():
                return str(value)
        kind = "null" if value is None else "a list" if isinstance(value, list) else "an object"
        raise TemplateError(f"{{{self.path}}}: the body has {kind} there, and a placeholder takes a text or a number")


class Template(Struct, frozen=True):
    """A text with placeholders. Two with the same text are equal."""

    text: str
    parts: tuple[str | Placeholder, ...]

    @classmethod
    def parse(cls, text: str) -> "Template":
        """The template of this text; SettingSyntaxError if its braces are wrong."""
        if len(text) > MOST_URL:
            raise SettingSyntaxError(f"it has {len(text)} characters; at most {MOST_URL}", MOST_URL + 1)
        return cls(text, tuple(_parse(text)))

    @property
    def is_fixed(self) -> bool:
        """Whether it has no placeholder."""
        return all(isinstance(part, str) for part in self.parts)

    def fill(self, body: Any) -> str:
        """The text with the values of the body, a decoded JSON value, not escaped; TemplateError if it lacks one."""
        return "".join(part if isinstance(part, str) else part.value(body) for part in self.parts)


class UrlTemplate(Struct, frozen=True):
    """An HTTP or HTTPS URL with placeholders in its path and query."""

    text: str
    path: tuple[str | Placeholder, ...]
    """Scheme, host and path."""
    query: tuple[str | Placeholder, ...]
    """The part from the question mark."""

    @classmethod
    def parse(cls, text: str) -> "UrlTemplate":
        """The URL of this text; SettingSyntaxError if it is invalid or has a placeholder in scheme, host or port."""
        _check_url(text)
        path: list[str | Placeholder] = []
        query: list[str | Placeholder] = []
        for part in _parse(text):
            # A `{{` stands for a brace, which a URL cannot have as it is.
            literal = "" if isinstance(part, Placeholder) else _without_braces(part)
            if query or "?" not in literal:
                (query or path).append(literal or part)
            else:
                before, mark, after = literal.partition("?")
                path.append(before)
                query.append(mark + after)
        return cls(text, tuple(path), tuple(query))

    @property
    def is_fixed(self) -> bool:
        """Whether it has no placeholder."""
        return all(isinstance(part, str) for part in self.path + self.query)

    @property
    def sample(self) -> str:
        """The URL with an `x` for each placeholder."""
        return "".join(part if isinstance(part, str) else "x" for part in self.path + self.query)

    @property
    def origin(self) -> str:
        """Scheme, host and port: `https://shop.example`."""
        found = urlsplit(self.text)
        return f"{found.scheme}://{found.netloc}".lower()

    @property
    def shown(self) -> str:
        """The URL for people: without the query, which may hold secrets."""
        return self.text.partition("?")[0] + ("?..." if self.query else "")

    def fill(self, body: Any) -> str:
        """The URL for this body, a decoded JSON value; TemplateError if a value is missing or would change the path."""
        path = "".join(part if isinstance(part, str) else _segment(part, body) for part in self.path)
        if any(isinstance(part, Placeholder) for part in self.path):
            _check_segments(path, self.text)
        url = path + "".join(part if isinstance(part, str) else _escape(part, body) for part in self.query)
        if len(url) > MOST_FILLED:
            raise TemplateError(f"the url has {len(url)} characters with the values of the body; at most {MOST_FILLED}")
        return url


def _parse(text: str) -> Iterator[str | Placeholder]:
    for match in _PART.finditer(text):
        at = match.start() + 1
        if match["path"] is not None:
            yield Placeholder(_path(match["path"], at))
        elif match[0] in ("{{", "}}"):
            yield match[0][0]
        elif match[0] in ("{", "}"):
            raise SettingSyntaxError(
                f"a {match[0]} without its other half; write {match[0] * 2} for the sign itself", at
            )
        else:
            yield match[0]


def _without_braces(text: str) -> str:
    return text.replace("{", "%7B").replace("}", "%7D")


def _path(text: str, at: int) -> str:
    names = [name.strip() for name in text.split(".")]
    if not all(_NAME.fullmatch(name) for name in names):
        raise SettingSyntaxError(
            "a placeholder names a field of the body; write {order}, {customer.id} or {items.0}", at
        )
    return ".".join(names)


def _check_url(text: str) -> None:
    """SettingSyntaxError if the text is no URL to call."""
    if not isinstance(text, str):
        raise SettingSyntaxError('a url is text; write "https://host/path"')
    if len(text) > MOST_URL:
        raise SettingSyntaxError(f"it has {len(text)} characters; at most {MOST_URL}", MOST_URL + 1)
    found = _AUTHORITY.match(text)
    # First, since a placeholder in scheme or host may be why the text is no URL.
    brace = re.search(r"[{}]", text[: found.end() if found else text.find("://") + 1])
    if brace:
        raise SettingSyntaxError(_CHOOSES, brace.start() + 1)
    if found is None:
        raise SettingSyntaxError('no URL to call; write "https://host/path"', 1)
    # Of the same length, so that the position in an error is right.
    _check_characters(re.sub(r"\{[^{}]*\}", lambda inner: "x" * len(inner[0]), text))
    _check_authority(found["authority"], found.start("authority") + 1)


def _check_characters(text: str) -> None:
    if strange := _STRANGE.search(text):
        escaped = quote(strange[0], safe="", errors="replace")
        raise SettingSyntaxError(f"no URL has {strange[0]!r} in it; write {escaped}", strange.start() + 1)
    if bare := _MISPERCENT.search(text):
        raise SettingSyntaxError("no URL has % without two hexadecimal digits; write %25", bare.start() + 1)
    if "#" in text:
        raise SettingSyntaxError("what follows # is never sent; leave it out", text.index("#") + 1)


def _check_authority(authority: str, at: int) -> None:
    if "@" in authority:
        raise SettingSyntaxError(
            "user and password do not belong into a url; write headers = { authorization = ... }", at
        )
    try:
        found = urlsplit(f"//{authority}")
        host, port = found.hostname, found.port
    except ValueError:
        raise SettingSyntaxError("the host or the port is none; write https://host:8443/path", at) from None
    if not host or port == 0:
        raise SettingSyntaxError("there is no host or the port is 0; write https://host:8443/path", at)


def _escape(placeholder: Placeholder, body: Any) -> str:
    return quote(placeholder.value(body), safe="", errors="replace")


def _segment(placeholder: Placeholder, body: Any) -> str:
    """A value as a part of the path; TemplateError if it has a slash."""
    # Escaping is not enough: many servers decode `%2F`, so that `x/../admin` would lead elsewhere.
    value = placeholder.value(body)
    if found := re.search(r"[/\\]", value):
        raise TemplateError(f"{{{placeholder.path}}}: the body has a {found[0]} there, which would change the path")
    return quote(value, safe="", errors="replace")


def _check_segments(url: str, text: str) -> None:
    """TemplateError if a value made a segment empty, `.` or `..`, which would lead elsewhere."""
    # Only segments with a placeholder: dots that the settings have are there on purpose.
    written, filled = text.partition("?")[0].split("/")[3:], url.split("/")[3:]
    for before, after in zip(written, filled, strict=True):
        if "{" in before and (not after or _DOTS.fullmatch(after)):
            raise TemplateError(f"{before}: the body has {after!r} there, which would change the path")
