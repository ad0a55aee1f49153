"""Sizes: every way to write one, and what is said of the ways that are none."""

import pytest

from tarry.model.quantity import Size, octets


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (0, 0),
        (65_536, 65_536),
        ("512", 512),
        ("512B", 512),
        ("64KB", 64_000),
        ("1MB", 1_000_000),
        ("1MiB", 1_048_576),
        ("1.5 GiB", 1_610_612_736),
        (" 2gb ", 2_000_000_000),
        ("1TB", 10**12),
    ],
)
def test_reads_what_people_write(written: Size, expected: int) -> None:
    assert octets(written) == expected


@pytest.mark.parametrize("written", ["", "MB", "1 meg", "-1KB", "1,5MB", "1e3", -5, 1.5, True, None, b"1KB"])
def test_what_is_no_size_is_refused_with_an_example(written: Size) -> None:
    with pytest.raises(ValueError, match=r'is no size: write bytes \(65536\) or text \("64KB", "1MiB"\)$') as error:
        octets(written)
    assert str(error.value).startswith(repr(written))


@pytest.mark.parametrize("written", [2**53, "9999TB", "9" * 90])
def test_what_no_machine_has_is_refused(written: Size) -> None:
    with pytest.raises(ValueError, match=r"is too large: a size is less than 2\^53 bytes$"):
        octets(written)
