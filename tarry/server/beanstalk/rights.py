"""What a connection may do where `[server] beanstalk_auth` is on: an extension of the protocol, `auth TOKEN`.

The token's scopes, queues and tasks hold for each command. It is looked up anew each time: once it is revoked, the next
command is refused; its rate counts commands.
"""

from collections.abc import Callable

from tarry.errors import NotAllowed, NotAuthenticated, TarryError
from tarry.model.change import Change
from tarry.model.job import Job
from tarry.operate.access import ANYONE, Caller, Scope
from tarry.server.beanstalk import replies
from tarry.server.beanstalk.command_parser import Command
from tarry.server.beanstalk.job_mapping import TASK
from tarry.server.claim_requests import Rule
from tarry.server.identity.access import DoorAccess, is_as_before

_FREE = frozenset({"auth", "quit", "browser"})
_SCOPES = {
    "put": Scope.PUT,
    **dict.fromkeys(("reserve", "reserve-with-timeout", "reserve-job", "release", "bury", "touch"), Scope.TAKE),
    **dict.fromkeys(("kick", "kick-job", "pause-tube"), Scope.OPERATE),
    **dict.fromkeys(("peek", "peek-ready", "peek-delayed", "peek-buried"), Scope.READ),
    **dict.fromkeys(("stats", "stats-job", "stats-tube", "list-tubes"), Scope.READ),
}
_OF_USED = frozenset({"put", "kick", "peek-ready", "peek-delayed", "peek-buried"})
_OF_NAMED = frozenset({"stats-tube", "pause-tube"})


class Rights:
    """Of one connection. access: knows the tokens; None: anybody may do everything."""

    def __init__(self, access: DoorAccess | None, address: str) -> None:
        self._access, self._address = access, address
        self._headers: dict[str, str] = {}
        self._caller: Caller = ANYONE

    @property
    def name(self) -> str:
        """Of its token; empty: it needs none, or has sent none."""
        return self._caller.name

    def authenticate(self, token: bytes) -> bytes:
        """The reply to `auth`."""
        if self._access is None:
            return replies.UNKNOWN_COMMAND
        self._headers = {"authorization": f"Bearer {token.decode('latin-1')}"}
        return self._look_up() or replies.AUTHORIZED

    def refusal(self, command: Command, used: str, watched: list[str]) -> bytes | None:
        """The reply to a command that the connection may not do; None: it may. used, watched: its tubes."""
        if self._access is None or command.verb in _FREE:
            return None
        return self._look_up() or self._check(command, used, watched)

    def allows(self, scope: Scope, queue: str) -> bool:
        """Whether it may do that with that tube."""
        return self._caller.allows(scope, queue)

    def refusal_after_wait(self, scope: Scope, queue: str) -> bytes | None:
        """As `refusal`, once a command has waited for a job of that tube: the token may have been revoked meanwhile."""
        if self._access is None:
            return None
        refused = None if is_as_before(self._access, self._caller) else self._look_up()
        return refused or (None if self.allows(scope, queue) else replies.NOT_AUTHORIZED)

    def guard(self, scope: Scope, rule: Rule) -> Rule:
        """The rule, for jobs of tubes with which it may do that; for any other there is no such job."""

        def guarded(job: Job, now: int) -> Change:
            if not self.allows(scope, job.queue):
                raise LookupError(job.queue)
            return rule(job, now)

        return guarded

    def guard_tube(self, scope: Scope) -> Callable[[str], bool]:
        """Whether it may do that with a tube, as a function."""
        return lambda queue: self.allows(scope, queue)

    def _look_up(self) -> bytes | None:
        assert self._access is not None
        return _refusal(self._find)

    def _find(self) -> None:
        assert self._access is not None
        self._caller = self._access.caller(self._headers, self._address)

    def _check(self, command: Command, used: str, watched: list[str]) -> bytes | None:
        verb, scope = command.verb, _SCOPES.get(command.verb)
        if scope is None:
            return None
        if verb in ("reserve", "reserve-with-timeout"):
            return None if any(self.allows(scope, tube) for tube in watched) else replies.NOT_AUTHORIZED
        queue = used if verb in _OF_USED else command.tube if verb in _OF_NAMED else "*" if verb == "stats" else None

        def check() -> None:
            self._caller.check(scope, queue)
            if verb == "put":
                self._caller.check_task(TASK, used)

        return _refusal(check)


def _refusal(check: Callable[[], None]) -> bytes | None:
    try:
        check()
    except (NotAllowed, NotAuthenticated):
        return replies.NOT_AUTHORIZED
    except TarryError:
        # It calls too often: clients try that again.
        return replies.OUT_OF_MEMORY
    return None
