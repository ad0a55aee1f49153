"""[server]: the doors for other programs, HTTP and beanstalk, and what they bear."""

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry.config.kinds import DURATION, FILE, FLAG, FROM_0, FROM_1, RATE, SECONDS, SOME_SIZE, parse_list, parse_table
from tarry.config.parser import Kind, SettingsSource
from tarry.model.duration import SECOND, microseconds
from tarry.model.values.listen_address import ListenAddress, listen_address


def _addresses(written: str | list[str]) -> tuple[ListenAddress, ...]:
    each = [written] if isinstance(written, str) else written
    return tuple(dict.fromkeys(listen_address(one) for one in each if one))


def _parse_addresses(text: str) -> Any:
    # "[::1]:7800" is an address, and no list.
    return parse_list(text) if text.startswith('["') else [part.strip() for part in text.split(",")]


def _some_time(written: float | str) -> float:
    if (time := microseconds(written) / SECOND) <= 0:
        raise ValueError("nobody could be that fast")
    return time


def _hosts(written: list[str]) -> tuple[str, ...]:
    for name in written:
        if not re.fullmatch(r"\*|(\*\.)?[\w-]+(\.[\w-]+)*", name, re.ASCII) or len(name) > 253:
            raise ValueError("no name of a host, and no pattern such as *.example.com")
    return tuple(written)


UNIX = "unix"
"""In place of an address: whoever comes by a unix socket of ours."""
_OTHERS = ("authorization", "cookie", "host", "origin", "referer", "user-agent", "content-type", "accept", "connection")
"""Headers that every client sends, and proxies pass on."""


def _header(written: str) -> str:
    # Not an underscore: some programs take it for a dash, so that two names would be one.
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{0,99}", written) or written.lower() in _OTHERS:
        raise ValueError("no such header")
    return written


def _proxies(written: list[str]) -> tuple[str, ...]:
    for one in written:
        if one != UNIX and not ip_network(one).prefixlen:
            raise ValueError("everybody")
    return tuple(written)


HEADER = Kind(
    'the name of a header of letters, digits and dashes such as "X-Forwarded-User", which only the proxy sets',
    str,
    _header,
)
PROXIES = Kind(
    'a list of addresses and networks such as ["10.0.0.5", "10.1.0.0/16", "unix"], but not of all there are',
    list[str],
    _proxies,
    parse_list,
)
HOST_NAMES = Kind('a list of names of hosts such as ["jobs.example.com", "*.internal"]', list[str], _hosts, parse_list)
ADDRESSES = Kind(
    'an address such as "127.0.0.1:7800", "[::1]:7800", ":7800" (all) or "unix:/run/tarry.sock", or a list of them',
    str | Annotated[list[str], Meta(min_length=1)],
    _addresses,
    _parse_addresses,
)


def _path(written: str) -> str:
    path = written.rstrip("/")
    if not re.fullmatch(r"(/[\w.~-]+)*", path, re.ASCII) or "/./" in f"{path}/" or "/../" in f"{path}/":
        raise ValueError("a path begins with / and holds letters, digits, dots, dashes and _")
    return path


PATH = Kind('a path such as "/tarry", below which a proxy has this server', str, _path)
ConsoleMode = Literal["on", "read-only", "off"]
CONSOLE = Kind('"on", "read-only" or "off"', ConsoleMode, parse_variable=str.lower, names=("on", "read-only", "off"))
SOME_TIME = Kind("a duration of more than 0", DURATION.shape, _some_time, DURATION.parse_variable)


class ServerProcesses(Struct, frozen=True):
    """The bounds of server processes that follow their load."""

    min: Annotated[int, FROM_1] = 1
    max: Annotated[int, FROM_1] = 0
    """0: missing, which `check` refuses."""
    calm: Annotated[float, SECONDS] = 30.0
    """A process leaves when fewer have been enough for so many seconds."""


PROCESSES = Kind(
    "a whole number of 1 or more, or bounds such as { min = 1, max = 4 }",
    FROM_1.shape,
    parse_variable=parse_table,
    table=ServerProcesses,
)


