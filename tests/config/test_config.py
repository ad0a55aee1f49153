"""The settings: defaults, files, variables, and what is said of a setting that is unknown or wrong."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from tarry.config.config import (
    Alerts,
    CalendarConfig,
    ClientConfig,
    Config,
    DefaultRetry,
    Defaults,
    Keep,
    MasterConfig,
    MetricsConfig,
    PayloadsConfig,
    Pool,
    Queue,
    Workers,
    load,
    template,
)
from tarry.config.parser import line_of
from tarry.config.server_settings import ServerConfig, ServerProcesses
from tarry.errors import ConfigError
from tarry.model.duration import DAY, HOUR, MINUTE, SECOND
from tarry.model.retry import DEFAULT, Retry
from tarry.model.schedules.calendar import Calendar
from tarry.model.values.listen_address import ListenAddress
from tarry.push.endpoint.endpoint_settings import Endpoint

Loads = Callable[..., Config]

WORKERS = "a whole number of 1 or more, or bounds such as { min = 1, max = 8 }"
LOG = '"stderr", "syslog", "journal", a URL such as "syslog://host:514", or the path of a file'


@pytest.fixture
def loads(tmp_path: Path) -> Loads:
    """Loads the settings of a text, as tarry.toml or another file of the directory, and of variables."""

    def load_text(text: str = "", *, name: str = "tarry.toml", environ: Mapping[str, str] | None = None) -> Config:
        if text:
            (tmp_path / name).write_text(text, encoding="utf-8")
        return load(environ=environ or {}, directory=tmp_path)

    return load_text


def told(loads: Loads, text: str = "", **more: object) -> str:
    """The message of the ConfigError that this text, or these variables, must raise."""
    with pytest.raises(ConfigError) as error:
        loads(text, **more)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_without_a_file_and_variables_all_is_default(loads: Loads, tmp_path: Path) -> None:
    config = loads()
    assert (config.app, config.store, config.max_body, config.file) == (None, None, 1_048_576, None)
    assert config.stores == [f"sqlite:///{tmp_path}/tarry.db"]
    assert config.master == MasterConfig(tmp_path / "run/tarry.pid", 8.0, "stderr", "text", "info")
    assert config.pools == {"default": Pool("default", "*", 1, 1, 100, (5, 3, 2), 15 * SECOND)}
    assert config.keep("any") == Keep(HOUR, 30 * DAY, 64_000_000)
    assert config.directory == tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http = ':7800'\ntokens = 'tokens.toml'", lambda c: c.http == (ListenAddress("", 7800),)),
        ("http = ['127.0.0.1:1', '[::1]:1', '']", lambda c: [str(one) for one in c.http] == ["127.0.0.1:1", "[::1]:1"]),
        ("beanstalk = 'localhost:11300'", lambda c: c.addresses == {"beanstalk": (ListenAddress("127.0.0.1", 11300),)}),
        ("", lambda c: not c.is_on and c.addresses == {}),
        ("processes = 4\nmax_connections = 10", lambda c: c.connections_per_process == 2 and not c.follows),
        ("processes = { min = 1, max = 3 }", lambda c: c.bounds == ServerProcesses(1, 3) and c.follows),
        ("processes = 5\nmax_connections = 2", lambda c: c.connections_per_process == 1),
        ("max_job_size = '1MiB'", lambda c: c.max_job_size == 2**20),
        ("console = 'read-only'", lambda c: c.console == "read-only"),
        ("path = '/of/tarry-1/'", lambda c: c.path == "/of/tarry-1"),
        ("path = '/'", lambda c: c.path == ""),
    ],
)
def test_the_settings_of_the_server(loads: Loads, text: str, expected: Callable[[ServerConfig], bool]) -> None:
    server = loads(f"[server]\n{text}\n").server
    assert expected(server), server


def test_paths_of_the_server_start_at_the_file(loads: Loads, tmp_path: Path) -> None:
    server = loads("[server]\nhttp = 'unix:run/http.sock'\ntokens = 'run/tokens.toml'\n").server
    assert server.http == (ListenAddress(path=f"{tmp_path}/run/http.sock"),)
    assert server.tokens == tmp_path / "run/tokens.toml"
    server = loads("[server]\ncertificate = 'a.pem'\nkey = '/b.pem'\nclient_ca = 'c/c.pem'\n").server
    assert (server.certificate, server.key) == (tmp_path / "a.pem", Path("/b.pem"))
    assert server.client_ca == tmp_path / "c/c.pem"


def test_a_variable_may_name_the_addresses_of_the_server(loads: Loads) -> None:
    server = loads(environ={"TARRY_SERVER__HTTP": "[::1]:7800, 127.0.0.1:7800"}).server
    assert [str(one) for one in server.http] == ["[::1]:7800", "127.0.0.1:7800"]
    assert str(*loads(environ={"TARRY_SERVER__HTTP": "[::1]:7800"}).server.http) == "[::1]:7800"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http = 'here'", '2: server.http: expected an address such as "127.0.0.1:7800", "[::1]:7800", ":7800" (all) '),
        ("http = '127.0.0.1:0'", "2: server.http: expected an address such as "),
        ("http = 'shop.example:7800'", "2: server.http: expected an address such as "),
        ("http = 'unix:'", "2: server.http: expected an address such as "),
        (
            "http = ':7800'",
            (
                "2: server.http: expected an address of this host such as 127.0.0.1 while server.tokens is not set, "
                'got ":7800"'
            ),
        ),
        ("beanstalk = '10.1.2.3:11300'", "2: server.beanstalk: expected an address of this host such as 127.0.0.1 "),
        (
            "tokens = 'a'\nbeanstalk = ':11300'",
            "3: server.beanstalk: expected an address of this host such as 127.0.0.1 ",
        ),
        ("key = 'server.key'", "2: server.key: expected a certificate as well, got "),
        ("client_ca = 'ca.pem'", "2: server.client_ca: expected a certificate as well, got "),
        (
            "http = '127.0.0.1:1'\nbeanstalk = 'localhost:1'",
            '3: server.beanstalk: expected another address than the other door has, got "127.0.0.1:1"',
        ),
        ("processes = { min = 2 }", "2: server.processes: expected max as well, as in { min = 1, max = 4 }, got "),
        ("processes = { min = 2, max = 1 }", "2: server.processes.max: expected 2 or more, as min is, got 1"),
        ("console = 'yes'", '2: server.console: expected "on", "read-only" or "off", got "yes"'),
        (
            "path = 'tarry'",
            '2: server.path: expected a path such as "/tarry", below which a proxy has this server, got ',
        ),
        ("path = '//evil'", "2: server.path: expected a path such as "),
        ("path = '/a/../b'", "2: server.path: expected a path such as "),
        ("path = '/a b'", "2: server.path: expected a path such as "),
        ("keep_alive = 0", "2: server.keep_alive: expected a duration of more than 0, got 0"),
        ("max_connections = 0", "2: server.max_connections: expected a whole number of 1 or more, got 0"),
    ],
)
def test_a_wrong_setting_of_the_server_is_told(loads: Loads, text: str, message: str) -> None:
    assert told(loads, f"[server]\n{text}\n").startswith(f"tarry.toml:{message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[metrics]\nlisten = "7801"', "2: metrics.listen: expected an address such as "),
        (
            '[metrics]\ntextfile = "run/tarry.txt"',
            "2: metrics.textfile: expected a file whose name ends in .prom, since ",
        ),
        ("[metrics]\nevery = 0", "2: metrics.every: expected a duration of more than 0, got 0"),
        ('[server]\nhttp = ":7801"\ntokens = "t"\n[metrics]\nlisten = ":7801"', "5: metrics.listen: expected another "),
        ("[metrics]\nlistens = 1", "2: unknown setting metrics.listens; did you mean listen?"),
    ],
)
def test_a_wrong_setting_of_metrics_is_told(loads: Loads, text: str, message: str) -> None:
    assert told(loads, f"{text}\n").startswith(f"tarry.toml:{message}")


FULL = """
app = "shop.jobs:app"
store = ["sqlite:///a.db", "sqlite:////var/b.db"]
max_body = "64KB"

