"""Makes calls: on a connection that is lent for the call, and again where that is safe and may help."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from tarry import errors
from tarry.store.mysql.link.address import Address
from tarry.store.mysql.link.connection import COMMIT, MysqlConnection, MysqlPool
from tarry.store.mysql.link.mysql_errors import Conflict, Denied, DuplicateKey, NotAsSeen, StaleSettings
from tarry.store.mysql.settings import SettingsCache
from tarry.store.shared.uncertain import uncertain

A = TypeVar("A")
# Such questions may read all jobs.
PEOPLE = 30.0
"""Seconds that an answer to people's questions may take, once it is known that the server answers at all."""
_SAME_ROW = 8
"""After so many tries the row that is in the way is nobody's who is at work, but one that stays."""


_ANOTHER_WAY = (StaleSettings, NotAsSeen, DuplicateKey)
"""After these the next try goes another way, with new settings or with a look, and needs nobody to make room."""


class Conflicts:
    """The conflicts of one call. limit: seconds from its start for which others may be in the way."""

    def __init__(self, limit: float) -> None:
        self._start, self._limit = time.monotonic(), limit
        self.seconds = 0.0
        """From the start to the last conflict."""
        self._count, self._same, self._was_late, self._text = 0, 0, False, ""

    def is_to_stay(self, conflict: Exception) -> bool:
        """Whether the same row was in the way of so many tries that it will stay."""
        self._same = self._same + 1 if str(conflict) == self._text else 1
        self._text = str(conflict)
        return self._same >= _SAME_ROW and isinstance(conflict, DuplicateKey)

    def wait(self, conflict: Exception) -> bool:
        """Waits before the next try. False: there is no time for one."""
        self._count, self.seconds = self._count + 1, time.monotonic() - self._start
        is_late, goes_another_way = self.seconds > self._limit, isinstance(conflict, _ANOTHER_WAY)
        # A late one, too, has one more try: most of the time may have gone by in a wait for one lock.
        if is_late and (self._was_late or not goes_another_way):
            return False
        self._was_late = is_late
        if self._count > 1 or not goes_another_way:
            time.sleep(random.uniform(0.001, 0.02))
        return True


class Calls:
    """The calls of one store. known: the settings, forgotten when the server says that they have changed."""

    def __init__(self, address: Address, known: SettingsCache) -> None:
        self._address, self._known = address, known
        self._links = MysqlPool(address, address.connections, address.timeout)
        self._slow = MysqlPool(address, 2, max(PEOPLE, address.timeout))
        self.is_open = False
        """Once the store is open, a login that is refused is an outage as any other."""

    def call(self, work: Callable[[MysqlConnection], A], slow: bool = False, repeatable: bool = False) -> A:
        """Does the work on a connection; again after a conflict, or if a connection had died while it was idle.

        repeatable: again even if the work may be done already. DuplicateKey: the same row is in the way of each try.
        """
        # A server that does not answer is noticed after the usual limit, not only after PEOPLE.
        if slow:
            self.call(lambda link: link.run("DO 0"))
        start, links = time.monotonic(), self._slow if slow else self._links
        conflicts = Conflicts(self._address.timeout)
        sent = False
        """Whether an earlier try may be done: its COMMIT was sent, and the answer was lost."""
        while True:
            lent: MysqlConnection | None = None
            try:
                with links.lent() as lent:
                    return work(lent)
            except (Conflict, DuplicateKey) as conflict:
                if conflicts.is_to_stay(conflict):
                    raise
                self._prepare_next_try(conflict, conflicts)
            except errors.StoreUnavailable as error:
                # What broke this connection, such as a restart of the server, may have broken the idle ones too.
                links.drop_idle()
                again = lent is not None and lent.used and (repeatable or not lent.decided)
                if not again or time.monotonic() - start > 1:
                    away = errors.StoreAway(str(error)) if self.is_open and isinstance(error, Denied) else error
                    raise (uncertain(away) if sent else away) from None
                sent = sent or (lent is not None and lent.decided)
            except errors.StoreError as error:
                raise (uncertain(error) if sent else error) from None

    def write(self, work: Callable[[MysqlConnection], A]) -> A:
        """As `call`, within a transaction of its own."""

        def whole(link: MysqlConnection) -> A:
            link.run("BEGIN")
            done = work(link)
            link.run(COMMIT)
            return done

        return self.call(whole)

    def _prepare_next_try(self, conflict: Exception, conflicts: Conflicts) -> None:
        if isinstance(conflict, StaleSettings):
            self._known.forget()
        if not conflicts.wait(conflict):
            raise errors.StoreBusy(
                f"{self._address.shown}: others were in the way for {conflicts.seconds:.1f} s ({conflict}); is a"
                " transaction of your own open for long? See SHOW ENGINE INNODB STATUS"
            ) from None

    def close(self) -> None:
        """Closes all connections; lent ones once they come back."""
        self._links.close()
        self._slow.close()
