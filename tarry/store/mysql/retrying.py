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


class Repeats:
    """How often the same text came, one after the other."""

    def __init__(self) -> None:
        self._text, self._times = "", 0

    def count(self, text: str) -> int:
        self._times = self._times + 1 if text == self._text else 1
        self._text = text
        return self._times


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
        start, tries, links = time.monotonic(), 0, self._slow if slow else self._links
        same = Repeats()
        sent = False
        """Whether an earlier try may be done: its COMMIT was sent, and the answer was lost."""
        while True:
            lent: MysqlConnection | None = None
            tries += 1
            try:
                with links.lent() as lent:
                    return work(lent)
            except (Conflict, DuplicateKey) as conflict:
                if same.count(str(conflict)) >= _SAME_ROW and isinstance(conflict, DuplicateKey):
                    raise
                self._wait_for_turn(conflict, start, tries)
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

    def _wait_for_turn(self, conflict: Exception, start: float, tries: int) -> None:
        if isinstance(conflict, StaleSettings):
            self._known.forget()
        if time.monotonic() - start > self._address.timeout:
            raise errors.StoreBusy(
                f"{self._address.shown}: others were in the way for {self._address.timeout:g} s ({conflict}); is a"
                " transaction of your own open for long? See SHOW ENGINE INNODB STATUS"
            ) from None
        # The first try after these needs no pause: it goes another way, with new settings or with a look.
        if tries > 1 or not isinstance(conflict, StaleSettings | NotAsSeen | DuplicateKey):
            time.sleep(random.uniform(0.001, 0.02))

    def close(self) -> None:
        """Closes all connections; lent ones once they come back."""
        self._links.close()
        self._slow.close()
