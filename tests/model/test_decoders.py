"""Threads that are the first to decode a class, all at the same moment."""

import re
import subprocess
import sys
from pathlib import Path

import tarry
from tarry.model.checks.decoders import json_decoder

HOME = Path(tarry.__file__).parent
OWN = re.compile(
    r"""(?:json|msgpack)\.decode\([^"'\n]*type=|(?:json|msgpack)\.Decoder\(|msgspec\.convert\("""
    r"""|from msgspec import .*\bconvert\b"""
)
HERE = "model/checks/decoders.py"
STORY = """
import sys, threading
from typing import Annotated
import msgspec
from msgspec import Meta
from tarry.model.checks.decoders import convert_to, decode_json, msgpack_decoder

sys.setswitchinterval(1e-6)
PLAIN = {"x": "a", "f1": [1], "inner": {"g1": "a"}}
TEXT, PACKED = msgspec.json.encode(PLAIN), msgspec.msgpack.encode(PLAIN)

def decode(kind, start, number):
    start.wait()
    for _ in range(20):
        (lambda: decode_json(TEXT, kind), lambda: decode_json(b"[%s]" % TEXT, list[kind]),
         lambda: convert_to(kind, PLAIN), lambda: msgpack_decoder(kind).decode(PACKED))[number]()

for n in range(60):
    text, number = Annotated[str, Meta(max_length=5)], Annotated[int, Meta(ge=0)]
    inner = msgspec.defstruct(f"I{n}", [(f"g{i}", text | None, None) for i in range(8)])
    fields = [(f"f{i}", list[number] | None, None) for i in range(9)]
    outer = msgspec.defstruct(f"T{n}", [("x", text), *fields, ("inner", inner | None, None)])
    start = threading.Barrier(4)
    threads = [threading.Thread(target=decode, args=(outer, start, at)) for at in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
print("lives")
"""


def test_many_threads_may_be_the_first() -> None:
    """Without the lock of `decoders` this ends by SIGSEGV."""
    ran = subprocess.run([sys.executable, "-c", STORY], check=False, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "lives\n"), ran.stderr[-2000:]


def test_no_other_place_makes_a_decoder() -> None:
    texts = {str(path.relative_to(HOME)): path.read_text() for path in HOME.rglob("*.py")}
    assert len(texts) > 700
    assert {path: found for path, text in texts.items() if path != HERE and (found := OWN.findall(text))} == {}
    assert len(OWN.findall(texts[HERE])) == 3


def test_a_decoder_is_kept() -> None:
    assert json_decoder(dict[str, int]) is json_decoder(dict[str, int])
