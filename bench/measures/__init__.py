"""All measures, in the order in which they are run. Importing this fills the list."""

# The order of the table: raw limits first, since others are compared with them.
from bench.measures import (  # noqa: F401, I001
    raw,
    costing,
    sealing,
    payloads,
    enqueueing,
    draining,
    limits,
    scaling,
    mixing,
    latency,
    backlog,
    flows,
    flow_costs,
    resting,
    scheduling,
    crashing,
    operating,
    serving,
    pushing,
    doors,
    beanstalk,
    testkit,
)
