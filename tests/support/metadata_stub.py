"""What stands for the metadata service where a guest asks by its host: `python -m tests.support.metadata_stub`.

It listens at 127.0.0.1:8775, says `listens`, and answers with what it was asked, as JSON.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8775
URL = f"http://127.0.0.1:{PORT}"


class Echo(BaseHTTPRequestHandler):
    """Says what it was asked."""

    def do_GET(self) -> None:
        """Answer each request alike."""
        said = json.dumps({"path": self.path, **{name.lower(): value for name, value in self.headers.items()}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Echo)
    sys.stdout.write("listens\n")
    sys.stdout.flush()
    server.serve_forever()