class ServerConfig(Struct, frozen=True):
    """[server]. Without an address there is no server."""

    http: Annotated[tuple[ListenAddress, ...], ADDRESSES] = ()
    beanstalk: Annotated[tuple[ListenAddress, ...], ADDRESSES] = ()
    beanstalk_auth: Annotated[bool, FLAG] = False
    """Whether clients of beanstalk have to send `auth TOKEN` first, an extension of its protocol."""
    tokens: Annotated[Path | None, FILE] = None
    """The file of tokens; without it and `passwords` anybody who reaches the server may do everything."""
    passwords: Annotated[Path | None, FILE] = None
    """The file of passwords, with which people sign in at the console."""
    trusted_header: Annotated[str | None, HEADER] = None
    """The header in which a proxy names the person whom it has signed in."""
    trusted_proxies: Annotated[tuple[str, ...], PROXIES] = ()
    """The addresses from which that header counts."""
    people: Annotated[Path | None, FILE] = None
    """The file with the roles of these people."""
    host_names: Annotated[tuple[str, ...], HOST_NAMES] = ()
    """Names by which clients call the HTTP door while it has neither tokens nor passwords, besides addresses and
    localhost: what a page has its own name lead here for is refused."""
    certificate: Annotated[Path | None, FILE] = None
    """A file with a certificate (PEM): HTTP over TLS. Read again when it changes."""
    key: Annotated[Path | None, FILE] = None
    """The file of its key; None: it is in the same file."""
    client_ca: Annotated[Path | None, FILE] = None
    """A file with authorities (PEM): every client of HTTP needs a certificate of one of them."""
    console: Annotated[ConsoleMode, CONSOLE] = "on"
    """Whether the HTTP door has pages for people, and whether they may do more than look."""
    path: Annotated[str, PATH] = ""
    """The path below which a proxy passes on requests for the HTTP door; empty: it has a host for itself."""
    processes: Annotated[int | ServerProcesses, PROCESSES] = 1
    """How many processes; with bounds, as many as the load needs."""
    max_connections: Annotated[int, FROM_1] = 1024
    """Of all processes together, each door counted by itself."""
    max_connections_per_address: Annotated[int, FROM_0] = 256
    """Of one client address, in one process; 0: as many as `max_connections`."""
    rate_per_address: Annotated[str | None, RATE] = None
    """HTTP requests of one client address in a period, in one process."""
    max_request: Annotated[int, SOME_SIZE] = 32 * 2**20
    """Bytes of the body of one HTTP request."""
    max_job_size: Annotated[int, SOME_SIZE] = 65535
    """Bytes of a job's body at the beanstalk door; never more than the app's `max_body`."""
    read_timeout: Annotated[float, SOME_TIME] = 15.0
    """Seconds in which the head of a request has to arrive, and each 64 KB of its body."""
    keep_alive: Annotated[float, SOME_TIME] = 60.0
    """Seconds for which an idle HTTP connection stays open."""
    drain: Annotated[float, SECONDS] = 15.0
    """Seconds that open requests have to end when a process is to end."""
    ring: Annotated[int, FROM_1] = 256
    """How many puts may be under way, in one process; any more are told at once that it is busy."""
    backlog: Annotated[int, FROM_1] = 1024
    """How many connections may wait in the kernel, at each address."""

    @property
    def is_on(self) -> bool:
        """Whether there is a server at all."""
        return bool(self.http or self.beanstalk)

    @property
    def bounds(self) -> ServerProcesses:
        """The fewest and the most processes. Both are equal if they do not follow the load."""
        processes = self.processes
        return processes if isinstance(processes, ServerProcesses) else ServerProcesses(processes, processes)

    @property
    def follows(self) -> bool:
        """Whether the number of processes follows the load."""
        return isinstance(self.processes, ServerProcesses)

    @property
    def knows_callers(self) -> bool:
        """Whether it tells callers apart; else anybody who reaches it may do everything."""
        return any(one is not None for one in (self.tokens, self.passwords, self.trusted_header))

    @property
    def connections_per_process(self) -> int:
        """How many connections one process accepts: `max_connections` divided among the most processes."""
        return max(1, self.max_connections // self.bounds.max)

    @property
    def addresses(self) -> dict[str, tuple[ListenAddress, ...]]:
        """The addresses by the name of their door: `http`, `beanstalk`."""
        doors = {"http": self.http, "beanstalk": self.beanstalk}
        return {name: addresses for name, addresses in doors.items() if addresses}


def check_server(config: ServerConfig, source: SettingsSource) -> None:
    """ConfigError if settings of [server] contradict each other."""
    least, most = config.bounds.min, config.bounds.max
    if not most:
        raise source.wrong(("server", "processes"), "max as well, as in { min = 1, max = 4 }", {"min": least})
    if most < least:
        raise source.wrong(("server", "processes", "max"), f"{least} or more, as min is", most)
    for name in ("key", "client_ca"):
        if getattr(config, name) is not None and config.certificate is None:
            raise source.wrong(("server", name), "a certificate as well", str(getattr(config, name)))
    _check_proxy(config, source)
    if config.beanstalk_auth and config.tokens is None:
        raise source.wrong(("server", "beanstalk_auth"), "server.tokens as well", True)
    seen: set[ListenAddress] = set()
    for door, addresses in config.addresses.items():
        for address in addresses:
            # beanstalk's protocol knows no tokens: on a network anybody could take the jobs.
            if not address.is_private and (door == "beanstalk" or not config.knows_callers):
                why = "since it knows no tokens" if door == "beanstalk" else "while server.tokens is not set"
                wanted = f"an address of this host such as 127.0.0.1 {why}"
                raise source.wrong(("server", door), wanted, str(address))
            if address in seen:
                raise source.wrong(("server", door), "another address than the other door has", str(address))
            seen.add(address)


def _check_proxy(config: ServerConfig, source: SettingsSource) -> None:
    proxy = ("trusted_header", "trusted_proxies", "people")
    given = [name for name in proxy if getattr(config, name)]
    if given and (missing := [name for name in proxy if name not in given]):
        raise source.wrong(("server", given[0]), f"{' and '.join(missing)} as well", str(getattr(config, given[0])))


def absolute_paths(addresses: tuple[ListenAddress, ...], home: Path) -> tuple[ListenAddress, ...]:
    """The addresses, with absolute paths of unix sockets; relative ones start at `home`."""
    return tuple(replace(one, path=str(home / one.path)) if one.path else one for one in addresses)


def resolve_server(config: ServerConfig, home: Path) -> ServerConfig:
    """With absolute paths; relative ones start at `home`."""
    return replace(
        config,
        http=absolute_paths(config.http, home),
        beanstalk=absolute_paths(config.beanstalk, home),
        tokens=config.tokens and home / config.tokens,
        passwords=config.passwords and home / config.passwords,
        people=config.people and home / config.people,
        certificate=config.certificate and home / config.certificate,
        key=config.key and home / config.key,
        client_ca=config.client_ca and home / config.client_ca,
    )
