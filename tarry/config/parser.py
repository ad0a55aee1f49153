"""Reads settings from TOML and variables into Structs. Errors name the place and what to write instead.

A setting is a field whose type is annotated with a Kind; a section is a field that is a Struct, or a dict of Structs
by name. `async_` is written `async`. Fields of any other type are not settings.
"""

import json
import logging
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from tarry.errors import ConfigError
from tarry.model.checks.decoders import convert_to
from tarry.model.nearest import nearest
from tarry.platform import user_id

log = logging.getLogger("tarry.config")
PREFIX, SEPARATOR = "TARRY_", "__"
ROOT_UID = 0

Keys = tuple[str, ...]
S = TypeVar("S", bound=Struct)


def as_written(value: Any) -> Any:
    """The value, unchanged."""
    return value


class Kind(Struct, frozen=True):
    """How a setting is written."""

    expected: str
    """What an error message says after "expected"."""
    shape: Any
    """The type of the value in TOML, for msgspec."""
    parse: Callable[[Any], Any] = as_written
    """Makes the setting's value; ValueError if it cannot."""
    parse_variable: Callable[[str], Any] = as_written
    """Makes the TOML value from the text of a variable; ValueError if it cannot."""
    names: tuple[str, ...] = ()
    """Allowed words; an error suggests the nearest."""
    is_secret: bool = False
    """Whether it may have a password in it: errors do not show it."""
    table: type[Struct] | None = None
    """The settings of a table that may stand there instead."""

    def read(self, written: object) -> Any:
        """The value of a setting; ValueError or msgspec.ValidationError if the text is not as expected."""
        return self.parse(convert_to(self.shape, written))


class SettingsSource(Struct):
    """Where settings came from: the text of a file, and variables. within: the keys of tarry's table in the file."""

    shown: str = ""
    text: str = ""
    within: Keys = ()
    variables: dict[Keys, str] = {}

    def table(self) -> dict[str, Any]:
        """Our table of the file, empty if there is none; ConfigError if the file is not TOML."""
        try:
            found: Any = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(self._no_toml(str(error))) from None
        except RecursionError:
            raise ConfigError(self._no_toml("lists or tables stand too deep within each other")) from None
        for key in self.within:
            found = found.get(key, {}) if isinstance(found, dict) else {}
        return found if isinstance(found, dict) else {}

    def _no_toml(self, message: str) -> str:
        # tomllib has the place only in its message: "(at line 3, column 5)" or "(at end of document)".
        what, _, where = message.partition(" (at ")
        line = re.match(r"line (\d+)", where)
        way_out = '; text stands in quotes, as in app = "app:app"' if what == "Invalid value" else ""
        return f"{self.shown}:{line[1] if line else len(self.text.splitlines())}: {what}: this is no TOML{way_out}"

    def wrong(self, keys: Keys, expected: str, written: object, names: tuple[str, ...] = ()) -> ConfigError:
        """The error for an unexpected value. names: allowed words; the nearest is suggested."""
        name = "" if self._variable(keys) else f" {join_keys(keys)}:"
        near = nearest(str(written), {known: known for known in names})
        meant = f'; did you mean "{near}"?' if near else ""
        return ConfigError(f"{self._place(keys)}:{name} expected {expected}, got {_quote(written)}{meant}")

    def unknown(self, keys: Keys, known: Mapping[str, str]) -> ConfigError:
        """The error for an unknown setting. known: what to write instead, by name."""
        return ConfigError(f"{self._place(keys)}: unknown setting {join_keys(keys)}; {_advice(keys[-1], known)}")

    def _variable(self, keys: Keys) -> str | None:
        # A variable may have set the whole table that contains the setting.
        for length in range(len(keys), 0, -1):
            if keys[:length] in self.variables:
                return self.variables[keys[:length]]
        return None

    def _place(self, keys: Keys) -> str:
        line = line_of(self.text, self.within + keys)
        return self._variable(keys) or (f"{self.shown}:{line}" if line else self.shown)


def section(kind: type[S], written: object, keys: Keys, source: SettingsSource) -> S:
    """The Struct of a table's settings; ConfigError for the first that is unknown or wrong."""
    if not isinstance(written, dict):
        raise source.wrong(keys, f"a table of settings such as {' and '.join(list(forms(kind))[:2])}", written)
    values = {}
    for name, value in written.items():
        if name not in forms(kind):
            raise source.unknown((*keys, name), _setting_names(kind))
        field, form = forms(kind)[name]
        values[field] = _value(form, value, (*keys, name), source)
    return kind(**values)


