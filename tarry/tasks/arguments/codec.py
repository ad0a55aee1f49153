"""Arguments and results as JSON, checked against the task's signature at enqueue and again at run. Never pickle.

A body is a JSON array of the positional arguments. If the call named some, it is an object by parameter name; values
for `*rest` are under `"*"`. Those of `**extra` stand beside the others, but for such as have the name of a
positional-only parameter, or `*`: these are in an object under `"**"`. A client in any language can write either.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from inspect import Parameter
from operator import contains
from typing import Any

import msgspec
from msgspec.structs import asdict, astuple

from tarry.errors import ArgumentError, ValueSealed
from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE, explain, is_sealed, token_of
from tarry.model.job import Job
from tarry.tasks.arguments import argument_errors, json_values
from tarry.tasks.arguments.signature import EXTRA, REST, TaskSignature, bind

Arguments = tuple[Sequence[Any], Mapping[str, Any]]
LATER = object()
"""Stands for an argument that is not known yet: the result of a node of a flow."""


class Codec:
    """Encodes and decodes the arguments and results of one task."""

    def __init__(self, task: str, fn: Callable[..., Any]) -> None:
        self._signature = TaskSignature(task, fn)

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """The body of a call; ArgumentError, with the argument's name, if it does not fit or cannot be JSON."""
        signature = self._signature
        try:
            if not kwargs:
                required, kinds = signature.exact_types
                content: Any = args
                values: Sequence[Any] = args
                is_sure = required <= len(args) <= len(kinds)
            elif signature.is_simple:
                # The struct takes arguments just as the function does, and much faster than inspect can bind them.
                content = signature.object_type(*args, **kwargs)
                values, kinds, is_sure = astuple(content), signature.object_exact_types, True
            else:
                content, values, kinds, is_sure = signature.bind_by_name(args, kwargs), (), [], False
            body = json_values.encode(content)
            # These types are sure to fit and to come back the same, so there is no need to decode the body.
            if is_sure and all(map(contains, kinds, map(type, values))):
                return body
            self.decode(body)
            if not is_sure or any(kind and type(value) not in kind for value, kind in zip(values, kinds, strict=False)):
                self._check_types(args, kwargs)
        except argument_errors.CAUSES as error:
            raise argument_errors.call_error(signature, error, args, kwargs) from None
        return body

    def encode_around(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[bytes, Mapping[int | str, int | str]]:
        """`encode` for a call with LATER among its arguments: `null` stands for these. Also gives where each argument
        is in the body, by where it is in the call; those that are not there have the same place."""
        signature = self._signature
        try:
            content = signature.bind_by_name(args, kwargs)
            for parameter, name, value in signature.iterate_values(args, kwargs):
                if value is not LATER:
                    self._check_one(parameter, name, value)
        except argument_errors.CAUSES as error:
            raise argument_errors.call_error(
                signature, error, *(_without_later(each) for each in (args, kwargs))
            ) from None
        if not kwargs:
            return json_values.encode(_without_later(args)), {}
        for name, values in ((REST, content.get(REST, ())), (EXTRA, content.get(EXTRA, {}).values())):
            if any(value is LATER for value in values):
                where = f"{signature.task}({signature.shown_name(name)})"
                raise ArgumentError(f"{where}: a result here needs a call without names")
        return json_values.encode(_without_later(content)), dict(enumerate(content))

    def fits(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether no argument is missing, and none is too many; their values are not looked at."""
        try:
            bind(self._signature.signature, args, kwargs)
        except TypeError:
            return False
        return True

    def argument(self, place: int | str) -> str:
        """An argument of a call, by its position or name, as messages name it."""
        name = argument_errors.name_at(self._signature, place) if isinstance(place, int) else place
        return f"{self._signature.task}({name})"

    def decode(self, body: bytes) -> Arguments:
        """The arguments in a body, of the annotated types; ArgumentError if they do not fit, ValueSealed."""
        # No encoder begins with a space, so this is all that it costs the others.
        if body[:1] == b" ":
            refuse_sealed(body, f"the arguments of {self._signature.task}")
        try:
            # Other clients may write white space first.
            if body[:1] == b"[" or body.lstrip()[:1] == b"[":
                return self._decode_array(body), {}
            return self._decode_object(body)
        except ArgumentError:
            raise
        except (*UNREADABLE, TypeError) as error:
            raise argument_errors.body_error(self._signature, error) from None

    def encode_result(self, value: Any) -> bytes:
        """The result as JSON; TypeError or ValueError if it cannot be JSON."""
        return json_values.encode(value)

    def decode_result(self, note: bytes) -> Any:
        """The result, of the type of the return annotation; plain JSON data if the function returned another type.
        ValueSealed."""
        if note[:1] == b" ":
            refuse_sealed(note, f"the result of {self._signature.task}")
        # A result that does not fit its annotation is no reason to lose it: the job is done.
        try:
            return self._result.decode(note)
        except msgspec.ValidationError:
            return msgspec.json.decode(note)

    @cached_property
    def _array(self) -> msgspec.json.Decoder[Any]:
        # An array has no names, so it can never give a keyword-only argument.
        needed = [parameter for parameter in self._signature.keyword_only if parameter.default is Parameter.empty]
        if needed:
            raise ValueError(f"missing a required argument: {needed[0].name!r}")
        return json_values.decoder(self._signature.array_type)

    @cached_property
    def _object(self) -> msgspec.json.Decoder[Any]:
        return json_values.decoder(self._signature.object_type)

    @cached_property
    def _result(self) -> msgspec.json.Decoder[Any]:
        try:
            return json_values.decoder(self._signature.result_type)
        except TypeError:
            # The annotation cannot be read from JSON: people then get plain data.
            return json_values.decoder(Any)

    def _decode_array(self, body: bytes) -> tuple[Any, ...]:
        if self._signature.rest_name:
            return self._decode_with_rest(decode_json(body, list[msgspec.Raw]))
        values = astuple(self._array.decode(body))
        return tuple(v for v in values if v is not msgspec.UNSET) if self._signature.has_defaults else values

    def _decode_with_rest(self, raw: list[msgspec.Raw]) -> tuple[Any, ...]:
        types = [self._signature.type_of(parameter) for parameter in self._signature.positional]
        types += [self._signature.rest_type] * (len(raw) - len(types))
        pairs = enumerate(zip(raw, types, strict=False))
        values = tuple(
            self._decode_one(item, kind, argument_errors.name_at(self._signature, index))
            for index, (item, kind) in pairs
        )
        # Only for its error: here no struct checks whether arguments are missing.
        self._signature.signature.bind(*values)
        return values

    def _decode_object(self, body: bytes) -> Arguments:
        found = asdict(self._object.decode(body))
        rest = found.pop(self._signature.rest_field) if self._signature.rest_name else []
        given = {name: value for name, value in found.items() if value is not msgspec.UNSET}
        if self._signature.is_simple:
            return [], given
        extra = self._decode_extra(body)
        args = [given.pop(p.name) for p in self._signature.of_kind(Parameter.POSITIONAL_ONLY) if p.name in given]
        if rest:
            # Python takes values for `*rest` only after all positional ones, so these cannot go by name.
            before = self._signature.of_kind(Parameter.POSITIONAL_OR_KEYWORD)
            args += [given.pop(p.name, p.default) for p in before] + rest
        return args, given | extra

    def _decode_extra(self, body: bytes) -> dict[str, Any]:
        """The arguments for `**extra`."""
        extra = self._signature.of_kind(Parameter.VAR_KEYWORD)
        if not extra:
            return {}
        raw = decode_json(body, dict[str, msgspec.Raw])
        plain = {name: value for name, value in raw.items() if name not in self._signature.object_names}
        if bytes(plain.get(EXTRA, b""))[:1] == b"{":
            plain |= decode_json(plain.pop(EXTRA), dict[str, msgspec.Raw])
        kind = self._signature.type_of(extra[0])
        return {name: self._decode_one(value, kind, name) for name, value in plain.items()}

    def _decode_one(self, raw: msgspec.Raw, kind: Any, name: str) -> Any:
        """Decodes one argument whose type is not part of a struct type."""
        try:
            return json_values.decoder(kind).decode(raw)
        except msgspec.ValidationError as error:
            raise argument_errors.value_error(self._signature, error, name) from None

    def _check_one(self, parameter: Parameter, name: str, value: Any) -> None:
        """ArgumentError or another of `argument_errors.CAUSES` if this value does not fit, or cannot be JSON."""
        self._decode_one(msgspec.Raw(json_values.encode(value)), self._signature.type_of(parameter), name)
        self._check_type(parameter, name, value)

    def _check_types(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """ArgumentError for a value that would come back as another type."""
        for parameter, name, value in self._signature.iterate_values(args, kwargs):
            self._check_type(parameter, name, value)

    def _check_type(self, parameter: Parameter, name: str, value: Any) -> None:
        # Bytes, datetimes and the like are text in JSON. Annotated as text, or not at all, they come back as text.
        kinds = json_values.exact_types(self._signature.type_of(parameter))
        if parameter.name in self._signature.unannotated:
            if not json_values.survives_json(value):
                raise argument_errors.unannotated_error(self._signature, name, value)
        elif kinds and not json_values.is_one_of(value, kinds):
            raise argument_errors.type_error(self._signature, name, value, kinds)


def refuse_sealed(value: bytes, what: str) -> None:
    """ValueSealed if this process cannot open the value. what: names it."""
    if is_sealed(value):
        raise ValueSealed(f"{what} is {explain(token_of(value))}")


def plain_result(job: Job) -> Any:
    """The result of a job of a task that this process does not have, as plain JSON data; ValueSealed."""
    refuse_sealed(job.note, f"the result of {job.task}")
    return msgspec.json.decode(job.note or b"null")


def _without_later(arguments: Any) -> Any:
    """The arguments, with None for each that is not known yet."""
    if isinstance(arguments, Mapping):
        return {name: None if value is LATER else value for name, value in arguments.items()}
    return [None if value is LATER else value for value in arguments]
