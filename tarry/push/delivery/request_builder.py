"""The requests of an endpoint's jobs. What they have in common is made once.

Only workers import this: it brings the HTTP client.
"""

from typing import Any

from msgspec import Struct

from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.push.delivery.body import payload_of
from tarry.push.endpoint.endpoint_settings import Endpoint
from tarry.push.http import sign
from tarry.push.http.http_sender import HttpRequest
from tarry.push.http.response import Headers
from tarry.store.rules import ids

_JSON = (("content-type", "application/json"),)


class _Common(Struct, frozen=True):
    """What follows from the values of an endpoint's headers and secrets."""

    values: tuple[Headers, tuple[str, ...]]
    headers: Headers
    signer: sign.Signer


class RequestBuilder:
    """Builds the requests of one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._url = endpoint.url.fill({}) if endpoint.has_fixed_url else None
        secrets = (*endpoint.secrets, *(value for _, value in endpoint.headers))
        # The value of any other secret may change at any time.
        self._is_literal = all(secret.literal for secret in secrets)
        self._common: _Common | None = None

    def build(self, job: Job, body: Any, due: int, now: int) -> HttpRequest:
        """The request of a job. TemplateError: the body lacks a value that the url needs.

        ConfigError or ImportError: this worker cannot send it, since a secret or a part of the extra `push` is missing.
        """
        endpoint = self._endpoint
        if endpoint.retry_when is not None:
            # Before anything is sent: without the rule nobody could judge the answer.
            endpoint.retry_when.check()
        url = self._url or endpoint.url.fill(body)
        payload = payload_of(job.body) if endpoint.sends_body else b""
        common = self._common if self._common is not None and self._is_literal else self._refresh()
        ours = sign.headers(common.signer, ids.text(job.id), job.attempt, due, now / SECOND, payload)
        return HttpRequest(endpoint.method, url, common.headers + ours, payload)

    def _refresh(self) -> _Common:
        """The common part, made again if a value has changed."""
        endpoint = self._endpoint
        own, secrets = endpoint.header_pairs(), tuple(secret.value() for secret in endpoint.secrets)
        if self._common is None or self._common.values != (own, secrets):
            # The settings may have a content type of their own.
            kind = _JSON if endpoint.sends_body and "content-type" not in dict(own) else ()
            self._common = _Common((own, secrets), own + kind, sign.Signer(secrets))
        return self._common