def _value(form: Any, written: object, keys: Keys, source: SettingsSource) -> Any:
    if isinstance(form, Kind):
        if form.table is not None and isinstance(written, dict):
            return section(form.table, written, keys, source)
        try:
            return form.read(written)
        except (ValueError, msgspec.ValidationError):
            shown = _Hidden() if form.is_secret and set(":@=") & set(str(written)) else written
            raise source.wrong(keys, form.expected, shown, form.names) from None
    named = _by_name(form)
    if named is None:
        return section(form, written, keys, source)
    if not isinstance(written, dict):
        raise source.wrong(keys, f"a table for each name, as in [{join_keys((*keys, 'default'))}]", written)
    return {name: section(named, value, (*keys, name), source) for name, value in written.items()}


@cache
def forms(kind: type[Struct]) -> dict[str, tuple[str, Any]]:
    """The settings and sections of a Struct, by name as written: the name of the field, and a Kind, Struct or dict."""
    found: dict[str, tuple[str, Any]] = {}
    for field, hint in get_type_hints(kind, include_extras=True).items():
        kinds = [part for part in get_args(hint) if isinstance(part, Kind)]
        is_section = isinstance(hint, type) and issubclass(hint, Struct)
        if kinds or is_section or _by_name(hint):
            # Names that are keywords of Python have an underscore in the Struct: `async_`, `from_`.
            found[field.rstrip("_")] = (field, kinds[0] if kinds else hint)
    return found


def _by_name(form: Any) -> type[Struct] | None:
    """The Struct if the form is a dict of Structs by name; else None."""
    if get_origin(form) is not dict:
        return None
    kind = get_args(form)[1]
    return kind if isinstance(kind, type) and issubclass(kind, Struct) else None


def _setting_names(kind: type[Struct]) -> dict[str, str]:
    return {name: name for name in forms(kind)}


def override(table: dict[str, Any], kind: type[Struct], environ: Mapping[str, str], source: SettingsSource) -> None:
    """Puts the values of variables into the table. Empty variables are ignored.

    ConfigError for an unknown variable that looks like a setting: it has two underscores, or a name close to a real
    one. Others are ignored.
    """
    ours = [name for name, text in environ.items() if name.startswith(PREFIX) and text.strip()]
    # Tables before the settings in them, so that TARRY_A__B overrides a B in TARRY_A.
    for variable in sorted(ours, key=lambda name: (name.count(SEPARATOR), name)):
        parts = variable.removeprefix(PREFIX).split(SEPARATOR)
        if (addressed := _find_setting(table, kind, parts)) is not None:
            keys, form = addressed
            source.variables[keys] = variable
            _set_value(table, keys, _parse_variable(form, environ[variable].strip()))
        # Not for every unknown variable: Kubernetes sets TARRY_PORT for a service named tarry.
        elif len(parts) > 1 or nearest(_flat(variable), _variables(kind), close=0.8):
            raise ConfigError(f"{variable}: unknown setting; {_advice(_flat(variable), _variables(kind))}")


def _find_setting(table: dict[str, Any], kind: type[Struct], parts: list[str]) -> tuple[Keys, Any] | None:
    form: Any = kind
    keys: Keys = ()
    here: Any = table
    for part in parts:
        if isinstance(form, Kind):
            return None
        named = _by_name(form)
        name = _match_name(here, part) if named else part.lower()
        if not named and name not in forms(form):
            return None
        form = named or forms(form)[name][1]
        here = here.get(name) if isinstance(here, dict) else None
        keys = (*keys, name)
    return keys, form


def _match_name(table: object, part: str) -> str:
    """The name in the table that this part of a variable stands for."""
    # A variable can spell a name only in capitals and underscores.
    names = table if isinstance(table, dict) else {}
    return next((name for name in names if re.sub(r"\W", "_", name).upper() == part.upper()), part.lower())


def _parse_variable(form: Any, text: str) -> Any:
    try:
        return form.parse_variable(text) if isinstance(form, Kind) else json.loads(text)
    except ValueError:
        # `section` reports the wrong value, with the name of the variable.
        return text


