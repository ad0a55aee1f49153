"""`tarry worker`: one worker in the foreground, with its keeper, for containers that bring their own supervisor."""

import argparse
import logging
import signal
from collections.abc import Collection, Sequence

from tarry.config import Pool
from tarry.errors import ConfigError
from tarry.process.loading import Setup
from tarry.runtime.logs import logs
from tarry.runtime.logs.log_lines import tell_of
from tarry.runtime.signals import Signals
from tarry.tasks import log_facts
from tarry.worker.worker import Outside

log = logging.getLogger("tarry.worker")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Its place on the command line."""
    worker = commands.add_parser("worker", help="run one worker in the foreground, without a master")
    worker.add_argument("--pool", metavar="NAME", help="whose settings it has (default, or the only one)")
    worker.add_argument("--queues", metavar="A,B", help="serve these instead of the pool's")
    worker.add_argument("--threads", type=int, metavar="N", help="sync jobs at once")
    worker.add_argument("--async", type=int, dest="coroutines", metavar="N", help="async jobs at once")
    worker.set_defaults(run=run_worker)


def run_worker(args: argparse.Namespace) -> int:
    """Until INT: what runs is finished. TERM: the same within `[master] term_grace`. USR1: says how it stands."""
    setup = Setup.of(args)
    config = setup.config
    logs.configure("stderr", config.master.log_format, config.master.log_level)
    pool = _pool(config.pools, args.pool)
    queues: str | Collection[str] = args.queues.split(",") if args.queues else pool.queues
    with Signals((signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)) as signals:
        app = setup.app
        service = app.embedded_service(
            pool, FromSignals(signals), queues=queues, threads=args.threads, coroutines=args.coroutines
        )
        tell_of(log_facts.here, worker=service.worker.name)
        log.info("%s: runs jobs, %s", setup.runs(), _shown(queues))
        service.run()
        app.close()
    log.info("ended")
    return 0


def _pool(pools: dict[str, Pool], given: str | None) -> Pool:
    name = given or (next(iter(pools)) if len(pools) == 1 else "default")
    if name not in pools:
        raise ConfigError(f"no pool {name}: choose with --pool among {', '.join(pools)}")
    return pools[name]


def _shown(queues: str | Collection[str]) -> str:
    return "all queues" if "*" in queues else f"queues {', '.join(queues)}"


class FromSignals(Outside):
    """Signals alone, as the worker's outside."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals

    def filenos(self) -> Sequence[int]:
        """Readable when one came."""
        return (self._signals.fileno(),)

    def signals(self) -> Sequence[int]:
        """Those that came."""
        return self._signals.take()

    def parent_lives(self) -> bool:
        """Whoever started it is not asked."""
        return True
