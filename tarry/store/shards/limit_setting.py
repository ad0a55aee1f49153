"""Sets a limit on several stores, each of which gets a share of it, and says which has which."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tarry.errors import StoreBusy, StoreError
from tarry.model.duration import SECOND
from tarry.model.limit import Level, Limit
from tarry.store.rules.base import Diagnostic, ShareChange, Store
from tarry.store.shards import shares
from tarry.store.shards.answers import ShardAnswers, ask_shards, present
from tarry.store.shards.shard import Shard

_TRIES = 100


def set_shares(shards: Sequence[Shard], name: str, limit: Limit, now: int) -> ShardAnswers[None]:
    """Sets the limit; no moment sees more than it allows. What is missing at first, the mover of shares gives."""
    numbers = present(shards)
    found = ask_shards(shards, numbers, lambda _, store: store.limits().get(name))
    # Later than the last one also where the clock was set back.
    set_at = max([now, *(shares.set_at_of(had[0]) + 1 for had in found.values() if had is not None)])
    # With an end: a store that is away before anybody moves shares must not come back with more than is left.
    first = shares.first_shares(limit, len(shards), now + shares.LASTS, set_at)
    none = shares.share_of(limit, None if limit.most is None else 0, 0, now + shares.LASTS, set_at)
    answers: ShardAnswers[None] = ShardAnswers()
    answers.errors |= found.errors

    def set_one(number: int, store: Store) -> None:
        if found[number] is None:
            # Others may have all of it by now.
            store.limit(name, none)
        else:
            _change(store, name, first[number], none, now)

    answers.add(ask_shards(shards, found, set_one))
    if not any(found.values()):
        answers.errors |= _give_first(shards, name, none, {number: first[number] for number in answers}, now)
    return answers


def _change(store: Store, name: str, first: Limit, none: Limit, now: int) -> None:
    """Makes the share in a store one of this limit. first, none: an equal part of it, and nothing."""
    for _ in range(_TRIES):
        was = store.limits().get(name)
        if was is None:
            # Somebody has just lifted it.
            store.limit(name, none)
            return
        share = shares.with_whole(was[0], first.whole, first)
        if store.change_shares([ShareChange(name, was[0], share)], now)[0]:
            return
    raise StoreBusy(f"limit {name}: others changed it {_TRIES} times in a row; set it again")


def _give_first(
    shards: Sequence[Shard], name: str, none: Limit, first: Mapping[int, Limit], now: int
) -> dict[int, StoreError]:
    """Raises the shares of a new limit from nothing, unless others have changed them since. Answers the errors."""
    # Another one may have set it meanwhile, too: what runs under its shares counts.
    levels = ask_shards(shards, first, lambda _, store: store.levels([name])[0])
    if levels.errors:
        return levels.errors
    wanted = [shares.most_of(first[number]) or 0 for number in levels]
    held = [level.running for level in levels.values()]
    raised = shares.raise_towards(none.whole.most or 0, held, [0] * len(held), wanted)
    most = dict(zip(levels, raised, strict=True))
    is_fresh = all(shares.is_fresh(level, none.period, now) for level in levels.values())

    def give(number: int, store: Store) -> list[bool]:
        share = replace(first[number], most=first[number].most and most[number])
        return store.change_shares([ShareChange(name, none, share, 0 if is_fresh else share.count)], now)

    return ask_shards(shards, levels, give).errors


def describe_shares(shards: Sequence[Shard], now: int) -> list[Diagnostic]:
    """A line of `tarry check` for each limit that the stores share: who may start how much of it, and until when."""
    found = ask_shards(shards, present(shards), lambda _, store: store.limits())
    names = sorted({name for part in found.values() for name, (limit, _) in part.items() if limit.share})
    return [
        _describe(name, {shards[number].url: part[name] for number, part in found.items() if name in part}, now)
        for name in names
    ]


def _describe(name: str, parts: Mapping[str, tuple[Limit, Level]], now: int) -> Diagnostic:
    whole = next(iter(parts.values()))[0].whole
    texts = [f"{url} {_text(limit, now)}, {level.running} running" for url, (limit, level) in parts.items()]
    has_ended = any(limit.is_over(now) for limit, _ in parts.values())
    advice = "no keeper prolongs what has ended: is a master running?" if has_ended else ""
    return Diagnostic(f"limit {name}", f"{whole}, shared: {'; '.join(texts)}", advice)


def _text(limit: Limit, now: int) -> str:
    if limit.is_over(now):
        return "ended"
    until = limit.share.until if limit.share else 0
    numbers = str(replace(limit, share=None))
    return f"{numbers} for {(until - now) / SECOND:.0f} s" if until else numbers
