"""Templates, and how values look on a page."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache, partial
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from tarry.client.job_records import JobRecord
from tarry.model.duration import SECOND, format_duration
from tarry.model.job import State
from tarry.model.quantity import format_size
from tarry.model.values.console_paths import path_part
from tarry.server.console.assets import asset_path
from tarry.server.console.charts.drawing import spark
from tarry.server.console.charts.scale import Label, short_number, time_labels
from tarry.server.console.charts.times import ONLY_UTC, UNKNOWN, Zone
from tarry.server.console.translation import Language
from tarry.tasks.arguments.masking import without_secrets

MOST_TEXT = 20_000
"""Characters of arguments, results and tracebacks that a page shows."""
MOST_TROUBLE = 160
"""Characters of an error in a list."""
NOW, PAST, FUTURE = "now", "%(time)s ago", "in %(time)s"


@lru_cache(maxsize=4)
def environment(language: Language) -> Environment:
    """The templates in that language."""
    found = Environment(
        loader=PackageLoader("tarry.server.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    # From the extension, which types do not know.
    install: Callable[..., None] = getattr(found, "install_gettext_callables")  # noqa: B009
    install(language.text, language.plural, newstyle=True)
    found.filters.update(number=number, span=span, size=size, pretty=pretty, percent=percent, short=short)
    found.filters.update(spark=spark, about=about, brief=short_number, trouble=trouble, word=partial(word, language))
    found.filters.update(sentence=partial(sentence, language), urlencode=url_part, path_part=path_part)
    found.filters.update(_time_filters(language))
    return found


def _time_filters(language: Language) -> Mapping[str, Callable[..., Any]]:
    """Filters for times, in the zone of whoever reads the page."""

    @pass_context
    def in_words(context: Context, seconds: float | None, now: float) -> Markup:
        return moment(language, seconds, now, _zone(context))

    @pass_context
    def second(context: Context, seconds: float) -> str:
        return _zone(context).second(seconds)

    @pass_context
    def minute(context: Context, seconds: float) -> str:
        return _zone(context).minute(seconds)

    @pass_context
    def stamp(context: Context, written: str) -> str:
        return written_time(written, _zone(context))

    @pass_context
    def across(context: Context, starts: range) -> list[Label]:
        return time_labels(starts, _zone(context))

    return {"moment": in_words, "second": second, "minute": minute, "stamp": stamp, "across": across}


def _zone(context: Context) -> Zone:
    zone: Zone = context["zone"]
    return zone


def word(language: Language, value: object) -> str:
    """A value that is a word of ours, in that language. Any other is shown as it is: the template escapes it, and
    nothing in it is formatted. For all that is no literal: `_()` of a template makes markup of its text."""
    return language.text(str(value))


def sentence(language: Language, english: str, values: Mapping[str, object]) -> Markup:
    """A sentence of ours that a template has from a table, with its `%(name)s` filled in by escaped values."""
    return escape(language.text(english)) % values


def address_functions(root: str) -> Mapping[str, Callable[[str], str]]:
    """What templates make addresses with. root: the path below which the console is mounted."""
    return {"url": lambda path: root + path, "asset": lambda name: root + asset_path(name)}


def number(value: float | None) -> str:
    """`1,204`; a dash for None."""
    return "–" if value is None else f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def written_time(written: str, zone: Zone) -> str:
    """A time of ISO 8601 in that zone, to the second; any other text as it is."""
    try:
        found = zone.second(datetime.fromisoformat(written).timestamp())
    except (ValueError, OverflowError):
        return written
    return written if found == UNKNOWN else found


def moment(language: Language, seconds: float | None, now: float, zone: Zone = ONLY_UTC) -> Markup:
    """How far a time is from now, with the time itself as its title; a dash for None. In seconds since the epoch."""
    if seconds is None:
        return Markup("–")
    away = seconds - now
    which = NOW if abs(away) < 1 else PAST if away < 0 else FUTURE
    at = ONLY_UTC.moment(seconds)
    if at is None:
        return Markup(UNKNOWN)
    return Markup('<time datetime="{}Z" title="{}">{}</time>').format(
        at.strftime("%Y-%m-%dT%H:%M:%S"), zone.second(seconds), language.text(which) % {"time": span(abs(away))}
    )


def span(seconds: float | None) -> str:
    """`4.2ms`, `3m20s`; a dash for None."""
    return "–" if seconds is None else format_duration(max(0, round(seconds * SECOND)))


def about(seconds: float | None) -> str:
    """`290ms`, `1.7s`: to two digits, as exact as a percentile of the history is; a dash for None."""
    return "–" if seconds is None else span(float(f"{seconds:.2g}")).replace(".0ms", "ms")


def url_part(name: object) -> str:
    """A value as it stands in the query of an address."""
    return quote(str(name), safe="/")


def size(octets: float | None) -> str:
    """`512 B`, `1.2 MB`; a dash for None."""
    return "–" if octets is None else format_size(octets)


def percent(part: float) -> str:
    """`42 %`."""
    return f"{part:.0%}".replace("%", " %")


def short(id: str) -> str:
    """The end of an id, which differs most."""
    return id[-8:]


def trouble(job: JobRecord) -> str:
    """Why the last attempt of a job failed, or why it was cancelled, on one line: the kind of the error and the first
    line of its text; empty: nothing is known to be wrong."""
    if job.state is State.DONE or not isinstance(job.note, Mapping):
        return ""
    # Of an HTTP task: what became of the delivery.
    note = without_secrets({name: job.note.get(name) for name in ("type", "message", "outcome", "reason")})
    kind, told = note["type"] or note["outcome"], note["message"] or note["reason"]
    found = ": ".join(str(one).strip().partition("\n")[0][:MOST_TROUBLE] for one in (kind, told) if one)
    return found if len(found) <= MOST_TROUBLE else f"{found[: MOST_TROUBLE - 1]}…"


def pretty(value: Any) -> Markup:
    """JSON for people, on several lines, with secrets hidden and what is long cut."""
    text = json.dumps(without_secrets(value), indent=2, ensure_ascii=False, default=str)
    cut = text[:MOST_TEXT] + (f"\n… {len(text) - MOST_TEXT:,} characters more" if len(text) > MOST_TEXT else "")
    return escape(cut)
