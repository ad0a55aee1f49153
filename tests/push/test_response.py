"""What an answer says of itself."""

from tarry.push.http.response import KEPT, MOST_BODY, HttpResponse


def test_headers_of_one_name_are_joined() -> None:
    answer = HttpResponse(200, (("a", "1"), ("b", "2"), ("a", "3")))
    assert (answer.header("a"), answer.header("b"), answer.header("c")) == ("1, 3", "2", "")


def test_the_start_of_the_body_is_kept_as_text() -> None:
    assert HttpResponse(200, body="é".encode() + b"\xff").excerpt() == "é\ufffd"
    assert HttpResponse(200, body=b"x" * MOST_BODY).excerpt() == "x" * KEPT
    assert HttpResponse(200, body="😀".encode() * KEPT).excerpt() == "😀" * KEPT
    assert HttpResponse(204).excerpt() == ""