def _set_value(table: dict[str, Any], keys: Keys, value: Any) -> None:
    *outer, last = keys
    for key in outer:
        inner = table.setdefault(key, {})
        if not isinstance(inner, dict):
            # Wrong in the file: `section` reports it.
            return
        table = inner
    table[last] = value


def _variables(kind: type[Struct]) -> dict[str, str]:
    """All possible variables, by their names without the prefix and with single underscores."""
    return {_flat(name): name for name in _spellings(kind, PREFIX)}


def _flat(variable: str) -> str:
    return variable.removeprefix(PREFIX).replace(SEPARATOR, "_").lower()


def _spellings(kind: type[Struct], before: str) -> Iterator[str]:
    for name, (_, form) in forms(kind).items():
        spelling = before + name.upper()
        named = _by_name(form)
        if isinstance(form, Kind):
            yield spelling
        else:
            yield from _spellings(named or form, spelling + SEPARATOR + ("DEFAULT" + SEPARATOR if named else ""))


def _advice(name: str, known: Mapping[str, str]) -> str:
    near = nearest(name, known)
    return f"did you mean {known[near]}?" if near else f"known here: {', '.join(known.values())}"


class _Hidden:
    """Stands for a value that may have a password in it."""


def _quote(value: object) -> str:
    if isinstance(value, _Hidden):
        return "what is not shown here: it may have a password in it"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def join_keys(keys: Keys) -> str:
    """The keys as TOML writes them: `queues."order.timeout".keep`."""
    return ".".join(key if re.fullmatch(r"[\w-]+", key) else json.dumps(key) for key in keys)


def as_toml(value: Any) -> str:
    """A value in one line of TOML. value: as tomllib reads it, without times."""
    if isinstance(value, dict):
        inner = ", ".join(f"{_as_key(key)} = {as_toml(one)}" for key, one in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    # The texts, numbers and truths of JSON are those of TOML, but for one character, DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _as_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else as_toml(key)


# tomllib gives no line numbers of settings, so they are searched in the text.
_KEY = r"(?:[\w-]+|\"[^\"]*\"|'[^']*')"
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_HEADER, _SETTING = re.compile(rf"\s*\[\[?\s*({_DOTTED})\s*\]"), re.compile(rf"\s*({_DOTTED})\s*=")


def line_of(text: str, keys: Keys) -> int | None:
    """The line, from 1, of that setting or section, or else of the nearest section that contains it."""
    best, line = 0, None
    header: Keys = ()
    for number, written in enumerate(text.splitlines(), 1):
        if found := _HEADER.match(written):
            here = header = _keys(found[1])
        elif found := _SETTING.match(written):
            here = header + _keys(found[1])
        else:
            continue
        shared = min(len(here), len(keys))
        if shared > best and here[:shared] == keys[:shared]:
            best, line = shared, number
    return line


def _keys(text: str) -> Keys:
    return tuple(key.strip("\"'") for key in re.findall(_KEY, text))


def find_file(home: Path, names: Sequence[str]) -> tuple[Path | None, SettingsSource]:
    """The nearest file with settings: in this directory, else in the ones above it, as git looks for its own."""
    for directory in (home, *home.parents):
        for name in names:
            file = directory / name
            if directory != home and not _is_trusted(file):
                continue
            source = read_file(file, os.path.relpath(file, home))
            # A pyproject.toml without [tool.tarry] is not for us. An empty tarry.toml is a configuration.
            if source and (source.table() or not source.within):
                return file, source
    return None, SettingsSource()


def _is_trusted(file: Path) -> bool:
    """Whether a file above the working directory is this user's or root's."""
    # The settings name code to run. Above, in /tmp say, anybody may have put them (as CVE-2022-24765 of git).
    try:
        owner = file.stat().st_uid
    except OSError:
        return False
    if owner in (ROOT_UID, user_id()):
        return True
    log.warning("%s belongs to another user and is not used; name it by -c to use it", file)
    return False


def read_file(path: Path, shown: str) -> SettingsSource | None:
    """The source of a file; None if there is none, ConfigError if it cannot be read."""
    within = ("tool", "tarry") if path.name == "pyproject.toml" else ()
    try:
        return SettingsSource(shown, path.read_text(encoding="utf-8"), within, {})
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{shown} cannot be read: {why}") from None
