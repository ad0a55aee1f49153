"""Who asks for a page, and whether a form is of a page of ours."""

import asyncio
import contextlib
import hmac
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping

from starlette.requests import Request

from tarry import errors
from tarry.operate.access import Caller, Scope
from tarry.operate.problem import RequestError
from tarry.server.console.act import MOST_FORM, Form, read_form, without_empty
from tarry.server.console.sign_in_session import (
    COOKIE,
    ConsoleSession,
    EndedSessions,
    Sessions,
    end_session,
    read_ended,
    read_secret,
)
from tarry.server.http.request_log import write_act
from tarry.server.http.request_reader import header, read_body
from tarry.server.identity.sign_in_tries import network_of
from tarry.server.service import DoorService

SECRET_KEPT = 60.0
"""Seconds after which the store's secret is read again: one that was emptied has another then."""
MOST_OWN_FORM = 2**14
"""Bytes of the forms that anybody may send: to sign in and out, to choose a language."""
ENDED_KEPT = 2.0
"""Seconds after which a stream sees that somebody has signed out of its session. A page looks at once."""
MOST_KNOWN = 1000
"""Tokens and passwords whose ended sessions are known without the store."""
MOST_IN_LINE, MOST_OF_ADDRESS = 16, 4
"""Passwords that wait to be looked at, one after another: in all, and of one address. Any more are told that the server
is busy."""
_AWAY = (errors.StoreError, errors.Busy, errors.Draining)


