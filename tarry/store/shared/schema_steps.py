"""Creates and migrates tables in numbered steps: step n turns version n - 1 into version n."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from msgspec import Struct

from tarry.errors import StoreError, StoreForeign, StoreNewer
from tarry.store.shared.creation import check_creation


class SchemaStep(Struct, frozen=True):
    """One step of a migration. says: what it does, for people."""

    says: str
    statements: Sequence[str]
    older_go_on: bool = True
    """Whether programs that know only the versions before may use the store after it. They do as long as a step only
    adds what they need not know. Where it is False, stop them first."""


class SchemaVersion(Struct, frozen=True):
    """Of the tables of a store. oldest: programs that know at least this version may use them."""

    version: int
    oldest: int


def describe(step: SchemaStep) -> str:
    """The step in a line, for whoever is to say yes."""
    return step.says if step.older_go_on else f"{step.says} (first stop what runs with the version before)"


def oldest_allowed(steps: Sequence[SchemaStep]) -> int:
    """The oldest version whose programs may use what these steps made."""
    return max((number for number, step in enumerate(steps, 1) if not step.older_go_on), default=1)


def unreleased(where: str) -> StoreForeign:
    """The error for tables that do not say who may use them."""
    return StoreForeign(
        f"{where} was made by a tarry from before its first release, whose tables are others: name another store, or"
        " remove what is there"
    )


def refuse_newer(found: SchemaVersion, newest: int, where: str) -> None:
    """StoreNewer if programs that know `newest`, and nothing later, must not use these tables."""
    if found.oldest > newest:
        raise StoreNewer(
            f"{where} has schema {found.version}, for programs that know {found.oldest} or later; this tarry knows"
            f" {newest}: upgrade tarry on this host"
        )


class Schema(ABC):
    """The tables of one store. where: its name for messages."""

    def __init__(self, where: str, steps: Sequence[SchemaStep]) -> None:
        self.where, self.steps = where, steps

    @abstractmethod
    def version(self) -> int:
        """The version of the tables, which may be newer than the last step; 0: there are none, and they may be
        created. An error if they may not be used, or not be created."""

    def missing_steps(self) -> range:
        """The numbers of the steps that are still to do."""
        return range(self.version() + 1, len(self.steps) + 1)

    def pending_steps(self) -> list[str]:
        """What `migrate` would do, one line for each step."""
        return [describe(self.steps[number - 1]) for number in self.missing_steps()]


class ServerSchema(Schema):
    """The tables of one store on a server, which workers of several versions share."""

    @abstractmethod
    def make(self, number: int) -> bool:
        """Does that step, whole or not at all; False if another process has done it."""

    @abstractmethod
    def create(self) -> None:
        """Does all steps, if there are no tables yet. No other process sees a version between."""

    def ensure(self) -> None:
        """Creates the tables if there are none; StoreNewer or StoreError, before anything is written, if they have
        another version."""
        # Existing tables are not migrated here: an operator decides when, since older workers may be running.
        missing = self.missing_steps()
        if missing.start == 1:
            check_creation(self.where)
            self.create()
        elif missing:
            raise StoreError(
                f"{self.where} has schema {missing.start - 1}, this tarry knows {len(self.steps)}: run `tarry migrate`"
            )

    def migrate(self) -> list[str]:
        """Migrates the tables; returns the lines of the steps that this call did."""
        return [describe(self.steps[number - 1]) for number in self.missing_steps() if self.make(number)]
