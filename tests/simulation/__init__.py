"""The whole system in one process: clients, pumps, keepers, limits and flows over one store, seeded and deterministic.

The code is tarry's own. What is simulated is around it: time (`world`), the network between each process and the store
(`network`), processes that die and freeze, and their clocks (`processes`). No thread runs and nothing sleeps: while a
call of the store is under way, the other processes go on, so a process can be overtaken, cut off or killed inside of
any call. Each choice is drawn from the seed and from a name of what it is for, so that a fault can be left out and the
others stay: a failing seed is shrunk to the choices that it needs (`shrink`).

Outside of it: the interpreter's threads (of a worker, the fence and the client), event loops, forks, signals, the
C drivers, and what goes on inside of a server. Its store is in memory or in a file of SQLite.

    python -m tests.simulation --seed 7        one seed, with its log if it fails
    python -m tests.simulation --seeds 1000    many; the first that fails is shrunk
    python -m tests.simulation --mistakes      which seeds find each mistake of `mistakes`
"""