class SignIn:
    """Knows the callers of the console. read_only: nobody may do more than look. clock: monotonic seconds."""

    def __init__(self, service: DoorService, read_only: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._service, self.read_only, self._clock = service, read_only, clock
        self._sessions: Sessions | None = None
        self._read_at = 0.0
        self._ended: OrderedDict[str, tuple[float, EndedSessions]] = OrderedDict()
        """By the token or password: when they were read, and which they are."""
        # One at a time: each takes a tenth of a second of a processor, and 32 MB.
        self._line = asyncio.Semaphore(1)
        self._in_line: Counter[str] = Counter()
        """How many of each address wait for their turn, or have it."""

    @property
    def is_needed(self) -> bool:
        """Whether a reader has to sign in."""
        return self._service.access.needs_token

    async def caller(self, request: Request, kept_for: float = 0.0) -> Caller:
        """Who asks, and may look; NotAuthenticated if nobody is signed in who has to be, NotAllowed. kept_for: for so
        many seconds a look whether the session was signed out of counts."""
        if (person := self.person(request)) is not None:
            person.check(Scope.READ)
            return person
        if self.is_needed:
            session = (await self.sessions()).read(request.cookies.get(COOKIE, ""))
            if session is not None:
                await self._look_for_end(session, kept_for)
        found = self.known_caller(request)
        if found is None:
            raise errors.NotAuthenticated("sign in first")
        found.check(Scope.READ)
        return found

    def person(self, request: Request) -> Caller | None:
        """Whom a proxy has signed in, whatever session there is; None: nobody. NotAuthenticated, NotAllowed."""
        return self._service.access.person(request.headers, address_of(request))

    def known_caller(self, request: Request) -> Caller | None:
        """Who asks, whatever the caller may do; None: nobody is signed in, as far as is known without the store."""
        try:
            if (person := self.person(request)) is not None:
                return person
        except (errors.NotAuthenticated, errors.NotAllowed):
            return None
        if not self.is_needed:
            return self._service.access.caller({}, address_of(request))
        session = None if self._sessions is None else self._sessions.read(request.cookies.get(COOKIE, ""))
        if self._sessions is None or session is None or self._known_ended(session).has(session):
            return None
        return self._sessions.caller(session)

    async def may_go_on(self, request: Request, caller: Caller) -> bool:
        """Whether a stream of this caller is to go on: the session is not over, and its token or password is as it
        was."""
        try:
            return await self.caller(request, ENDED_KEPT) is caller
        except (errors.NotAuthenticated, errors.NotAllowed):
            return False

    async def close(self, request: Request) -> None:
        """Ends the session of this request, wherever its cookie was copied to; StoreError: it may go on."""
        session = (await self.sessions()).read(request.cookies.get(COOKIE, "")) if self.is_needed else None
        if session is not None:
            await self._service.run(lambda: end_session(self._service.client.store, session, time.time()))

    def _known_ended(self, session: ConsoleSession) -> EndedSessions:
        return self._ended.get(session.entry, (0.0, EndedSessions()))[1]

    async def _look_for_end(self, session: ConsoleSession, kept_for: float) -> None:
        """Reads which sessions were signed out of, unless that was done within so many seconds."""
        read_at, _ = self._ended.get(session.entry, (0.0, None))
        if read_at and self._clock() - read_at < kept_for:
            return
        # What is known stays so while the store is away.
        with contextlib.suppress(*_AWAY):
            ended = await self._service.run(lambda: read_ended(self._service.client.store, session.entry))
            self._ended[session.entry] = self._clock(), ended
            self._ended.move_to_end(session.entry)
        if len(self._ended) > MOST_KNOWN:
            self._ended.popitem(last=False)

    @property
    def takes(self) -> Mapping[str, bool]:
        """What a reader may sign in with: `token`, `password`."""
        access = self._service.access
        return {"token": access.takes_tokens, "password": access.takes_passwords}

    async def open(self, request: Request, form: Mapping[str, str]) -> str:
        """The cookie of a new session for whoever has this token, or this name and password; NotAuthenticated,
        NotAllowed, RateExceeded, Busy."""
        address = address_of(request)
        try:
            found = await self._find(form, address)
            found.check(Scope.READ)
        except errors.TarryError as error:
            if type(error) is errors.Busy:
                # Nobody was looked at, and such answers may be many.
                raise
            # A token has 256 random bits, so that guesses need no limit; but whoever runs the server sees them.
            write_act(self._service, "", address, "sign_in", f"{type(error).__name__}: {error}")
            raise
        cookie = (await self.sessions()).open(found.entry)
        write_act(self._service, found.name, address, "sign_in", "done")
        return cookie

    async def _find(self, form: Mapping[str, str], address: str) -> Caller:
        access = self._service.access
        if "password" not in form:
            return access.caller({"authorization": f"Bearer {form.get('token', '')}"}, address)
        network = network_of(address)
        is_of_many = bool(network) and self._in_line[network] >= MOST_OF_ADDRESS
        if is_of_many or self._in_line.total() >= MOST_IN_LINE:
            raise errors.Busy("too many people sign in at this moment: try again")
        self._in_line[network] += 1
        try:
            async with self._line:
                return await self._service.run(access.sign_in, form.get("name", ""), form["password"], address)
        finally:
            # Else every address that ever came would stay in memory.
            self._in_line -= Counter((network,))

    async def read_form(self, request: Request) -> Form:
        """The form of a page of ours; RequestError."""
        check_form_origin(request)
        form = read_form(await read_body(request, MOST_FORM))
        proof = await self.form_proof(request)
        if not hmac.compare_digest(dict(form).get("csrf", "").encode(), proof.encode()):
            raise RequestError("this form is of an earlier session: load the page again", "csrf", 403)
        return form

    async def form_proof(self, request: Request) -> str:
        """What each form of this session carries; StoreError."""
        person, sessions = self.person(request), await self.sessions()
        if person is not None:
            return sessions.person_proof(person.entry)
        return sessions.form_proof(request.cookies.get(COOKIE, ""))

    def may(self, caller: Caller | None, scope: str) -> bool:
        """Whether a page is to offer what needs this scope."""
        if caller is None or self.read_only:
            return False
        try:
            caller.check(Scope(scope))
        except errors.NotAllowed:
            return False
        return True

    async def sessions(self) -> Sessions:
        """Those of the store's secret, which is read at the first use, and now and then; StoreError."""
        if self._sessions is None or self._clock() - self._read_at >= SECRET_KEPT:
            try:
                secret = await self._service.run(lambda: read_secret(self._service.client.store))
                self._sessions = Sessions(self._service.access, secret)
            except _AWAY:
                # Who is signed in stays so while the store is away.
                if self._sessions is None:
                    raise
            self._read_at = self._clock()
        return self._sessions


async def read_own_form(request: Request) -> Form:
    """A form that needs no session; RequestError."""
    check_form_origin(request)
    return without_empty(read_form(await read_body(request, MOST_OWN_FORM)))


def check_form_origin(request: Request) -> None:
    """RequestError if a form does not come from a page of this very server."""
    # Every browser says where a form comes from; who does not is no browser, and has the API.
    origin = header(request, b"origin") or ""
    if origin.partition("://")[2] != header(request, b"host"):
        raise RequestError("this form comes from another site", None, 403)


def address_of(request: Request) -> str:
    """The address of the client; empty: it came by a unix socket."""
    return request.client.host if request.client else ""


def local_path(form: Mapping[str, str] | Form, name: str = "next") -> str:
    """The page of the console that this field names; the first page for anything else."""
    where = dict(form).get(name, "")
    # `//host` and `/\host` are other hosts to a browser.
    if not where.startswith("/") or where[1:2] in ("/", "\\") or not where.isprintable():
        return "/"
    return where
