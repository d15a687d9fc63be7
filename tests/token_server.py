"""An OAuth server that gives tokens without a signature, for client credentials."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

CLIENT_ID, CLIENT_SECRET = "side:car", "p%ss wörd"
# Both are form-encoded before they are joined, as RFC 6749 asks for.
ENCODED = ("side%3Acar", "p%25ss%20w%C3%B6rd")


class TokenServer:
    """What was asked, and what is answered."""

    def __init__(self, client_id: str, secret: str) -> None:
        self.url = ""
        self._authorization = "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode()
        self.asked: list[dict[str, str]] = []
        self.given: list[str] = []
        self.seconds = 300.0
        """How long a token is valid."""
        self.answer: tuple[int, bytes] | None = None
        """What is answered instead of a token."""

    def reply(self, authorization: str, form: dict[str, str]) -> tuple[int, bytes]:
        self.asked.append(form)
        if self.answer:
            return self.answer
        if authorization != self._authorization:
            return 401, b'{"error": "invalid_client", "error_description": "no such client"}'
        assert form["grant_type"] == "client_credentials"
        now = time.time()
        claims = {"sub": "app", "scope": form.get("scope", ""), "iat": now, "exp": now + self.seconds}
        self.given.append(f"{_part({'alg': 'none'})}.{_part(claims)}.")
        answer = {"access_token": self.given[-1], "token_type": "Bearer", "expires_in": self.seconds}
        return 200, json.dumps(answer).encode()


def _part(content: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


@contextmanager
def token_server(client_id: str = ENCODED[0], secret: str = ENCODED[1]) -> Iterator[TokenServer]:
    """Serve a client, whose id and secret are given as they come over the wire."""
    state = TokenServer(client_id, secret)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            status, content = state.reply(self.headers["Authorization"], form)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}/token?tenant=t"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
