"""The settings of one HTTP task, from TOML, `tarry tasks add` or a cell of the store.

[tasks."order.timeout"]
url = "https://shop.example/orders/{order}/timeout"
delay = "10m"
retry_when = "res.code != 200"
schedule = ["1m", "3m", "5m", "7m"]
secret = "env:ORDER_SECRET"
"""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tarry.config.parser import join_keys
from tarry.errors import ConfigError
from tarry.model.job import DEFAULT_QUEUE
from tarry.push.endpoint.fields import FIELDS, MOST_TEXT, READERS
from tarry.push.endpoint.hidden import hide
from tarry.push.endpoint.recipient import Recipient
from tarry.push.endpoint.schedule import RetrySchedule
from tarry.push.endpoint.secret import Secret
from tarry.push.endpoint.success import SuccessCodes
from tarry.push.endpoint.template import Template, UrlTemplate
from tarry.push.rule.cel import RetryCondition
from tarry.push.rule.rule_errors import SettingSyntaxError

TIMEOUT, CONNECT_TIMEOUT = 30.0, 5.0
_BODIES = frozenset({"POST", "PUT", "PATCH"})


class EndpointError(ConfigError):
    """A setting of an HTTP task is wrong. The caller adds the file and line.

    field: which one, `task` for the task's name; empty: no single one. why: the message without the place.
    """

    def __init__(self, message: str, field: str = "", why: str = "") -> None:
        super().__init__(message)
        self.field, self.why = field, why or message


def version_of(settings: Mapping[str, Any]) -> str:
    """A name for exactly these settings. It is for those who may edit them: a short secret among them could be guessed
    from it, with much work."""
    written = msgspec.json.encode(settings, order="sorted")
    return blake2b(written, digest_size=12, person=b"tarry-task").hexdigest()


class Endpoint(Struct, frozen=True, eq=False):
    """One HTTP task. Integer durations are microseconds, float durations seconds."""

    name: str
    url: UrlTemplate
    method: str = "POST"
    headers: tuple[tuple[str, Secret], ...] = ()
    secrets: tuple[Secret, ...] = ()
    """The secrets that sign, newest first."""
    delay: int = 0
    timeout: float = TIMEOUT
    """Seconds for a whole attempt."""
    connect_timeout: float = CONNECT_TIMEOUT
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    retry_when: RetryCondition | None = None
    success: SuccessCodes = SuccessCodes()
    schedule: RetrySchedule = RetrySchedule.parse()
    """With `max_attempts` and `until`."""
    concurrency: int | None = None
    """Attempts at once, over all hosts."""
    rate: str | None = None
    """How many attempts start in a period, over all hosts."""
    alert: tuple[str, ...] = ()
    """Mail addresses, URLs of webhooks, channels of apprise: see `recipient`."""
    redirects: int = 0
    """How many are followed."""
    order: Template | None = None
    """Jobs with the same filled text are delivered one after another."""
    on_dead: Literal["skip", "hold"] | None = None
    """What a dead job does to the later ones of its order; None: they go on."""
    owner: str = ""
    """Who answers for it, and what it is for: for people only."""
    description: str = ""
    enabled: bool = True
    encrypt: bool = True
    """Whether its jobs are sealed, where there are keys."""
    settings: Mapping[str, Any] = {}
    """As written, secrets included: for the store, never for people."""

    @classmethod
    def parse(cls, name: str, settings: Any, checked: bool = True) -> "Endpoint":
        """The endpoint of these settings; EndpointError, in one line, for the first that is unknown or wrong.

        checked: also checks that the rule compiles, the secrets sign, and url and headers can be sent. That needs the
        extra `push`. It is not needed for settings that were checked before, nor by producers.
        """
        return _SettingsReader(name, checked).read(settings)

    @property
    def sends_body(self) -> bool:
        """Whether the job's body is sent as JSON; else it only fills placeholders."""
        return self.method in _BODIES

    @property
    def has_fixed_url(self) -> bool:
        """Whether all jobs have the same url."""
        # Only then an answer is about the endpoint, and not about one job.
        return self.url.is_fixed

    def header_pairs(self) -> tuple[tuple[str, str], ...]:
        """The headers with their values, which may be secret; ConfigError if a secret is not in its place."""
        return tuple((name, value.value()) for name, value in self.headers)

    def confine(self, places: Collection[str]) -> "Endpoint":
        """A copy that may read secrets (`env:NAME`, `file:PATH`) only from these places."""
        # Write access to the store must not give read access to the files and variables of workers.
        headers = tuple((name, value.confine(places)) for name, value in self.headers)
        return replace(self, headers=headers, secrets=tuple(secret.confine(places) for secret in self.secrets))

    def refusals(self) -> Iterator[str]:
        """For each secret that may not be read from its place, the reason."""
        for secret in self._values():
            if secret.is_barred:
                yield str(secret.refusal())

    def problems(self) -> Iterator[str]:
        """For each secret or header that is not in its place here, the reason."""
        for secret in self._values():
            try:
                secret.value()
            except ConfigError as error:
                yield str(error)

    def _values(self) -> tuple[Secret, ...]:
        return (*self.secrets, *(value for _, value in self.headers))

    def warnings(self) -> Iterator[str]:
        """Settings that may be mistakes, a line each; ImportError or ConfigError without the extra `push`."""
        from tarry.push.http.sign import could_be_base64  # noqa: PLC0415 - needed only to sign

        if self.retry_when is not None and not self.retry_when.reads_status:
            yield (
                "retry_when does not look at the status: where the rule is content, an answer that is no 2xx is still"
                " judged by its status; write status into the rule to decide it alone"
            )
        for number, secret in enumerate(self.secrets, 1):
            if secret.literal and could_be_base64(secret.value()):
                yield (
                    f"secret {number} of {len(self.secrets)} could be base64, and is used as it stands, while libraries"
                    " of Standard Webhooks decode it: write whsec_ before it if it is base64"
                )

    @property
    def version(self) -> str:
        """See `version_of`."""
        return version_of(self.settings)

    def display_settings(self) -> dict[str, Any]:
        """The settings for people: without secrets, header values, queries, and paths of webhooks."""
        hidden: dict[str, Any] = {"url": self.url.shown}
        for name in ("secret", "secrets", "headers"):
            if name in self.settings:
                hidden[name] = hide(self.settings[name])
        if "alert" in self.settings:
            hidden["alert"] = [Recipient.parse(text).shown for text in self.alert]
        return {**self.settings, **hidden}

    def __repr__(self) -> str:
        return f"<Endpoint {self.name} {self.method} {self.url.shown}>"

    def __rich_repr__(self) -> Any:
        yield repr(self)

    def __eq__(self, other: object) -> bool:
        # All other fields follow from the settings.
        return isinstance(other, Endpoint) and (self.name, self.settings) == (other.name, other.settings)

    def __hash__(self) -> int:
        return hash(self.name)