[master]
pid_file = "/run/shop.pid"
term_grace = "1m30s"
log = "log/shop.log"
log_format = "json"
log_level = "debug"

[pools.default]
queues = ["default", "mail"]
workers = 2
threads = 0
async = 1000
shares = "strict"
lease = 5

[pools.bulk]
queues = { bulk = 5, "order.timeout" = 1 }
threads = 8
shares = [8, 1, 1]

[queues.mail]
keep = { done = "10m", dead = 0, bytes = "1MiB" }

[queues."order.timeout".keep]
bytes = 0
"""


def test_every_setting_in_a_file(loads: Loads, tmp_path: Path) -> None:
    config = loads(FULL)
    assert config.app == "shop.jobs:app"
    assert config.store == config.stores == [f"sqlite:///{tmp_path}/a.db", "sqlite:////var/b.db"]
    assert config.max_body == 64_000
    assert config.master == MasterConfig(Path("/run/shop.pid"), 90.0, f"{tmp_path}/log/shop.log", "json", "debug")
    assert config.pools == {
        "default": Pool("default", ["default", "mail"], 2, 0, 1000, "strict", 5 * SECOND),
        "bulk": Pool("bulk", {"bulk": 5, "order.timeout": 1}, 1, 8, 100, (8, 1, 1), 15 * SECOND),
    }
    assert config.queues == {
        "mail": Queue(Keep(10 * MINUTE, 0, 2**20)),
        "order.timeout": Queue(Keep(HOUR, 30 * DAY, 0)),
    }
    assert config.keep("mail").done == 10 * MINUTE
    assert config.file == tmp_path / "tarry.toml"


def delays(rule: Retry, many: int) -> list[int | None]:
    return [rule.delay(failures) for failures in range(1, many + 1)]


def test_the_rule_for_tasks_that_say_none(loads: Loads) -> None:
    assert delays(loads().defaults.retry.rule, 13) == delays(DEFAULT, 13)
    some = loads('[defaults]\nretry = { max = 3, backoff = ["1m", 90], jitter = 0 }\n').defaults.retry.rule
    assert delays(some, 4) == [MINUTE, 90 * SECOND, 90 * SECOND, None]
    capped = loads('[defaults.retry]\nbase = "1h"\nmost = "90m"\njitter = 0\n').defaults.retry.rule
    assert delays(capped, 3) == [HOUR, 90 * MINUTE, 90 * MINUTE]
    assert delays(loads("[defaults]\nretry = { max = 0 }\n").defaults.retry.rule, 1) == [None]
    assert loads(environ={"TARRY_DEFAULTS__RETRY__MAX": "4"}).defaults.retry.max == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{ maxx = 3 }", "unknown setting defaults.retry.maxx; did you mean max?"),
        ("{ max = -1 }", "defaults.retry.max: expected a whole number of 0 or more, got -1"),
        ('{ backoff = "exponentail" }', 'got "exponentail"; did you mean "exponential"?'),
        ("{ jitter = 2 }", "defaults.retry.jitter: expected a number from 0 to 1, got 2"),
        ("{ backoff = [] }", "or a list of delays"),
        ("5", "defaults.retry: expected a table of settings such as max and backoff, got 5"),
    ],
)
def test_a_wrong_rule_is_told(loads: Loads, text: str, said: str) -> None:
    assert said in told(loads, f"[defaults]\nretry = {text}\n")


def test_a_table_of_pyproject_toml_does_as_well(loads: Loads, tmp_path: Path) -> None:
    config = loads(
        '[project]\nname = "x"\n[tool.tarry]\napp = "a:b"\n[tool.tarry.master]\nterm_grace = 0\n', name="pyproject.toml"
    )
    assert (config.app, config.master.term_grace) == ("a:b", 0.0)
    assert config.file == tmp_path / "pyproject.toml"


def test_a_pyproject_toml_of_others_is_no_file_of_ours(loads: Loads) -> None:
    assert loads("[tool.ruff]\nline-length = 110\n", name="pyproject.toml").file is None


def test_tarry_toml_comes_before_pyproject_toml(loads: Loads) -> None:
    loads('[tool.tarry]\napp = "second:app"\n', name="pyproject.toml")
    assert loads('app = "first:app"\n').app == "first:app"


def test_an_empty_tarry_toml_is_a_file_with_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "tarry.toml").touch()
    assert load(environ={}, directory=tmp_path).file == tmp_path / "tarry.toml"


def test_paths_start_where_the_file_is_not_where_one_stands(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/shop.toml").write_text('store = "sqlite:///rel.db"\n', encoding="utf-8")
    config = load(Path("etc/shop.toml"), {}, tmp_path)
    assert config.store == f"sqlite:///{tmp_path}/etc/rel.db"
    assert config.master.pid_file == tmp_path / "etc/run/tarry.pid"
    assert config.directory == tmp_path / "etc"


def test_the_working_directory_is_where_one_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tarry.toml").write_text('app = "here:app"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TARRY_MASTER__TERM_GRACE", "3")
    config = load()
    assert (config.app, config.master.term_grace) == ("here:app", 3.0)


@pytest.mark.parametrize(
    "url", ["sqlite:////abs/tarry.db", "sqlite:///:memory:", "redis://h1:1,h2:2/0", "postgresql://u@h/db?a=sqlite:///"]
)
def test_other_urls_stay_as_they_are(loads: Loads, url: str) -> None:
    assert loads(f'store = "{url}"').store == url


def test_options_of_a_relative_url_stay(loads: Loads, tmp_path: Path) -> None:
    assert loads('store = "sqlite:///a.db?durable=0"').store == f"sqlite:///{tmp_path}/a.db?durable=0"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"STORE": "sqlite:////x.db"}, lambda c: c.store == "sqlite:////x.db"),
        ({"STORE": "sqlite:////x.db,sqlite:////y.db"}, lambda c: c.store == ["sqlite:////x.db", "sqlite:////y.db"]),
        (
            {"STORE": '["sqlite:////x.db", "sqlite:////y.db"]'},
            lambda c: c.store == ["sqlite:////x.db", "sqlite:////y.db"],
        ),
        ({"STORE": "redis+cluster://h1:1,h2:2"}, lambda c: c.store == "redis+cluster://h1:1,h2:2"),
        ({"APP": " shop:app "}, lambda c: c.app == "shop:app"),
        ({"APP": ""}, lambda c: c.app is None),
        ({"MAX_BODY": "2MiB"}, lambda c: c.max_body == 2**21),
        ({"MAX_BODY": "1000"}, lambda c: c.max_body == 1000),
        ({"MAX_SCHEDULES": "0"}, lambda c: c.max_schedules == 0),
        ({"MASTER__PID_FILE": "/tmp/x.pid"}, lambda c: c.master.pid_file == Path("/tmp/x.pid")),
        ({"MASTER__PID_FILE": "12"}, lambda c: c.master.pid_file == c.directory / "12"),
        ({"MASTER__TERM_GRACE": "2.5"}, lambda c: c.master.term_grace == 2.5),
        ({"MASTER__TERM_GRACE": "1m"}, lambda c: c.master.term_grace == 60),
        ({"MASTER__LOG_LEVEL": "DEBUG"}, lambda c: c.master.log_level == "debug"),
        ({"POOLS__DEFAULT__WORKERS": "2"}, lambda c: c.pools["default"].workers == 2),
        *(
            ({"POOLS__DEFAULT__WORKERS": text}, lambda c: c.pools["default"].workers == Workers(2, 5, 60.0))
            for text in ('{ min = 2, max = 5, calm = "1m" }', '{"min": 2, "max": 5, "calm": 60}')
        ),
        ({"MASTER__WATCH": "True"}, lambda c: c.master.watch is True),
        ({"POOLS__DEFAULT__UVLOOP": "true"}, lambda c: c.pools["default"].uvloop is True),
        ({"POOLS__DEFAULT__FENCE": "Stop"}, lambda c: c.pools["default"].fence == "stop"),
        ({"POOLS__DEFAULT__ASYNC": "1000"}, lambda c: c.pools["default"].async_ == 1000),
        ({"POOLS__MAIL__QUEUES": "mail"}, lambda c: c.pools["mail"].queues == ["mail"]),
        ({"POOLS__MAIL__QUEUES": "mail, 7"}, lambda c: c.pools["mail"].queues == ["mail", "7"]),
        ({"POOLS__MAIL__QUEUES": '["mail", "sms"]'}, lambda c: c.pools["mail"].queues == ["mail", "sms"]),
        ({"POOLS__MAIL__QUEUES": '{"mail": 3}'}, lambda c: c.pools["mail"].queues == {"mail": 3}),
        ({"POOLS__MAIL__QUEUES": "*"}, lambda c: c.pools["mail"].queues == "*"),
        ({"POOLS__MAIL__SHARES": "7,2,1"}, lambda c: c.pools["mail"].shares == (7, 2, 1)),
        ({"POOLS__MAIL__SHARES": "[7, 2, 1]"}, lambda c: c.pools["mail"].shares == (7, 2, 1)),
        ({"POOLS__MAIL__SHARES": "strict"}, lambda c: c.pools["mail"].shares == "strict"),
        ({"POOLS__MAIL__LEASE": "90"}, lambda c: c.pools["mail"].lease == 90 * SECOND),
        ({"QUEUES__MAIL__KEEP__DONE": "5m"}, lambda c: c.keep("mail") == Keep(done=5 * MINUTE)),
        ({"QUEUES__MAIL__KEEP": '{"dead": "1d"}'}, lambda c: c.keep("mail") == Keep(dead=DAY)),
        (
            {"QUEUES__MAIL__KEEP__DONE": "5m", "QUEUES__MAIL__KEEP": '{"dead": "1d"}'},
            lambda c: c.keep("mail") == Keep(done=5 * MINUTE, dead=DAY),
        ),
    ],
)
def test_each_setting_as_a_variable(
    loads: Loads, variables: dict[str, str], expected: Callable[[Config], bool]
) -> None:
    config = loads(environ={f"TARRY_{name}": text for name, text in variables.items()})
    assert expected(config), config


def test_a_variable_comes_before_the_file_and_leaves_the_rest(loads: Loads) -> None:
    config = loads(FULL, environ={"TARRY_POOLS__BULK__WORKERS": "9", "TARRY_QUEUES__MAIL__KEEP__DEAD": "2d"})
    assert config.pools["bulk"] == Pool("bulk", {"bulk": 5, "order.timeout": 1}, 9, 8, 100, (8, 1, 1))
    assert config.keep("mail") == Keep(10 * MINUTE, 2 * DAY, 2**20)
    assert config.app == "shop.jobs:app"


def test_a_variable_finds_a_name_that_it_cannot_spell(loads: Loads) -> None:
    config = loads('[pools."Bulk-mail"]\nworkers = 1\n', environ={"TARRY_POOLS__BULK_MAIL__WORKERS": "3"})
    assert {name: pool.workers for name, pool in config.pools.items()} == {"Bulk-mail": 3}


@pytest.mark.parametrize(
    "name",
    ["TARRY_PORT", "TARRY_PORT_7800_TCP_ADDR", "TARRY_SERVICE_HOST", "TARRY_MASTER_PORT", "TARRYING", "tarry_app"],
)
def test_a_strangers_variable_is_left_alone(loads: Loads, name: str) -> None:
    assert loads(environ={name: "tcp://10.0.0.1:7800"}) == loads()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("TARRY_MASTER__PIDFILE", "did you mean TARRY_MASTER__PID_FILE?"),
        ("TARRY_MASTER_PID_FILE", "did you mean TARRY_MASTER__PID_FILE?"),
        ("TARRY_STORES", "did you mean TARRY_STORE?"),
        ("TARRY_POOL__DEFAULT__WORKERS", "did you mean TARRY_POOLS__DEFAULT__WORKERS?"),
        ("TARRY_POOLS__DEFAULT__WORKERS__MAX", "did you mean TARRY_POOLS__DEFAULT__WORKERS?"),
        ("TARRY_APP__NAME__X__Y", "known here: TARRY_APP, TARRY_STORE, TARRY_MAX_BODY, TARRY_MAX_SCHEDULES, "),
    ],
)
def test_an_unknown_variable_is_told_with_the_nearest(loads: Loads, name: str, advice: str) -> None:
    assert told(loads, environ={name: "1"}).startswith(f"{name}: unknown setting; {advice}")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("POOLS__DEFAULT__WORKERS", "two", f'expected {WORKERS}, got "two"'),
        ("POOLS__DEFAULT__WORKERS", "2.5", f"expected {WORKERS}, got 2.5"),
        (
            "POOLS__A__SHARES",
            "5,x",
            'expected three whole numbers of 1 or more such as [5, 3, 2], or "strict", got [5, "x"]',
        ),
        ("STORE", "[oops", 'expected a URL such as "sqlite:///tarry.db", or a list of them, got "[oops"'),
        ("QUEUES__MAIL__KEEP", "1h", 'expected a table of settings such as done and dead, got "1h"'),
        ("QUEUES__MAIL__KEEP", '{"done": []}', 'expected a duration such as 90 (seconds) or "1h30m", got []'),
    ],
)
def test_a_wrong_variable_is_told_by_its_name(loads: Loads, name: str, text: str, message: str) -> None:
    assert told(loads, environ={f"TARRY_{name}": text}) == f"TARRY_{name}: {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[master]\n\npidfile = 1\n", "tarry.toml:3: unknown setting master.pidfile; did you mean pid_file?"),
        ("master = { pidfile = 1 }", "tarry.toml:1: unknown setting master.pidfile; did you mean pid_file?"),
        ("\nmaster.pidfile = 1", "tarry.toml:2: unknown setting master.pidfile; did you mean pid_file?"),
        ("[mastr]\nlog = 1\n", "tarry.toml:1: unknown setting mastr; did you mean master?"),
        ("# x\nStore = 1", "tarry.toml:2: unknown setting Store; did you mean store?"),
        (
            'app = "a:b"\n[console]\nhttp = "127.0.0.1:7800"',
            "tarry.toml:2: unknown setting console; known here: app, store, max_body, max_schedules, client, ",
        ),
        ("[pools.default]\nasync_ = 1", "tarry.toml:2: unknown setting pools.default.async_; did you mean async?"),
        ("[pools.default]\nname = 'x'", "tarry.toml:2: unknown setting pools.default.name; known here: queues, "),
        ('[queues."a.b"]\nkep = 1', 'tarry.toml:2: unknown setting queues."a.b".kep; did you mean keep?'),
        ("directory = '/'", "tarry.toml:1: unknown setting directory; known here: app, store, "),
    ],
)
def test_an_unknown_setting_is_told_with_its_line_and_the_nearest(loads: Loads, text: str, message: str) -> None:
    assert told(loads, text).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("app = 5", '1: app: expected a module and a name in it, such as "shop.jobs:app", got 5'),
        ("app = 'shop.jobs'", '1: app: expected a module and a name in it, such as "shop.jobs:app", got "shop.jobs"'),
        (
            "store = 'tarry.db'",
            '1: store: expected a URL such as "sqlite:///tarry.db", or a list of them, got "tarry.db"',
        ),
        ("store = []", '1: store: expected a URL such as "sqlite:///tarry.db", or a list of them, got []'),
        (
            "max_body = '1 meg'",
            '1: max_body: expected a size of 1 byte or more, such as 65536, "64KB" or "1MiB", got "1 meg"',
        ),
        ("max_body = 0", '1: max_body: expected a size of 1 byte or more, such as 65536, "64KB" or "1MiB", got 0'),
        ("master = 5", "1: master: expected a table of settings such as pid_file and term_grace, got 5"),
        ("[[master]]", "1: master: expected a table of settings such as pid_file and term_grace, got [{}]"),
        ("[master]\npid_file = ''", '2: master.pid_file: expected the path of a file, got ""'),
        (
            "[master]\nterm_grace = -1",
            '2: master.term_grace: expected a duration such as 90 (seconds) or "1h30m", got -1',
        ),
        (
            "[master]\nterm_grace = nan",
            '2: master.term_grace: expected a duration such as 90 (seconds) or "1h30m", got NaN',
        ),
        (
            "[master]\nterm_grace = true",
            '2: master.term_grace: expected a duration such as 90 (seconds) or "1h30m", got true',
        ),
        ("[master]\nlog = 'sylog'", f'2: master.log: expected {LOG}, got "sylog"; did you mean "syslog"?'),
        ("[master]\nlog = 'stdout'", f'2: master.log: expected {LOG}, got "stdout"'),
        ("[master]\nlog = 'http://there'", f'2: master.log: expected {LOG}, got "http://there"'),
        ("[master]\nlog = 'syslog://there:0'", f'2: master.log: expected {LOG}, got "syslog://there:0"'),
        (
            "[master]\nlog_format = 'jsn'",
            '2: master.log_format: expected "text" or "json", got "jsn"; did you mean "json"?',
        ),
        ("[master]\nlog_format = 'xml'", '2: master.log_format: expected "text" or "json", got "xml"'),
        (
            "[master]\nlog_level = 'loud'",
            '2: master.log_level: expected "debug", "info", "warning" or "error", got "loud"',
        ),
        ("pools = 5", "1: pools: expected a table for each name, as in [pools.default], got 5"),
        ("[pools]\nworkers = 2", "2: pools.workers: expected a table of settings such as queues and workers, got 2"),
        (
            "\n\n\n\n\n[pools.default]\nworkers = 'two'",
            f'7: pools.default.workers: expected {WORKERS}, got "two"',
        ),
        ("[pools.default]\nworkers = 0", f"2: pools.default.workers: expected {WORKERS}, got 0"),
        ("[pools.default]\nworkers = true", f"2: pools.default.workers: expected {WORKERS}, got true"),
        (
            "[pools.default]\nworkers = { min = 3, max = 2 }",
            "2: pools.default.workers.max: expected 3 or more, as min is, got 2",
        ),
        (
            "[pools.default]\nworkers = { min = 3 }",
            '2: pools.default.workers: expected max as well, as in { min = 1, max = 8 }, got {"min": 3}',
        ),
        (
            "[pools.default]\nworkers = { min = 0, max = 2 }",
            "2: pools.default.workers.min: expected a whole number of 1 or more, got 0",
        ),
        (
            "[pools.default]\nworkers = { min = 1, max = 2.5 }",
            "2: pools.default.workers.max: expected a whole number of 1 or more, got 2.5",
        ),
        (
            "[pools.default.workers]\nmin = 1\nmaxx = 2",
            "3: unknown setting pools.default.workers.maxx; did you mean max?",
        ),
        ("[master]\nwatch = 1", "2: master.watch: expected true or false, got 1"),
        ("[pools.default]\nthreads = -1", "2: pools.default.threads: expected a whole number of 0 or more, got -1"),
        (
            "[pools.default]\nasync = 0\nthreads = 0",
            "3: pools.default.threads: expected 1 or more while async is 0, got 0",
        ),
        (
            "[pools.default]\nlease = '1.9s'",
            '2: pools.default.lease: expected a duration of 2 seconds or more, such as "15s", got "1.9s"',
        ),
        (
            "[pools.default]\nfence = 'kill'",
            '2: pools.default.fence: expected "off" or "stop", got "kill"',
        ),
        (
            "[pools.default]\nkeep_output = '2MB'",
            '2: pools.default.keep_output: expected a size of at most 1MB such as "8KB", or 0 for none, got "2MB"',
        ),
        (
            "[pools.default]\nshares = [5, 3]",
            (
                "2: pools.default.shares: expected three whole numbers of 1 or more such as [5, 3, 2], "
                'or "strict", got [5, 3]'
            ),
        ),
        (
            "[pools.default]\nqueues = 'mail'",
            (
                '2: pools.default.queues: expected "*", a list of names such as ["default", "mail"], or weights '
                'such as { critical = 5, default = 3 }, got "mail"'
            ),
        ),
        (
            "[queues.mail]\nkeep = { done = 'soon' }",
            '2: queues.mail.keep.done: expected a duration such as 90 (seconds) or "1h30m", got "soon"',
        ),
        (
            "[queues.mail.keep]\n\nbytes = 1.5",
            '3: queues.mail.keep.bytes: expected a size such as 65536 (bytes), "64KB" or "1MiB", got 1.5',
        ),
        (
            f"app = '{'x' * 100}'",
            f'1: app: expected a module and a name in it, such as "shop.jobs:app", got "{"x" * 56}...',
        ),
    ],
)
def test_a_wrong_setting_is_told_with_its_line_and_what_was_expected(loads: Loads, text: str, message: str) -> None:
    assert told(loads, text) == f"tarry.toml:{message}"


@pytest.mark.parametrize("queues", ["[]", "{}", "{ a = 0 }", "['']", "{ a = 'x' }", "[1]"])
def test_queues_that_are_none_are_refused(loads: Loads, queues: str) -> None:
    assert told(loads, f"[pools.default]\nqueues = {queues}").startswith(
        'tarry.toml:2: pools.default.queues: expected "*", '
    )


def test_the_line_in_pyproject_toml_is_that_of_our_table(loads: Loads) -> None:
    text = "[tool.other.master]\npidfile = 1\n[tool.tarry]\n[tool.tarry.master]\npidfile = 2\n"
    message = told(loads, text, name="pyproject.toml")
    assert message == "pyproject.toml:5: unknown setting master.pidfile; did you mean pid_file?"


QUOTES = '; text stands in quotes, as in app = "app:app"'


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("app = 'a:b'\nstore =\n", f"tarry.toml:2: Invalid value: this is no TOML{QUOTES}"),
        ("store = sqlite:///a.db\n", f"tarry.toml:1: Invalid value: this is no TOML{QUOTES}"),
        ("app = 'a:b'\napp = 'a:b'\n", "tarry.toml:2: Cannot overwrite a value: this is no TOML"),
        ("app = 'a:b'\n\nstore = [", f"tarry.toml:3: Invalid value: this is no TOML{QUOTES}"),
    ],
)
def test_what_is_no_toml_is_told_with_its_line(loads: Loads, text: str, start: str) -> None:
    assert told(loads, text) == start


def test_a_file_that_does_not_exist_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^no\.toml does not exist: `tarry init` writes a tarry\.toml to start from$"
    ):
        load(Path("no.toml"), {}, tmp_path)


def test_a_given_pyproject_toml_without_our_table_is_told(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^pyproject\.toml has no \[tool\.tarry\]: add it, or name another file$"):
        load(Path("pyproject.toml"), {}, tmp_path)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "tarry.toml").mkdir()
    with pytest.raises(ConfigError, match=r"^tarry\.toml cannot be read: Is a directory$"):
        load(environ={}, directory=tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(ConfigError, match=r"^latin\.toml cannot be read: it is not UTF-8$"):
        load(Path("latin.toml"), {}, tmp_path)


def test_loading_does_not_touch_the_variables(loads: Loads) -> None:
    before = dict(os.environ)
    environ = {"TARRY_APP": "a:b"}
    loads(environ=environ)
    assert environ == {"TARRY_APP": "a:b"}
    assert dict(os.environ) == before


def test_one_load_leaves_nothing_behind_for_the_next(loads: Loads) -> None:
    loads(environ={"TARRY_POOLS__MAIL__WORKERS": "3", "TARRY_QUEUES__MAIL__KEEP__DONE": "1s"})
    assert set(loads().pools) == {"default"}
    assert loads().queues == {}
    assert told(loads, "app = 5").startswith("tarry.toml:1: app:")


def test_calendars(loads: Loads) -> None:
    text = "[calendars.de]\ndays = 'mon-fri'\nwithout = ['2026-12-25', 2026-12-28]\n"
    text += "[calendars.ends]\nonly = [2026-12-31]\n"
    found = loads(text).named_calendars
    assert found == {
        "de": Calendar("mon-fri", without=["2026-12-25", "2026-12-28"]),
        "ends": Calendar(only=["2026-12-31"]),
    }
    variables = {"TARRY_CALENDARS__DE__WITHOUT": "2027-01-01, 2027-01-06", "TARRY_CALENDARS__DE__DAYS": "sat"}
    assert loads(text, environ=variables).named_calendars["de"] == Calendar("sat", without=["2027-01-01", "2027-01-06"])
    assert loads("[calendars.all]\n").named_calendars == {"all": Calendar()}


DATES = 'a list of dates such as ["2026-12-25", "2026-12-28"]'


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("day = 'mon-fri'", "tarry.toml:2: unknown setting calendars.de.day; did you mean days?"),
        (
            "days = 'mon-fry'",
            'tarry.toml:2: calendars.de.days: expected weekdays such as "mon-fri" or "mon,wed,fri", got "mon-fry"; did',
        ),
        ("without = '2026-12-25'", f'tarry.toml:2: calendars.de.without: expected {DATES}, got "2026-12-25"'),
        ("without = ['25.12.']", f'tarry.toml:2: calendars.de.without: expected {DATES}, got ["25.12."]'),
        ("only = [2026-12-25T09:00:00Z]", f'tarry.toml:2: calendars.de.only: expected {DATES}, got ["2026-12-25 09:0'),
        (
            "days = 'sat'\nonly = [2026-12-25]",
            "tarry.toml:3: calendars.de.only: expected a date that is one of its days and not left out by without, got",
        ),
    ],
)
def test_a_calendar_that_cannot_be(loads: Loads, written: str, complaint: str) -> None:
    assert told(loads, f"[calendars.de]\n{written}\n").startswith(complaint)


def uncommented(text: str) -> str:
    """Settings are commented with a `#` alone, words with a `#` and a space."""
    return "\n".join(line[1:] if line[:1] == "#" and line[:2] != "# " else line for line in text.split("\n"))


def test_the_template_uncommented_says_the_defaults(loads: Loads) -> None:
    default = loads()
    config = loads(uncommented(template()))
    assert config.stores == default.stores
    assert config.keep("default") == default.keep("default")
    examples = {"default": Queue(limit=10, rate="100/s", max_waiting=100_000)}  # there is no limit unless one is given
    client = ClientConfig(outbox=default.directory / "run/outbox.db")  # nor an outbox
    tasks = {"order.timeout": config.tasks["order.timeout"]}  # nor a task
    calendars = {"work": CalendarConfig()}  # nor a calendar
    push = replace(default.push, ca=default.directory / "certs/ours.pem")  # nor an authority of one's own
    expected = replace(
        default, app="app:app", store=default.stores[0], client=client, queues=examples, tasks=tasks, file=config.file
    )
    expected = replace(expected, calendars=calendars)
    home = default.directory
    files = {
        "tokens": home / "run/tokens.toml",
        "passwords": home / "run/passwords.toml",
        "people": home / "run/people.toml",
        "certificate": home / "tls/server.pem",
        "key": home / "tls/server.key",
        "client_ca": home / "tls/clients.pem",
    }
    # Nor tokens, passwords, TLS, or a rate.
    proxy = {"trusted_header": "X-Forwarded-User", "trusted_proxies": ("127.0.0.1", "unix")}
    server = replace(default.server, rate_per_address="1000/s", **proxy, **files)
    metrics = MetricsConfig(textfile=home / "run/tarry.prom")  # nor a file
    expected = replace(expected, push=push, server=server, metrics=metrics)
    Endpoint.parse("order.timeout", tasks["order.timeout"], checked=False)
    assert config == expected


def test_the_template_as_it_is_only_names_the_app(loads: Loads) -> None:
    default = loads()
    config = loads(template())
    assert config == replace(default, app="app:app", file=config.file)


@pytest.mark.parametrize(
    "kind",
    [
        Config,
        ClientConfig,
        MasterConfig,
        Pool,
        Queue,
        Keep,
        CalendarConfig,
        Alerts,
        Defaults,
        DefaultRetry,
        ServerConfig,
        MetricsConfig,
    ],
)
def test_the_template_shows_every_setting(kind: type[Struct]) -> None:
    text = uncommented(template())
    for field in set(kind.__struct_fields__) - {"name", "directory", "file"}:
        name = field.rstrip("_")
        assert any(start in text for start in (f"\n{name} = ", f"[{name}", f" {name} = ")), name


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (("a",), 1),
        (("b", "c"), 4),
        (("b", "missing"), 3),
        (("b", "d", "e"), 5),
        (("x.y", "z"), 7),
        (("nowhere",), None),
    ],
)
def test_where_a_setting_stands(keys: tuple[str, ...], line: int | None) -> None:
    text = "a = 1\n\n[ b ] # words\n  c = 2\nd.e = [\n]\n['x.y'] \n"
    assert line_of(text + "z = 1\n" if keys == ("z",) else text, keys) == line


class TestPayloads:
    def read(self, tmp_path: Path, text: str) -> Config:
        file = tmp_path / "tarry.toml"
        file.write_text(text)
        return load(file, {})

    def test_they_are_in_the_store_unless_a_place_is_named(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, '[payloads]\nto = ""\n').payloads == PayloadsConfig()
        found = self.read(tmp_path, '[payloads]\nto = "s3://jobs/shop"\nover = "10KB"\nmost = "1GiB"\n').payloads
        assert found == PayloadsConfig("s3://jobs/shop", 10_000, 2**30)

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ('to = "ftp://host"', r"tarry.toml:2: payloads.to"),
            ('to = "file://host/srv"', r"tarry.toml:2: payloads.to"),
            ('to = "s3://key@bucket"', r"tarry.toml:2: payloads.to"),
            ('to = "file:///srv"\nover = "2MB"', "at most max_body, which is 1048576"),
            ('to = "file:///srv"\nmost = "1KB"', "over, which is 256000, or more"),
            ('most = "2GB"', "a size of at most 1GiB"),
        ],
    )
    def test_what_fits_nowhere_is_refused(self, tmp_path: Path, text: str, why: str) -> None:
        with pytest.raises(ConfigError, match=why):
            self.read(tmp_path, f"[payloads]\n{text}\n")
