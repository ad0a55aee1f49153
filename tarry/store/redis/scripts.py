"""The Redis store's scripts, one a verb. Redis knows no modules, so each is sent with the parts that it needs.

Redis refuses a script that may write while the server's memory is full, unless it is flagged: only `insert` is not, so
that workers go on with what is there and so make room.
"""

from importlib.resources import files

from tarry.store.redis.link import Script

_FOLDER = files("tarry.store.redis") / "lua"
_PLACES = ("lines", "pages", "record", "places", "ring")


def _script(name: str, *parts: str, flags: str = "flags=allow-oom", repeatable: bool = False) -> Script:
    texts = [(_FOLDER / f"{part}.lua").read_text(encoding="utf-8") for part in (*parts, name)]
    return Script(name, f"#!lua {flags}".rstrip() + "\n" + "".join(texts), repeatable)


def _reading(name: str, *parts: str) -> Script:
    return _script(name, *parts, flags="flags=no-writes", repeatable=True)


INSERT = _script(
    "insert", "lines", "ring", "plain", "pages", "record", "places", "keys", "limits", flags="", repeatable=True
)
EXCHANGE = _script("exchange", "idle", *_PLACES, "keys", "limits", "apply", "claim", "lay", "turns", "lanes")
EXTEND = _script("extend", *_PLACES, "keys", "apply", "claim", repeatable=True)
PRUNE = _script("prune", *_PLACES, "keys", repeatable=True)
MARK = _script("mark", *_PLACES, "keys", repeatable=True)
LIMIT = _script("limit", *_PLACES, "keys", "limits", "lay", repeatable=True)
LAYING = _script("laying", *_PLACES, "keys", "walk", "lay", repeatable=True)
RECOUNT = _script("recount", *_PLACES, "keys", "limits", repeatable=True)
GET = _reading("get", *_PLACES)
FIND = _reading("find", *_PLACES, "keys", "walk")
OLDEST = _reading("oldest", *_PLACES, "keys", "walk")
RECLAIM = _reading("reclaim", *_PLACES)
LEAVING = _reading("leaving", *_PLACES)
BACKLOG = _reading("backlog", *_PLACES, "keys")
QUEUES = _script("queues", *_PLACES, repeatable=True)
HOLD = _script("hold", "prefix", repeatable=True)
WRITE = _script("write", "prefix")
PAUSE = _script("pause", "prefix", "ring", repeatable=True)
OPEN = _script("open", "prefix", repeatable=True)
