"""Jobs, flows and cells of which another program has written every column."""

import random
import struct
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from tarry.errors import StoreError
from tarry.model.flow.node_ids import is_node
from tarry.model.job import Job
from tarry.store.rules.base import Store

_draw = random.Random(20)
BYTES = (
    b"\xff\xfe\x00",
    b"null",
    b"[" * 5000,
    b'{"a":' * 3000,
    b"9" * 5000,
    b'["' + b"9" * 5000 + b'"]',
    b"[" + b"9" * 4000 + b"]",
    b"[" + b"9" * 4000 + b',[["x",0]],[[-5,"retried"]]]',
    b'"\\ud800"',
    b'{"type":5,"message":[],"traceback":{}}',
    b'{"type":"x","message":"\xff"}',
    b"[null,null,-1,-1,5,[[]],[1,2]]",
    b"[null,null,null,null,null,[[1]],[" + b"9" * 4000 + b",1,1]]",
    b"\x01",
    b"\x01\xff\xff\xff\xff\xff\xff",
    b"\x01\x0a\x91\x91\x93\xcf" + b"\xff" * 8 + b"\x01\x01[]",
    b"\x01\x0d\x91\x91\x93\x01\xce\x7f\xff\xff\xff\x01" + bytes(9),
    b' {"tarry-nodes":[1,999999999999,1]}',
    *(_draw.randbytes(_draw.randint(1, 60)) for _ in range(6)),
)
"""What may stand in a column of bytes."""
HEADERS = tuple(
    b'{"tarry-timeout":"%b","tarry-retry":"%b","due":"%b"}' % (timeout, rule.replace(b'"', b'\\"'), timeout)
    for timeout in (b"9" * 5000, b"9" * 400, b"-1", b"nan", b"")
    for rule in (
        b"[" * 3000,
        b'{"limit":5,"backoff":"%bn+1 minutes","base":1,"cap":1,"jitter":0,"only":[],"never":[],"per":{},"within":null}'
        % (b"9" * 5000),
        b'{"limit":%b,"backoff":"linear","base":%b,"cap":%b,"jitter":1e308,"only":[],"never":[],"per":{},"within":1}'
        % ((b"9" * 4000,) * 3),
        b'{"limit":null,"backoff":[1e300],"base":1e300,"cap":1,"jitter":0,"only":5,"never":{},"per":[],"within":[]}',
    )
)
NUMBERS = (-1, -(2**31), 2**31 - 1, 2**31, 2**48, -(2**62), 2**62, 2**63 - 1)
TEXTS = ("", " ", "x" * 190, "<b>%s{{7*7}}", "\u202e\U0010ffff", "flow:", "tarry.map:x", "tarry.flow.undo", "limit:\n")
OF_BYTES = ("body", "note", "headers", "progress", "attempts")
OF_NUMBERS = ("due", "epoch", "failures", "crashes", "expires", "key_ttl", "key_held_until", "state_since", "priority",
              "keep_until")  # fmt: skip


def garbage(like: Job) -> Iterator[dict[str, Any]]:
    """Fields of jobs, of which one is garbage each."""
    yield from ({name: value} for name in OF_BYTES for value in BYTES)
    yield from ({"headers": value} for value in HEADERS)
    yield from ({name: value} for name in OF_NUMBERS for value in NUMBERS)
    yield from ({"key": "k", "key_ttl": value, "key_held_until": value} for value in NUMBERS)
    names = ("task", "key", "lane") if not is_node(like.id) else ("key", "lane")
    yield from ({name: value} for name in names for value in TEXTS)


def insert_each(store: Store, jobs: Iterator[Job]) -> list[Job]:
    """Those that the store's types allow."""
    taken = []
    for job in jobs:
        try:
            store.insert([job])
        except (StoreError, struct.error, OverflowError, ValueError):
            continue
        taken.append(job)
    return taken


def spoiled(jobs: list[Job], fields: Iterator[dict[str, Any]]) -> Iterator[Job]:
    """The jobs, each with fields of its own."""
    return (replace(job, **each) for job, each in zip(jobs, fields, strict=False))