def setting_error(name: str, key: str, why: str, joint: str = ": ") -> EndpointError:
    """The error for a setting of a task, with its place; key: empty for no single one."""
    place = join_keys(("tasks", name, key) if key else ("tasks", name))
    return EndpointError(f"{place}{joint}{why}", key, why)


class _SettingsReader:
    """Reads the settings of one endpoint."""

    def __init__(self, name: str, checked: bool) -> None:
        self._name = name
        self._checked = checked

    def read(self, written: Any) -> Endpoint:
        if not isinstance(self._name, str) or not re.fullmatch(rf"[^\x00-\x1f\x7f]{{1,{MOST_TEXT}}}", self._name):
            raise EndpointError(f"tasks.{str(self._name)[:40]!r}: no name; write a text of 1 to {MOST_TEXT} characters")
        settings = self._known(written)
        fields = {key: self._read_field(key, value) for key, value in settings.items() if key in READERS}
        self._check_combinations(settings, fields)
        fields["schedule"] = self._schedule(settings)
        if "secret" in fields:
            fields["secrets"] = fields.pop("secret")
        return Endpoint(self._name, settings=settings, **fields)

    def _known(self, written: Any) -> dict[str, Any]:
        """A deep copy of the settings, without null values; EndpointError for an unknown key."""
        if not isinstance(written, dict):
            raise self._error("", 'no table of settings; write url = "https://host/path"')
        if (unknown := next((key for key in written if key not in FIELDS), None)) is not None:
            raise self._unknown_error(str(unknown))
        if written.get("url") is None:
            raise self._error("url", 'it is missing; write url = "https://host/path"')
        # None stands for a setting that `registry.edit` removes.
        settings = {key: value for key, value in written.items() if value is not None}
        try:
            copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(settings))
        except (TypeError, ValueError, RecursionError) as error:
            raise self._error("", f"{error}; write what JSON can hold") from None
        return copy

    def _read_field(self, key: str, value: Any) -> Any:
        try:
            return READERS[key](value, self._checked)
        except ImportError as error:
            raise self._error(key, f"it is checked with the extra push: pip install 'tarry[push]' ({error})") from None
        except (ValueError, ConfigError) as error:
            raise self._error(key, str(error), error.at if isinstance(error, SettingSyntaxError) else 0) from None

    def _check_combinations(self, settings: Mapping[str, Any], fields: dict[str, Any]) -> None:
        timeout = fields.get("timeout", TIMEOUT)
        # The default must not be longer than a short timeout.
        if fields.setdefault("connect_timeout", min(CONNECT_TIMEOUT, timeout)) > timeout:
            raise self._error("connect_timeout", f"it is longer than the timeout of {timeout:g} s; write less")
        for one, other, why in (
            ("retry_when", "success", "a rule decides alone; write the status into it, as in status >= 300"),
            ("secret", "secrets", "write all of them into secrets"),
        ):
            if one in settings and other in settings:
                raise self._error(other, f"it stands beside {one}: {why}")
        if "on_dead" in settings and "order" not in settings:
            raise self._error("on_dead", "it stands without order, which says which jobs wait for each other")

    def _schedule(self, settings: Mapping[str, Any]) -> RetrySchedule:
        schedule, given = RetrySchedule.parse(), dict[str, Any]()
        # One by one, to know which of them is wrong.
        for key in ("max_attempts", "until", "schedule"):
            given["written" if key == "schedule" else key] = settings.get(key)
            try:
                schedule = RetrySchedule.parse(**given)
            except ValueError as error:
                raise self._error(key, str(error)) from None
        return schedule

    def _error(self, key: str, why: str, at: int = 0) -> EndpointError:
        why = " ".join(why.split())
        return setting_error(self._name, key, f"at {at}: {why}" if at else why, ", " if at else ": ")

    def _unknown_error(self, key: str) -> EndpointError:
        near = difflib.get_close_matches(key[:MOST_TEXT].lower(), FIELDS, 1)
        advice = f"did you mean {near[0]}?" if near else f"known: {', '.join(FIELDS)}"
        return EndpointError(f"unknown setting {join_keys(('tasks', self._name, key[:80]))}; {advice}", key)
