"""What people do to groups of errors."""

from collections.abc import Callable, Mapping

from tarry.errors import ErrorGroupNotFound, StoreBusy
from tarry.store.rules.history.error_groups import ErrorGroup, decode_group, encode_group
from tarry.store.rules.history.history import StoreHistory
from tarry.store.rules.history.sums import Place

_TRIES = 20
"""How often a change is tried while keepers sum up."""


def mute_group(history: StoreHistory, id: str, allows: Callable[[str], bool], is_muted: bool, is_for_all: bool) -> None:
    """Mutes a group in these queues, or ends that. is_for_all: they are all, and it is to be so too in those where such
    an error comes later. ErrorGroupNotFound, StoreError."""

    def mute(group: ErrorGroup) -> bytes:
        group.is_muted = is_muted
        group.is_muted_in_all = is_muted and (is_for_all or group.is_muted_in_all)
        return encode_group(group)

    _change(history, id, allows, mute)


def forget_group(history: StoreHistory, id: str, allows: Callable[[str], bool]) -> None:
    """Deletes a group in these queues: if such an error comes again, it is new. ErrorGroupNotFound, StoreError."""
    _change(history, id, allows, lambda _: b"")


def _change(
    history: StoreHistory, id: str, allows: Callable[[str], bool], change: Callable[[ErrorGroup], bytes]
) -> None:
    seen = False

    def change_all(there: Mapping[Place, bytes]) -> dict[Place, bytes]:
        nonlocal seen
        found = {place: cell for place, cell in there.items() if place.task == id and allows(place.queue)}
        seen = seen or bool(found)
        return {place: change(decode_group(cell)) for place, cell in found.items()}

    for _ in range(_TRIES):
        if history.change_errors(change_all):
            break
    else:
        raise StoreBusy(f"the errors {id} are unchanged: others changed the history each time; try again")
    if not seen:
        raise no_group(id)


def no_group(id: str) -> ErrorGroupNotFound:
    """The answer where there is no such group, or none that the caller may see."""
    return ErrorGroupNotFound(f"no errors {id}: there were none, or they were deleted, or the last one is a month ago")
