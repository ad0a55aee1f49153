"""The version of the Redis store's keys, who may use them, and the steps that bring older ones up to date."""

from typing import Any

from tarry.store.redis import scripts
from tarry.store.redis.link.base import RedisLink, Script, Word
from tarry.store.shared.schema_steps import (
    SchemaStep,
    SchemaVersion,
    ServerSchema,
    oldest_allowed,
    refuse_newer,
    unreleased,
)

STEPS: tuple[SchemaStep, ...] = (SchemaStep("makes the keys as they are needed", ()),)
"""Step n leads from version n - 1 to version n. Its statements are commands, in which `{s}` begins the keys; they are
done as one."""


class RedisSchema(ServerSchema):
    """The keys of one store, or of one part of a cluster. prefix: what they begin with."""

    def __init__(self, link: RedisLink, prefix: str) -> None:
        super().__init__(link.url, STEPS)
        self._link, self._prefix = link, prefix

    def version(self) -> int:
        """As promised; a store without keys gets that of the last step."""
        version, oldest = self._run(scripts.GET_SCHEMA, len(self.steps), oldest_allowed(self.steps))
        if oldest is None:
            raise unreleased(self.where)
        found = SchemaVersion(int(version), int(oldest))
        refuse_newer(found, len(self.steps), self.where)
        return found.version

    def create(self) -> None:
        """Nothing: `version` has done it."""

    def make(self, number: int) -> bool:
        commands = (one.replace("{s}", self._prefix) for one in self.steps[number - 1].statements)
        return bool(self._run(scripts.MAKE_STEP, number, oldest_allowed(self.steps[:number]), *commands))

    def _run(self, script: Script, *words: Word) -> Any:
        return self._link.run(script, (f"{self._prefix}:jobs",), words)
