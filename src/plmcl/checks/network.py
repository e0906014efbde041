"""Whether a server answers: one small request, and no download."""

from collections.abc import Callable

import httpx

SECONDS = 4.0

# From an address to None if its server answers, else the reason in words.
HttpAsk = Callable[[str], str | None]


def ask(url: str) -> str | None:
    """Ask a server for the head of an address, within four seconds.

    Any answer counts but those of a server in trouble (500 and above) and of a missing page (404):
    many refuse to be asked for a head alone. A user and password in the address are used, and the
    answer does not repeat them.

    Returns:
        None if it answers, else the reason.
    """
    try:
        answer = httpx.head(url, timeout=SECONDS, follow_redirects=True)
    except httpx.TimeoutException:
        return f"no answer within {SECONDS:.0f} s"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        user = url.partition("://")[2].rpartition("@")[0]
        said = str(error)
        return said if said and not (user and user in said) else type(error).__name__
    if answer.status_code == httpx.codes.NOT_FOUND or answer.is_server_error:
        return f"answers {answer.status_code} {answer.reason_phrase}"
    return None
