"""Who else on this host can reach a door that asks for no token."""

import os
import pwd
from collections.abc import Iterable, Sequence

from tarry.model.listen_address import ListenAddress

_FIRST, _LAST = 1000, 60_000
"""Numbers of people's accounts, as Debian and Red Hat give them; those below are of the system's services."""
_NO_LOGIN = ("nologin", "false", "sync")


def other_users(accounts: Iterable[pwd.struct_passwd] | None = None) -> list[str]:
    """The names of the people besides the caller who may log in to this host."""
    found = pwd.getpwall() if accounts is None else accounts
    return [
        account.pw_name
        for account in found
        if _FIRST <= account.pw_uid < _LAST and account.pw_uid != os.geteuid() and _may_log_in(account)
    ]


def _may_log_in(account: pwd.struct_passwd) -> bool:
    return os.path.basename(account.pw_shell) not in _NO_LOGIN


def open_door_advice(addresses: Sequence[ListenAddress], way_out: str, others: Sequence[str]) -> str:
    """What to change about a door that asks for no token; empty: nobody else on this host can use it. way_out: how to
    shut it."""
    reached = [str(address) for address in addresses if not address.path]
    if not reached or not others:
        return ""
    named = ", ".join([*others[:3], *(["..."] if len(others) > 3 else [])])
    return f"every user of this host ({named}) can use {reached[0]}: {way_out}"
