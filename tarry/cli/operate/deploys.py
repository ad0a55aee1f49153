"""`tarry deploys`, in words."""

from functools import partial

from tarry.cli.operate.method_command import CommandCall, Subject, add_methods
from tarry.cli.shared.printing import format_ago, format_clock, print_table
from tarry.model.duration import SECOND
from tarry.operate.errors import METHODS, DeployList


def _print_list(call: CommandCall, found: DeployList) -> None:
    now = call.client.clock.now()
    rows = []
    for one in found.deploys:
        at = round(one.at * SECOND)
        began = format_clock(at), format_ago(at, now)
        kind = f"{one.kind}, back" if one.is_rollback else one.kind
        rows.append((*began, one.host, kind, one.by or "-", one.generation, one.version or "-", one.tarry))
    print_table(("began", "", "host", "by", "who", "generation", "version", "tarry"), rows)


SUBJECT = Subject(
    METHODS,
    {"list": _print_list},
    "list when which code began to run: each start and reload of each master",
    """The version is [master] app_version, or the commit of the app's git repository. `tarry errors --new-since deploy`
    lists the errors that began since the last one.""",
)
add = partial(add_methods, "deploys", SUBJECT)
