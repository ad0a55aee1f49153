"""Arguments that are results of other nodes of a flow: they are known only once those nodes have run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from tarry.errors import ArgumentError
from tarry.model.flow.wiring import Ref, Take
from tarry.tasks.arguments.codec import LATER, Codec

_NO_KWARGS: Mapping[str, Any] = {}


class NodeResult:
    """The result of a node, before the node has run. It may be an argument of another node, or an element of a list
    that is one. Whoever looks into it gets an ArgumentError.

    flow: what all nodes of one flow have in common. refs: where it will be; several are parts of one list, none is the
    empty list. waits: other nodes that must have ended before it may be used.
    """

    __slots__ = ("flow", "refs", "waits")

    def __init__(self, flow: object, refs: tuple[Ref, ...], waits: tuple[Ref, ...] = ()) -> None:
        self.flow, self.refs, self.waits = flow, refs, waits

    @property
    def is_list(self) -> bool:
        """Whether it is the list of the results of many nodes."""
        return not self.refs or self.refs[0].count != 0

    def __repr__(self) -> str:
        return f"<result of node {self.refs[0].first}>" if self.refs else "<result of no node>"

    def _refuse(self, *args: object) -> NoReturn:
        """Raises: code such as `limit_by=` cannot work with a value that is not there yet."""
        raise ArgumentError(f"{self!r} is not known before that node has run")

    __str__ = __format__ = __bool__ = __len__ = __iter__ = __int__ = __index__ = __getitem__ = _refuse
    __eq__ = __hash__ = _refuse

    def __getattr__(self, name: str) -> NoReturn:
        # Python and its library ask for names like these to find out what an object can do.
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()


def results_in(args: Sequence[Any], kwargs: Mapping[str, Any] = _NO_KWARGS) -> Iterator[NodeResult]:
    """All results among the arguments of a call, also those in lists."""
    for value in (*args, *kwargs.values()):
        if type(value) is NodeResult:
            yield value
        elif type(value) in (list, tuple):
            yield from (each for each in value if type(each) is NodeResult)


def encode_with_results(codec: Codec, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[bytes, tuple[Take, ...]]:
    """The body of a call, and which of its arguments are results: `null` stands in their place. ArgumentError."""
    taken: dict[int | str, list[Ref]] = {}
    known = [_known(codec, at, value, taken) for at, value in enumerate(args)]
    named = {name: _known(codec, name, value, taken) for name, value in kwargs.items()}
    if not taken:
        return codec.encode(known, named), ()
    body, names = codec.encode_around(known, named)
    return body, tuple(Take(names.get(place, place), ref) for place, refs in taken.items() for ref in refs)


def _known(codec: Codec, place: int | str, value: Any, taken: dict[int | str, list[Ref]]) -> Any:
    """The argument, or LATER if it is a result; that is then noted in `taken`."""
    if type(value) is NodeResult:
        if not value.refs:
            return []
        taken[place] = [*value.refs]
        return LATER
    if type(value) not in (list, tuple) or not any(type(each) is NodeResult for each in value):
        return value
    if any(type(each) is not NodeResult or each.is_list for each in value):
        raise ArgumentError(f"{codec.argument(place)}: a list with results has nothing else in it, and no lists")
    taken[place] = as_list([each.refs[0].first for each in value])
    return LATER


def as_list(indices: Iterable[int]) -> list[Ref]:
    """The results of these nodes as a list, with those that follow each other in one Ref."""
    refs: list[Ref] = []
    for index in indices:
        if refs and refs[-1].first + refs[-1].count == index:
            refs[-1] = Ref(refs[-1].first, refs[-1].count + 1)
        else:
            refs.append(Ref(index, 1))
    return refs
