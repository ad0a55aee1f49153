"""Every parser that a stranger's text reaches answers a megabyte of the worst of it at once, with little memory."""

from collections.abc import Callable
from typing import Any

import pytest

from tarry.alert.mail import parse_server
from tarry.cli.shared.moment import parse_since
from tarry.client.audit.log import _parse_cursor
from tarry.config.kinds import PLACE
from tarry.model.duration import microseconds
from tarry.model.limit import rate
from tarry.model.nearest import nearest
from tarry.model.quantity import octets
from tarry.model.retry import Retry
from tarry.model.schedules.calendar import Calendar
from tarry.model.schedules.schedule import tick_of
from tarry.model.schedules.timetable import timetable
from tarry.model.values.listen_address import listen_address
from tarry.model.values.log_target import log_target
from tarry.push.endpoint.endpoint_settings import Endpoint
from tarry.push.endpoint.recipient import Recipient
from tarry.push.endpoint.success import SuccessCodes
from tarry.push.endpoint.template import Template, UrlTemplate
from tarry.push.endpoint.written import read_written
from tarry.push.http.target import check_headers, parse_target
from tarry.push.rule.cel import MOST_TEXT, RetryCondition
from tarry.push.rule.php_rules import parse_number
from tarry.server.beanstalk.command_parser import CommandParser, read_line
from tarry.store.mysql.link.address import parse as parse_mysql
from tarry.store.postgres.link.url import parse_url as parse_postgres
from tarry.store.queries.job_search import parse_moment
from tarry.store.redis.url import parse_url as parse_redis
from tarry.store.rules import ids
from tarry.store.rules.name_pattern import pattern_of
from tarry.store.shards.shard import parse_shard_url, public_url
from tarry.tasks.arguments.json_depth import is_too_deep
from tarry.tasks.arguments.options import Options
from tests.hostile.worst import costs, name_of, worst_texts

_ENDPOINT = {"url": "https://a.example/"}


def _setting(name: str) -> Callable[[str], object]:
    return lambda text: Endpoint.parse("a", _ENDPOINT | {name: text})


def _feed(text: str) -> None:
    parser = CommandParser()
    data = text.encode("utf-8", "surrogatepass")
    # So much is read at once; a longer line is not kept.
    parser.feed(data[: 2**14])
    while parser.next() is not None:
        pass


PARSERS: dict[str, Callable[[Any], object]] = {
    "duration": microseconds,
    "rate": rate,
    "size": octets,
    "formula": lambda text: Retry(1, text),
    "delays": lambda text: Retry(backoff=[text]),
    "base": lambda text: Retry(1, base=text),
    "delay": lambda text: Options(delay=text).check(),
    "key": lambda text: Options(key=text).check(),
    "unique_for": lambda text: Options(key="a", unique_for=text).check(),
    "cron line": lambda text: timetable(text, "UTC"),
    "zone": lambda text: timetable("@hourly", text),
    "calendar": Calendar,
    "name that is not known": lambda text: nearest(text, {"shop.send": "a"}),
    "tick": tick_of,
    "id": ids.parse,
    "moment": lambda text: parse_moment(text, 0),
    "since": parse_since,
    "audit cursor": _parse_cursor,
    "listen": listen_address,
    "log target": log_target,
    "beanstalk line": lambda text: read_line(text.encode("utf-8", "surrogatepass")),
    "beanstalk stream": _feed,
    "depth": lambda text: is_too_deep(text.encode("utf-8", "surrogatepass")),
    "name pattern": lambda text: pattern_of(["*a*a*a*a*a*a*a*a*a*a*b"]).fullmatch(text[:200]),
    "rule in CEL": RetryCondition.parse,
    "rule of the longest text": lambda text: RetryCondition.parse(text[:MOST_TEXT]),
    "number in PHP": parse_number,
    "url of an endpoint": UrlTemplate.parse,
    "template": Template.parse,
    "target": parse_target,
    "header": lambda text: check_headers([("a", text)]),
    "name of a header": lambda text: check_headers([(text, "a")]),
    "recipient": Recipient.parse,
    "secret": PLACE.fullmatch,
    "success": SuccessCodes.parse,
    "written setting": lambda text: read_written("delay", text),
    "written headers": lambda text: read_written("headers", text),
    "mail server": parse_server,
    "shown url": public_url,
    "url of a shard": parse_shard_url,
    "url of redis": parse_redis,
    "url of postgresql": parse_postgres,
    "url of mysql": parse_mysql,
    # The other settings of an endpoint are read by the parsers above.
    **{f"endpoint's {name}": _setting(name) for name in ("queue", "secret", "headers", "alert", "order")},
}


@pytest.mark.parametrize("name", PARSERS)
def test_a_megabyte_of_the_worst_text_is_read_or_refused_at_once(name: str) -> None:
    found = [f"{name_of(text)}: {what}" for text in worst_texts() for what in costs(PARSERS[name], text)]
    assert not found, found
