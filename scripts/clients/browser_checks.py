"""What a browser does before and while a page calls the API: a preflight, then the request.

Only the router answers pages; the agent behind it does not.
"""

import json
import urllib.error
import urllib.request

from harness import MESSAGES, MODEL, check, main

PAGE = "https://chat.example.com"


def ask(method, url, headers, body=None):
    request = urllib.request.Request(url, body, headers, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as why:
        return why.code, why.headers, why.read()


def preflight(url, origin):
    """As a browser does for a POST with a key and JSON."""
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    return ask("OPTIONS", f"{url}/v1/chat/completions", headers)


@check
def preflight_of_an_allowed_page(url):
    status, headers, _ = preflight(url, PAGE)
    assert status in (200, 204), status
    assert headers["access-control-allow-origin"] == PAGE, headers.items()
    assert "POST" in headers["access-control-allow-methods"], headers.items()
    # `*` does not stand for Authorization.
    names = headers["access-control-allow-headers"].lower().replace(" ", "").split(",")
    assert {"authorization", "content-type"} <= set(names), names
    return names


@check
def models_and_chat_of_an_allowed_page(url):
    status, headers, _ = ask("GET", f"{url}/v1/models", {"Origin": PAGE})
    assert status == 200 and headers["access-control-allow-origin"] == PAGE, headers.items()
    headers_sent = {"Origin": PAGE, "Content-Type": "application/json", "Authorization": "Bearer none"}
    for stream in (False, True):
        body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 8, "stream": stream}
        body = json.dumps(body).encode()
        status, headers, answer = ask("POST", f"{url}/v1/chat/completions", headers_sent, body)
        assert status == 200 and headers["access-control-allow-origin"] == PAGE, headers.items()
        assert b'"choices"' in answer and "origin" in headers["vary"].lower()


@check
def an_error_that_the_page_can_read(url):
    headers_sent = {"Origin": PAGE, "Content-Type": "application/json"}
    body = json.dumps({"model": "other", "messages": MESSAGES}).encode()
    status, headers, _ = ask("POST", f"{url}/v1/chat/completions", headers_sent, body)
    assert status == 404 and headers["access-control-allow-origin"] == PAGE, headers.items()


@check
def another_page(url):
    _, headers, _ = preflight(url, "https://evil.example.com")
    assert headers["access-control-allow-origin"] is None, headers.items()


main(lambda url: url)
