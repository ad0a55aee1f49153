"""What clients say at and past the limits of the protocol, and what is no command at all."""

from tarry.server.beanstalk.command_parser import PAUSE_MOST
from tests.server.beanstalk.talking import CLOSE, Script, steps

LONG = "x" * 200
"""The longest name of a tube."""
_ALL = "".join(map(chr, [*range(ord("a"), ord("z") + 1), *range(ord("A"), ord("Z") + 1)])) + "0123456789-+/;.$_()"
_U32, _U64, _I64 = 2**32 - 1, 2**64 - 1, 2**63 - 1


def _lines(*lines: str) -> tuple[str, str, int]:
    return "a", "".join(f"{line}\r\n" for line in lines), len(lines)


LIMITS: dict[str, Script] = {
    "refusals": steps(
        ("a", "nonsense\r\n\r\nput\r\nput \r\nput a\r\nreserve 5\r\npeek x\r\ndelete\r\n", 8),
        ("a", "put 1 2 3 4\r\nabcdef"),
        ("a", "put 1 2 3 65536\r\n" + "z" * 65538),
        ("a", "put 1 2 3 4294967295x\r\n", 0),
        ("a", CLOSE),
        ("b", "put 1 2 3 4294967296\r\nkick x\r\nkick -1\r\nkick 3x\r\nuse -a\r\nuse a b\r\nuse é\r\n", 7),
        ("b", f"use x{LONG}\r\nwatch x{LONG}\r\n{'y' * 222}\r\n{'y' * 300}\r\n{'y' * 9999}\r\n", 5),
        ("b", "use a\0b\r\npause-tube a\r\npause-tube -a 1\r\nstatsx\r\nlist-tubes \r\n", 5),
        ("b", "reserve-with-timeout 0 x\r\ntouch 5 5\r\nPEEK 5\r\n", 3),
        ("b", "put 0 0 100 65535\r\n" + "z" * 65535 + "\r\n"),
        ("b", "delete {1}\r\n"),
    ),
    "what-is-no-command": steps(
        _lines(
            "delete -1", "delete +1", "delete 0x1", "delete 1.5", "delete  1", "delete 1 2", "delete 1 ", "delete \t1"
        ),
        _lines(
            "delete 0001", "touch", "touch ", "touch x", "touch 1x", "peek-", "peek-readyx", "peek-buried ", "peek 1 2"
        ),
        _lines("release 1", "release 1 2", "release 1 2 3 4", "release 1 -2 3", "release 1 2 -3", "release  1  2  3"),
        _lines("bury 1", "bury 1 2 3", "bury x 1", "bury 1 x", "bury  1  2", "kick", "kick ", "kick-job", "kick-job x"),
        _lines("kick 99999999999999999999", "kick +0", "kick \t0", "kick 0 0", "kick-job 1 2", "kick-job  1", "KICK 1"),
        _lines("reserve-job", "reserve-job x", "reserve-job 1 2", "reserve ", "reservex", "reserve-with-timeout"),
        _lines("stats ", "stats-job", "stats-job x", "stats-job 1 2", "stats-tube", "stats-tube ", "stats-tube a b"),
        _lines(
            "list-tubesx",
            "list-tube-used ",
            "list-tube",
            "list-tubes-watched x",
            "use",
            "use ",
            "use  a",
            "use a ",
            "usea",
        ),
        _lines(
            "watch", "watch ", "watch -a", "watch a b", "ignore", "ignore ", "ignore -a", "ignore a\tb", "watch a\n"
        ),
        _lines(
            "pause-tube",
            "pause-tube ",
            "pause-tube a",
            "pause-tube a -1",
            "pause-tube a 1 2",
            "pause-tube a1",
            "pause-tube a\t1",
        ),
        _lines(
            "pause-tubea 1",
            "pause-tube  a  1",
            "pause-tube a x",
            f"pause-tube x{LONG} 1",
            "pause-tube a {b} 1",
            " stats",
        ),
        _lines(
            "put 1 2 3",
            "put 1 2 3 x",
            "put x 2 3 4",
            "put 1 x 3 4",
            "put 1 2 x 4",
            "put -1 2 3 4",
            "put 1 2 3 -4",
            "put 1 2 3 4 5",
        ),
        _lines(
            "use a*",
            "use a,b",
            "use a:b",
            'use a"b',
            "use a'b",
            "use a%b",
            "use a[b]",
            "use a{{b}}",
            "use a=b",
            "use a@b",
            "use a~",
        ),
    ),
    "numbers": steps(
        _lines("use num", "watch num"),
        ("a", f"put {_U32} 0 {_U32} 1\r\nx\r\n"),
        _lines(
            "stats-job {1}", "reserve", "stats-job {1}", f"release {{1}} {_U32} {_U32}", "stats-job {1}", "peek-delayed"
        ),
        _lines(
            "reserve-job {1}", "stats-job {1}", f"bury {{1}} {_U32}", "stats-job {1}", "kick-job {1}", "stats-job {1}"
        ),
        ("a", f"put 0 {_U32} 0 1\r\nx\r\n"),
        _lines("stats-job {2}", "reserve-job {1}", f"release {{1}} {_U32 + 1} 0", f"release {{1}} 0 {_U32 + 1}"),
        _lines(f"bury {{1}} {_U32 + 1}", "release {1} 0 0", "stats-job {1}", "peek-ready", "delete {1}", "delete {2}"),
        _lines(f"put {_U32 + 1} 0 1 1", f"put 0 {_U32 + 1} 1 1", f"put 0 0 {_U32 + 1} 1", f"put 0 0 1 {_U32 + 1}"),
        _lines(f"pause-tube num {PAUSE_MOST}", "stats-tube num", f"pause-tube num {_U32 + 1}", "pause-tube num 0"),
        *(
            _lines(
                *(f"{verb} {number}" for verb in ("delete", "peek", "touch", "kick-job", "stats-job", "reserve-job"))
            )
            for number in (0, 1 << 40, _I64, _I64 + 1, _U64, _U64 + 1, 10**30)
        ),
        _lines(
            *(f"release {number} 1 1" for number in (0, _U64, _U64 + 1)),
            *(f"bury {number} 1" for number in (0, _U64, _U64 + 1)),
        ),
    ),
    "bodies": steps(
        ("a", "use bod\r\nwatch bod\r\n", 2),
        # What is too big is skipped, whatever it says.
        ("a", "put 1 2 3 65536\r\n" + "stats\r\n\r\n" * 7281 + "1234567" + "\r\nlist-tube-used\r\n", 2),
        ("a", "put 1 2 3 65536 and so on\r\n" + "z" * 65536, 0),
        ("a", "\r\nlist-tube-used\r\n", 2),
        ("a", "put 0 0 100 2\r\nabcd\r\nput 0 0 100 0\r\nxyput 0 0 100 1\r\n\r\r\npeek-ready\r\nreserve\r\n", 6),
        ("a", "put 0 0 100 8\r\nstats\r\n\0\r\nreserve\r\nput 0 0 100 2\r\n\r\n\r\nreserve\r\n", 4),
        ("a", "put 0 0 100 4\r\nab", 0),
        ("a", "cd", 0),
        ("a", "\r", 0),
        ("a", "\nreserve\r\n", 2),
    ),
    "names": steps(
        _lines(f"use {_ALL}", f"watch {_ALL}", "ignore default", "list-tubes-watched", "list-tube-used"),
        ("a", f"put 1 0 100 1\r\nx\r\nreserve\r\nstats-tube {_ALL}\r\n", 3),
        _lines("stats-job {1}", f"pause-tube {_ALL} 0", "delete {1}", f"use {LONG}", f"watch {LONG}", f"ignore {_ALL}"),
        ("a", f"put 1 0 100 1\r\nx\r\npause-tube {LONG} 100\r\nreserve-with-timeout 0\r\nstats-tube {LONG}\r\n", 4),
        _lines(f"pause-tube {LONG} 0", "reserve", "stats-job {2}", "list-tubes", "bury {2} 1", "kick 1", "delete {2}"),
        # A store may take these for the same.
        ("a", "use Case\r\nput 1 0 100 1\r\nA\r\nuse case\r\npeek-ready\r\nput 1 0 100 1\r\na\r\nkick 1\r\n", 6),
        _lines(
            "peek-ready", "list-tubes", "stats-tube Case", "stats-tube case", "watch case", "ignore Case", "reserve"
        ),
        _lines("delete {3}", "delete {4}", "stats-tube Case", "use 0", "use +", "use .", "watch ()", "use -"),
    ),
    "kicks": steps(
        _lines("use kic", "watch kic"),
        ("a", "".join(f"put {at} {delay} 100 1\r\n{at}\r\n" for at, delay in enumerate((900, 700, 800))), 3),
        _lines(
            "kick 0",
            "peek-delayed",
            "kick 2",
            "peek-delayed",
            "stats-tube kic",
            "reserve-job {2}",
            "reserve-job {3}",
            "reserve-with-timeout 0",
        ),
        _lines(
            "bury {2} 5",
            "bury {3} 4",
            "kick 4294967296",
            f"kick {_U32 + 2}",
            "stats-job {2}",
            "stats-job {3}",
            "peek-buried",
        ),
        # Delayed ones only where none is buried.
        _lines(
            "kick 99",
            "stats-job {1}",
            "kick -1",
            "stats-job {1}",
            "kick 1",
            "stats-tube kic",
        ),
        _lines(
            "reserve-job {1}",
            "reserve-job {2}",
            "reserve-job {3}",
            "kick-job {1}",
            "kick-job {2}",
            "release {1} 1 50",
            "release {2} 1 40",
            "bury {3} 1",
            "use other",
            "kick 9",
        ),
        _lines("kick-job {1}", "kick-job {3}", "kick-job {3}", "use kic", "kick 1", "stats-tube kic"),
    ),
}
