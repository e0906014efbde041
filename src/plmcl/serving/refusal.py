"""An answer that is no prediction."""

from collections.abc import Mapping


class Refusal(Exception):  # noqa: N818 (an answer, not a defect)
    """Ends a request with a status and one line that names the rule and the value.

    Attributes:
        status: Of HTTP.
        detail: The line.
        headers: Sent with it.
    """

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, dict(headers or {})


def busy(why: str) -> Refusal:
    """429: nothing is wrong with the request, and it may come again."""
    return Refusal(429, why, {"Retry-After": "1"})
