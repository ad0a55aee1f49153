import pytest

from tarry.model.values.log_target import LogTarget, log_target


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("stderr", LogTarget("stderr")),
        ("syslog", LogTarget("syslog", "/dev/log")),
        ("journal", LogTarget("journal", "/run/systemd/journal/socket")),
        ("syslog://there", LogTarget("syslog", host="there", port=514)),
        ("syslog://there:6514/", LogTarget("syslog", host="there", port=6514)),
        ("syslog://[::1]:99", LogTarget("syslog", host="::1", port=99)),
        ("syslog:///var/run/syslog", LogTarget("syslog", "/var/run/syslog")),
        ("journal:///run/systemd/journal.shop/socket", LogTarget("journal", "/run/systemd/journal.shop/socket")),
        ("stderr.log", LogTarget("file", "stderr.log")),
        ("tarry.log", LogTarget("file", "tarry.log")),
        ("./syslog", LogTarget("file", "./syslog")),
        ("log", LogTarget("file", "log")),
        ("/var/log/syslog", LogTarget("file", "/var/log/syslog")),
    ],
)
def test_what_is_meant(written: str, meant: LogTarget) -> None:
    assert log_target(written) == meant


@pytest.mark.parametrize(
    "written",
    [
        "", "stdout", "sylog", "Syslog", "journald", "std-err", "a\0b", "http://there", "syslog://", "syslog://there:0",
        "syslog://there:70000", "syslog://me@there", "syslog://there/path", "syslog://there?facility=1", "journal://there",
        "journal:///", "file:///var/log/tarry", "syslog://[::1",
    ],
)  # fmt: skip
def test_what_nobody_can_have_meant(written: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        log_target(written)
