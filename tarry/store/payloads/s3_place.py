"""Payloads as objects in a bucket of S3, or of a server that speaks as S3 does.

Credentials, region and endpoint are those that every AWS tool finds: AWS_ACCESS_KEY_ID, AWS_REGION,
AWS_ENDPOINT_URL_S3, ~/.aws/config, or the role of the machine.
"""

import os
import threading
import time
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from tarry.store.payloads.place import S3, PayloadPlace, StoredObject

T = TypeVar("T")

READ_WITHIN = 300.0
"""Seconds that one object takes at most to be read."""
_PART = 2**20
_AT_ONCE = 1000
_GONE = "NoSuchKey"
_MOST_CAUSE = 500
_CONFIG = Config(
    connect_timeout=5,
    read_timeout=30,
    retries={"total_max_attempts": 3, "mode": "standard"},
    max_pool_connections=32,
    # Who reads checks a digest, and not every server knows these sums.
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)


class S3Place(PayloadPlace):
    """url: `s3://bucket` or `s3://bucket/prefix`."""

    def __init__(self, url: str) -> None:
        self._bucket, _, prefix = url.removeprefix(S3).partition("/")
        self.url, self._prefix = url, prefix.strip("/") + "/" if prefix.strip("/") else ""
        self._lock = threading.Lock()
        self._made: Any = None
        self._pid = 0

    def write(self, name: str, data: bytes) -> None:
        self._ask("cannot be written", lambda s3: s3.put_object(Body=data, **self._at(name)))

    def read(self, name: str, most: int) -> bytes | None:
        return self._ask("cannot be read", lambda s3: self._read_at(s3, name, most))

    def delete(self, names: Collection[str]) -> None:
        keys = [{"Key": self._prefix + name} for name in names]
        for start in range(0, len(keys), _AT_ONCE):
            self._delete({"Objects": keys[start : start + _AT_ONCE], "Quiet": True})

    def page(self, namespace: str, after: str, limit: int) -> list[StoredObject]:
        where = {"Bucket": self._bucket, "Prefix": f"{self._prefix}{namespace}/", "MaxKeys": limit}
        if after:
            where["StartAfter"] = self._prefix + after
        found = self._ask("cannot be read", lambda s3: s3.list_objects_v2(**where)).get("Contents", ())
        return [StoredObject(one["Key"].removeprefix(self._prefix), one["LastModified"].timestamp()) for one in found]

    def time_of(self, name: str) -> float:
        answer = self._ask("cannot be read", lambda s3: s3.head_object(**self._at(name)))
        return float(answer["LastModified"].timestamp())

    def _read_at(self, s3: Any, name: str, most: int) -> bytes | None:
        try:
            return _read(s3.get_object(**self._at(name))["Body"], most)
        except ClientError as error:
            # Not any 404: a proxy, or another program at that address, answers so, too.
            if error.response.get("Error", {}).get("Code") == _GONE:
                return None
            raise

    def _delete(self, order: dict[str, Any]) -> None:
        doing = "cannot be changed"
        answer = self._ask(doing, lambda s3: s3.delete_objects(Bucket=self._bucket, Delete=order))
        if errors := answer.get("Errors"):
            raise self.unavailable(doing, f"{errors[0].get('Code')}: {errors[0].get('Message')}")

    def _at(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + name}

    def _ask(self, doing: str, call: Callable[[Any], T]) -> T:
        """The answer; PayloadUnavailable."""
        try:
            return call(self._client())
        except ClientError as error:
            raise self.unavailable(doing, str(error)[:_MOST_CAUSE]) from None
        except NoCredentialsError:
            why = "no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role of the host"
            raise self.unavailable(doing, why) from None
        # ValueError: such as a region, or a bucket, of which no URL can be made.
        except (BotoCoreError, OSError, ValueError) as error:
            raise self.unavailable(doing, str(error)[:_MOST_CAUSE] or type(error).__name__) from None

    def _client(self) -> Any:
        # Two processes must not share connections, and another thread may hold the lock of the parent.
        if self._pid != os.getpid():
            self._lock, self._made, self._pid = threading.Lock(), None, os.getpid()
        with self._lock:
            if self._made is None:
                # Of a session of its own: boto3's default one is not safe from threads.
                self._made = boto3.session.Session().client("s3", config=_CONFIG)
            return self._made


def _read(body: Any, most: int) -> bytes:
    """So many bytes of an answer, which may go on for ever, or come byte by byte."""
    end, parts, left = time.monotonic() + READ_WITHIN, list[bytes](), most
    try:
        while left and (part := body.read(min(left, _PART))):
            parts.append(part)
            left -= len(part)
            if time.monotonic() > end:
                raise TimeoutError(f"not all of it came within {READ_WITHIN:.0f} s")
    finally:
        body.close()
    return b"".join(parts)
