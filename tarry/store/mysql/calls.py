"""How a call is made: on a connection that is lent for it, and again where that is safe and may help."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from tarry import errors
from tarry.store.mysql.address import Address
from tarry.store.mysql.errors import Conflict, Duplicate, Stale
from tarry.store.mysql.link import COMMIT, Link, Links
from tarry.store.mysql.settings import Known
from tarry.store.mysql.swift import Mistaken
from tarry.store.shared.uncertain import uncertain

A = TypeVar("A")
PEOPLE = 30.0
"""Seconds that an answer to people's questions, which may read all, may take, once it is known that the server answers
at all."""


class Calls:
    """Of one store. known: what is forgotten when the server says that it is not so any more."""

    def __init__(self, address: Address, known: Known) -> None:
        self._address, self._known = address, known
        self._links = Links(address, address.connections, address.timeout)
        self._slow = Links(address, 2, max(PEOPLE, address.timeout))

    def call(self, work: Callable[[Link], A], slow: bool = False, repeatable: bool = False) -> A:
        """Does it on a connection; again where somebody was in the way, or a connection had died unused.

        repeatable: again also where it may have been done already.
        """
        if slow:
            self.call(lambda link: link.run("DO 0"))
        start, tries, links = time.monotonic(), 0, self._slow if slow else self._links
        sent = False
        """An earlier try may have been done: it was to be committed, and its answer was lost."""
        while True:
            lent: Link | None = None
            tries += 1
            try:
                with links.lent() as lent:
                    return work(lent)
            except (Conflict, Duplicate) as conflict:
                self._wait_for_turn(conflict, start, tries)
            except errors.StoreUnavailable as error:
                links.drop_idle()
                again = lent is not None and lent.used and (repeatable or not lent.decided)
                if not again or time.monotonic() - start > 1:
                    raise (uncertain(error) if sent else error) from None
                sent = sent or (lent is not None and lent.decided)
            except errors.StoreError as error:
                raise (uncertain(error) if sent else error) from None

    def write(self, work: Callable[[Link], A]) -> A:
        """The same, as a transaction of its own."""

        def whole(link: Link) -> A:
            link.run("BEGIN")
            done = work(link)
            link.run(COMMIT)
            return done

        return self.call(whole)

    def _wait_for_turn(self, conflict: Exception, start: float, tries: int) -> None:
        if isinstance(conflict, Stale):
            self._known.forget()
        if time.monotonic() - start > self._address.timeout:
            raise errors.StoreBusy(
                f"{self._address.shown}: others were in the way for {self._address.timeout:g} s ({conflict}); is a"
                " transaction of your own open for long? See SHOW ENGINE INNODB STATUS"
            ) from None
        if tries > 1 or not isinstance(conflict, Stale | Mistaken | Duplicate):
            time.sleep(random.uniform(0.001, 0.02))

    def close(self) -> None:
        """All connections, once they come back."""
        self._links.close()
        self._slow.close()
