"""The Redis store's scripts, one for each verb, each made of the functions in `lua/` that it uses."""

from tarry.store.redis.lua_sources import Verb, make_scripts

_READS = "no-writes"
# While its memory is full, Redis refuses a script that may write, unless it is flagged allow-oom. Only `insert` is not:
# workers go on with the jobs that are there, and so make room.
_SCRIPTS = make_scripts(
    [
        Verb("insert", flags="", shortcut="insert_plain"),
        Verb("insert_bounded", flags=""),
        Verb("supersede", flags="", repeatable=False),  # a second run finds that the first has ended the attempt
        # Not repeatable: if the answer is lost, a second run claims more jobs, and nobody knows of the first ones.
        Verb("exchange", repeatable=False, shortcut="exchange_nothing"),
        Verb("extend"),
        Verb("prune"),
        Verb("save_progress"),
        Verb("set_limit"),
        # Not repeatable: as kv_cas.
        Verb("change_shares", repeatable=False),
        Verb("limit_key"),
        Verb("take_place"),
        Verb("migrate"),
        Verb("recount"),
        Verb("get", _READS),
        Verb("find", _READS),
        Verb("id_behind", _READS),
        Verb("oldest", _READS),
        Verb("oldest_waiting", _READS),
        Verb("reclaim", _READS),
        Verb("expiring", _READS),
        Verb("backlog", _READS),
        Verb("queues"),
        Verb("hold"),
        # Not repeatable: a second run compares with what the first has written.
        Verb("kv_cas", repeatable=False),
        Verb("kv_list", _READS),
        Verb("kv_page", _READS),
        # A second run finds what the first has written.
        Verb("kv_write"),
        Verb("pause"),
        Verb("get_schema"),
        Verb("make_step"),
        Verb("refused", _READS),
        Verb("take_journal", _READS),
        # Not repeatable: a second run finds that the journal was summed up.
        Verb("fold_journal", repeatable=False),
        Verb("read_sums", _READS),
        Verb("drop_sums"),
        Verb("waiting_due", _READS),
        Verb("waiting_bands", _READS),
        Verb("waiting_before", _READS),
        Verb("waiting_lane", _READS),
        Verb("waiting_tasks", _READS),
        Verb("insert_flow", flags=""),
        Verb("insert_nodes", flags=""),
        # Not repeatable: as exchange.
        Verb("exchange_nodes", repeatable=False),
        # Not repeatable: as kv_cas.
        Verb("change_flow", repeatable=False),
        # A second run gives out other indices: those of the first are nobody's.
        Verb("grow_flow"),
        Verb("read_flows", _READS),
        Verb("release_more"),
        Verb("tidy_flows"),
        # Not repeatable: a second run finds the signal there, and does not know whom the first one woke.
        Verb("signal", flags="", repeatable=False),
        # Each piece begins behind the one before.
        Verb("wake_more"),
        Verb("read_signals", _READS),
        Verb("read_awaited", _READS),
    ]
)

INSERT = _SCRIPTS["insert"]
INSERT_BOUNDED = _SCRIPTS["insert_bounded"]
SUPERSEDE = _SCRIPTS["supersede"]
EXCHANGE = _SCRIPTS["exchange"]
EXTEND = _SCRIPTS["extend"]
PRUNE = _SCRIPTS["prune"]
SAVE_PROGRESS = _SCRIPTS["save_progress"]
SET_LIMIT = _SCRIPTS["set_limit"]
CHANGE_SHARES = _SCRIPTS["change_shares"]
LIMIT_KEY = _SCRIPTS["limit_key"]
TAKE_PLACE = _SCRIPTS["take_place"]
MIGRATE = _SCRIPTS["migrate"]
RECOUNT = _SCRIPTS["recount"]
GET = _SCRIPTS["get"]
FIND = _SCRIPTS["find"]
ID_BEHIND = _SCRIPTS["id_behind"]
OLDEST = _SCRIPTS["oldest"]
OLDEST_WAITING = _SCRIPTS["oldest_waiting"]
RECLAIM = _SCRIPTS["reclaim"]
EXPIRING = _SCRIPTS["expiring"]
BACKLOG = _SCRIPTS["backlog"]
QUEUES = _SCRIPTS["queues"]
HOLD = _SCRIPTS["hold"]
KV_CAS = _SCRIPTS["kv_cas"]
KV_LIST = _SCRIPTS["kv_list"]
KV_PAGE = _SCRIPTS["kv_page"]
KV_WRITE = _SCRIPTS["kv_write"]
PAUSE = _SCRIPTS["pause"]
GET_SCHEMA = _SCRIPTS["get_schema"]
MAKE_STEP = _SCRIPTS["make_step"]
REFUSED = _SCRIPTS["refused"]
TAKE_JOURNAL = _SCRIPTS["take_journal"]
FOLD_JOURNAL = _SCRIPTS["fold_journal"]
READ_SUMS = _SCRIPTS["read_sums"]
DROP_SUMS = _SCRIPTS["drop_sums"]
WAITING_DUE = _SCRIPTS["waiting_due"]
WAITING_BANDS = _SCRIPTS["waiting_bands"]
WAITING_BEFORE = _SCRIPTS["waiting_before"]
WAITING_TASKS = _SCRIPTS["waiting_tasks"]
WAITING_LANE = _SCRIPTS["waiting_lane"]
INSERT_NODES = _SCRIPTS["insert_nodes"]
INSERT_FLOW = _SCRIPTS["insert_flow"]
EXCHANGE_NODES = _SCRIPTS["exchange_nodes"]
CHANGE_FLOW = _SCRIPTS["change_flow"]
GROW_FLOW = _SCRIPTS["grow_flow"]
READ_FLOWS = _SCRIPTS["read_flows"]
RELEASE_MORE = _SCRIPTS["release_more"]
TIDY_FLOWS = _SCRIPTS["tidy_flows"]
SIGNAL = _SCRIPTS["signal"]
WAKE_MORE = _SCRIPTS["wake_more"]
READ_SIGNALS = _SCRIPTS["read_signals"]
READ_AWAITED = _SCRIPTS["read_awaited"]
