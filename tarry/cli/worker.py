"""`tarry worker`: one worker with its keeper in the foreground, for containers that have their own supervisor."""

import argparse
import logging
import signal
from collections.abc import Collection, Sequence

from tarry.config.config import Pool
from tarry.errors import ConfigError
from tarry.process.loading import CommandContext
from tarry.runtime.logs import handlers
from tarry.runtime.logs.formatting import set_job_facts
from tarry.runtime.signal_queue import Signals
from tarry.tasks import log_facts
from tarry.worker.worker import ControlChannel

log = logging.getLogger("tarry.worker")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    worker = commands.add_parser("worker", help="run one worker in the foreground, without a master")
    worker.add_argument("--pool", metavar="NAME", help="whose settings it has (default, or the only one)")
    worker.add_argument("--queues", metavar="A,B", help="serve these instead of the pool's")
    worker.add_argument("--threads", type=int, metavar="N", help="sync jobs at once")
    worker.add_argument("--async", type=int, dest="coroutines", metavar="N", help="async jobs at once")
    worker.set_defaults(run=run_worker)


def run_worker(args: argparse.Namespace) -> int:
    """Runs until INT: finishes the running jobs. TERM: the same within `[master] term_grace`. USR1: logs its state."""
    setup = CommandContext.of(args)
    config = setup.config
    handlers.configure("stderr", config.master.log_format, config.master.log_level)
    pool = _pool(config.pools, args.pool)
    queues: str | Collection[str] = args.queues.split(",") if args.queues else pool.queues
    with Signals((signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)) as signals:
        # Within the block, so that a signal during the import of the app counts, too.
        app = setup.app
        service = app.embedded_service(
            pool, FromSignals(signals), queues=queues, threads=args.threads, coroutines=args.coroutines
        )
        set_job_facts(log_facts.current_facts, worker=service.worker.name)
        log.info("%s: runs jobs, %s", setup.require_work(), _describe_queues(queues))
        service.run()
        app.close()
    log.info("ended")
    return 0


def _pool(pools: dict[str, Pool], given: str | None) -> Pool:
    name = given or (next(iter(pools)) if len(pools) == 1 else "default")
    if name not in pools:
        raise ConfigError(f"no pool {name}: choose with --pool among {', '.join(pools)}")
    return pools[name]


def _describe_queues(queues: str | Collection[str]) -> str:
    return "all queues" if "*" in queues else f"queues {', '.join(queues)}"


class FromSignals(ControlChannel):
    """The outside of a worker that has no master: only signals."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals

    def filenos(self) -> Sequence[int]:
        """The descriptors that become readable when a signal arrives."""
        return (self._signals.fileno(),)

    def signals(self) -> Sequence[int]:
        """The signals that have arrived."""
        return self._signals.take()

    def is_parent_alive(self) -> bool:
        """Always true: the parent is not watched."""
        return True
